"""Sessions whose kernels are compiled in the background: others compute meanwhile, and no run waits."""

import gc
import logging
import os
import threading
import weakref

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ort_sdk
from ort_sdk.api import InvalidArgument, PluginHooks, hookimpl
from ort_sdk.plugins import plugin_manager
from tests.session.compiling_provider import NAME, CompilerError, CompilingProvider

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
PATIENCE = 30


def model_of(*op_types, shape=None):
    names = [f"v{index}" for index in range(len(op_types) + 1)]
    nodes = [helper.make_node(op, [names[index]], [names[index + 1]]) for index, op in enumerate(op_types)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in (names[0], names[-1])]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.fixture
def provider():
    made = CompilingProvider()
    plugin_manager().register(made)
    yield made
    made.compiler.may_go_on.set()
    plugin_manager().unregister(NAME)


def session_of(model, mode="background", **config):
    options = ort_sdk.SessionOptions()
    options.add_session_config_entry("session.compilation", mode)
    for key, value in config.items():
        options.add_session_config_entry(f"session.{key}", value)
    return ort_sdk.InferenceSession(model, options, providers=[NAME])


def test_a_session_answers_while_its_kernels_are_compiled(provider):
    session = session_of(model_of("Exp"))
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"v0": X})[0], np.exp(X), rtol=1e-6)
    assert set(provider.compiler.kernels) == {"plain exp"}
    assert not session.wait_for_compilation(0.05)
    provider.compiler.may_go_on.set()
    assert session.wait_for_compilation(PATIENCE)
    provider.compiler.kernels.clear()
    np.testing.assert_allclose(session.run(None, {"v0": X})[0], np.exp(X), rtol=1e-6)
    assert provider.compiler.kernels == ["compiled exp"]


def test_a_run_that_meets_missing_code_is_computed_without(provider):
    """And is repeated in the background, so that its code is there for the next one; other runs need other code."""
    session = session_of(model_of("Neg"))
    for x in (X, X[0], X[None]):
        provider.compiler.may_go_on.clear()
        provider.compiler.kernels.clear()
        np.testing.assert_array_equal(session.run(None, {"v0": x})[0], -x)
        assert provider.compiler.kernels == ["plain neg"]
        provider.compiler.may_go_on.set()
        assert session.wait_for_compilation(PATIENCE)
        provider.compiler.kernels.clear()
        np.testing.assert_array_equal(session.run(None, {"v0": x})[0], -x)
        assert provider.compiler.kernels == ["compiled neg"]


def test_feeds_are_repeated_as_they_were(provider):
    """The caller may change its arrays as soon as its run is over."""
    session = session_of(model_of("Neg", "Exp"))
    x = X.copy()
    results = session.run(None, {"v0": x})
    x[...] = np.nan
    np.testing.assert_allclose(results[0], np.exp(-X), rtol=1e-6)
    provider.compiler.may_go_on.set()
    assert session.wait_for_compilation(PATIENCE)
    np.testing.assert_allclose(session.run(None, {"v0": X})[0], np.exp(-X), rtol=1e-6)


def test_what_is_compiled_computes_at_once(provider):
    provider.compiler.compiled |= {"exp"}
    session = session_of(model_of("Exp"))
    session.run(None, {"v0": X})
    assert provider.compiler.kernels == ["compiled exp"]
    assert session.wait_for_compilation(0)


def test_bound_runs_are_computed_without_missing_code(provider):
    session = session_of(model_of("Neg"))
    binding = session.io_binding()
    binding.bind_cpu_input("v0", X)
    binding.bind_output("v1")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], -X)
    provider.compiler.may_go_on.set()
    assert session.wait_for_compilation(PATIENCE)
    provider.compiler.kernels.clear()
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], -X)
    assert provider.compiler.kernels == ["compiled neg"]


def test_a_run_during_which_the_session_takes_over(provider, monkeypatch):
    """A model that runs all the time: the thread is not started again for what it has just compiled."""
    session = session_of(model_of("Exp"))
    session.run(None, {"v0": X})
    called = provider.called

    def meanwhile(kernel, result):
        if kernel == "plain exp":
            provider.compiler.may_go_on.set()
            assert session.wait_for_compilation(PATIENCE)
        return called(kernel, result)

    monkeypatch.setattr(provider, "called", meanwhile)
    session.run(None, {"v0": X})
    assert session._runs._worker is None
    session.run(None, {"v0": X})
    assert provider.compiler.kernels[-1] == "compiled exp"


def test_code_that_repeated_runs_do_not_need(provider):
    """Stopped runs, or others that go another way than the thread's: they wait, and do not start the thread for ever."""
    provider.compiler.may_go_on.set()
    session = session_of(model_of("Neg"))
    need, main = provider.compiler.need, threading.main_thread()
    provider.compiler.need = lambda name: need(name) if threading.current_thread() is main else None
    for _ in range(6):
        np.testing.assert_array_equal(session.run(None, {"v0": X})[0], -X)
        assert session.wait_for_compilation(PATIENCE)
    assert provider.compiler.compiled == {"neg of 2"}
    assert provider.compiler.kernels[-1] == "compiled neg"


def test_waiting_sessions_compile_before_they_compute(provider):
    provider.compiler.may_go_on.set()
    session = session_of(model_of("Exp", "Neg"), "wait")
    session.run(None, {"v0": X})
    assert provider.compiler.kernels == ["compiled exp", "compiled neg"]


def test_sessions_that_never_compile(provider):
    session = session_of(model_of("Exp", "Neg"), "never")
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"v0": X})[0], -np.exp(X), rtol=1e-6)
    assert set(provider.compiler.kernels) == {"plain exp", "plain neg"}
    assert not provider.compiler.waiting.is_set()
    assert session.wait_for_compilation(0)


@pytest.mark.parametrize("source", ["entry", "variable"])
def test_an_unknown_mode_is_refused(provider, monkeypatch, source):
    if source == "variable":
        monkeypatch.setenv("ORT_SDK_COMPILATION", "later")
    with pytest.raises(InvalidArgument, match=r"'later'; it takes one of background, wait, never"):
        session_of(model_of("Exp"), "later" if source == "entry" else "")


def test_the_environment_sets_the_mode(provider, monkeypatch):
    monkeypatch.setenv("ORT_SDK_COMPILATION", "never")
    session_of(model_of("Exp"), "").run(None, {"v0": X})
    assert provider.compiler.kernels == ["plain exp"]


def test_a_compiler_that_fails_is_not_asked_again(provider, caplog):
    caplog.set_level(logging.INFO, "ort_sdk.session")
    provider.compiler.error = CompilerError("no such instruction")
    provider.compiler.may_go_on.set()
    session = session_of(model_of("Exp"))
    session.run(None, {"v0": X})
    assert session.wait_for_compilation(PATIENCE)
    for _ in range(2):
        np.testing.assert_allclose(session.run(None, {"v0": X})[0], np.exp(X), rtol=1e-6)
    assert set(provider.compiler.kernels) == {"plain exp"}
    assert [record.levelname for record in caplog.records if "no such instruction" in record.getMessage()] == ["WARNING"]


def test_the_log_says_what_computes(provider, caplog):
    caplog.set_level(logging.INFO, "ort_sdk.session")
    session = session_of(model_of("Exp"))
    session.run(None, {"v0": X})
    assert any("compiled in the background" in record.getMessage() for record in caplog.records)
    caplog.clear()
    provider.compiler.may_go_on.set()
    assert session.wait_for_compilation(PATIENCE)
    assert any("compute from now on" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("how", ["close", "drop"])
def test_compiling_ends_with_the_session(provider, how):
    session = session_of(model_of("Exp"))
    session.run(None, {"v0": X})
    assert provider.compiler.waiting.wait(PATIENCE)
    threads = [thread for thread in threading.enumerate() if thread.name == "ort_sdk compilation"]
    runs = weakref.ref(session._runs)
    if how == "close":
        session.close()
    del session
    gc.collect()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    assert runs() is None
    assert not provider.compiler.compiled


def test_sessions_from_many_threads(provider):
    session = session_of(model_of("Neg"))
    failures = []

    def run(x):
        failures.extend(x for _ in range(50) if not np.array_equal(session.run(None, {"v0": x})[0], -x))

    threads = [threading.Thread(target=run, args=(x,)) for x in (X, X[0], X[None], X[None, None])]
    for thread in threads:
        thread.start()
    provider.compiler.may_go_on.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert not failures


def test_stages_are_observed_once(provider):
    class Observer(PluginHooks):
        name = "stages"
        stages = []

        @hookimpl
        def on_stage_end(self, stage, product):
            self.stages.append(stage)

    observer = Observer()
    plugin_manager().register_plugin(observer)
    try:
        session = session_of(model_of("Exp"))
        session.run(None, {"v0": X})
        provider.compiler.may_go_on.set()
        assert session.wait_for_compilation(PATIENCE)
    finally:
        plugin_manager().unregister_plugin("stages")
    assert sorted(observer.stages) == ["load", "optimized", "partition", "plan"]


def test_a_path_is_of_the_folder_it_was_given_in(provider, tmp_path, monkeypatch):
    (tmp_path / "model.onnx").write_bytes(model_of("Exp"))
    monkeypatch.chdir(tmp_path)
    session = session_of("model.onnx")
    session.run(None, {"v0": X})
    monkeypatch.chdir("/")
    provider.compiler.may_go_on.set()
    assert session.wait_for_compilation(PATIENCE)
    session.run(None, {"v0": X})
    assert provider.compiler.kernels[-1] == "compiled exp"


def test_profiled_sessions_wait(provider, tmp_path):
    """What is measured is what computes in the end."""
    provider.compiler.may_go_on.set()
    options = ort_sdk.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    session = ort_sdk.InferenceSession(model_of("Exp"), options, providers=[NAME])
    session.run(None, {"v0": X})
    session.end_profiling()
    assert provider.compiler.kernels == ["compiled exp"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_computes_and_compiles_nothing(provider):
    session = session_of(model_of("Exp"))
    session.run(None, {"v0": X})
    assert provider.compiler.waiting.wait(PATIENCE)
    child = os.fork()
    if not child:
        os._exit(int(not np.allclose(session.run(None, {"v0": X})[0], np.exp(X)) or "compiled exp" in provider.compiler.kernels))
    assert os.waitpid(child, 0)[1] == 0


def test_states_overwritten_in_place(provider):
    """A run that may overwrite what it reads cannot be repeated with other kernels: it waits."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2,3] state) => (float[2,3] next) { negated = Neg(state) next = Neg(negated) }"""
    ).SerializeToString()
    session = session_of(model)
    provider.compiler.may_go_on.set()
    value = ort_sdk.OrtValue.ortvalue_from_numpy(X.copy())
    binding = session.io_binding()
    binding.bind_ortvalue_input("state", value)
    binding.bind_ortvalue_output("next", value)
    for _ in range(3):
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(value.numpy(), X)


def test_what_is_packed_meanwhile_is_not_kept(provider):
    """A container has what later sessions can use: not the weights of kernels that compute meanwhile."""
    weight = np.arange(9, dtype=np.float32).reshape(3, 3)
    nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("MatMul", ["e", "w"], ["y"])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [onnx.numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    options = ort_sdk.SessionOptions()
    options.add_session_config_entry("session.compilation", "background")
    container = ort_sdk.PrepackedWeightsContainer()
    session = ort_sdk.InferenceSession(model, options, providers=[NAME], prepacked_weights_container=container)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], np.exp(X) @ weight, rtol=1e-5)
    assert not container
    provider.compiler.may_go_on.set()
    assert session.wait_for_compilation(PATIENCE)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], np.exp(X) @ weight, rtol=1e-5)
    assert [key.packing_identity for key in container] == ["compiled weight"]


@pytest.mark.skipif(os.name != "posix", reason="a folder in use can be removed on POSIX systems only")
def test_sessions_in_a_folder_that_was_removed(provider, tmp_path, monkeypatch):
    folder = tmp_path / "removed"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    provider.compiler.may_go_on.set()
    session = session_of(model_of("Exp"))
    session.run(None, {"v0": X})
    assert session.wait_for_compilation(PATIENCE)
    session.run(None, {"v0": X})
    assert provider.compiler.kernels[-1] == "compiled exp"
