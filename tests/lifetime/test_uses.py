"""Whatever is done with a session: with its last reference it is free, and closed it keeps nothing."""

import threading

import numpy as np
import pytest

import ort_sdk
from ort_sdk.api import ExecutionProvider, KernelInfo, OpKernel, OrtSdkError
from ort_sdk.graph import Graph
from ort_sdk.plan import ExecutionPlan
from ort_sdk.run.program.cache import ProgramCache
from ort_sdk.run.program.program import Program
from ort_sdk.session.stages.state import SessionState
from ort_sdk.testing.garbage import assert_no_garbage, still_there
from tests.lifetime.sessions import RUNS, opened, perceptron, picked_rows, with_defaults

MODEL = perceptron()
ROWS = picked_rows()
X = np.ones((64, 256), np.float32)
PARTS = (ExecutionPlan, ExecutionProvider, Graph, KernelInfo, OpKernel, Program, ProgramCache, SessionState)


def used():
    session = opened(MODEL)
    for _ in range(RUNS):
        session.run(None, {"x0": X})
    return session


def attempted(session, feeds, options=None):
    with pytest.raises(OrtSdkError):
        session.run(None, feeds, options)


def dropped():
    used()


def closed():
    session = used()
    assert still_there(*PARTS)
    (kept,) = session.run(None, {"x0": X})
    session.close()
    assert not still_there(*PARTS)
    assert kept.shape == X.shape
    with pytest.raises(OrtSdkError, match="the session was closed"):
        session.set_providers(["CPUExecutionProvider"])


def left_with_a_with_block():
    with used() as session:
        session.run(None, {"x0": X})
    assert not still_there(*PARTS)


def many_shapes():
    session = opened(MODEL)
    for count in range(1, 50):
        session.run(None, {"x0": X[:count]})


def without_programs():
    options = ort_sdk.SessionOptions()
    options.add_session_config_entry("session.disable_programs", "1")
    session = opened(MODEL, options)
    for _ in range(RUNS):
        session.run(None, {"x0": X})


def failing_at_once():
    session = opened(ROWS)
    for _ in range(RUNS):
        attempted(session, {"x": X[:, :64], "index": np.array([99])})


def failing_in_a_program():
    session = opened(ROWS)
    for _ in range(RUNS):
        session.run(None, {"x": X[:, :64], "index": np.array([3])})
    attempted(session, {"x": X[:, :64], "index": np.array([99])})


def wrong_feeds():
    session = opened(ROWS)
    for feeds in ({}, {"q": X}, {"x": X, "index": X}, {"x": "text"}, {"x": X[0], "index": np.array([0])}):
        attempted(session, feeds)


def models_that_are_refused():
    for model in (b"no model", MODEL[: len(MODEL) // 2], MODEL.replace(b"MatMul", b"NatMul")):
        with pytest.raises(OrtSdkError):
            opened(model)


def stopped():
    session, options = opened(MODEL), ort_sdk.RunOptions()
    for number in range(RUNS):
        options.terminate = number in {0, RUNS - 1}
        if options.terminate:
            attempted(session, {"x0": X}, options)
        else:
            session.run(None, {"x0": X}, options)


def bound():
    session = opened(MODEL)
    binding = session.io_binding()
    binding.bind_cpu_input("x0", X)
    binding.bind_output("x2")
    for _ in range(RUNS):
        session.run_with_iobinding(binding)
    binding.bind_ortvalue_output("x2", ort_sdk.OrtValue.ortvalue_from_numpy(np.empty_like(X)))
    for _ in range(RUNS):
        session.run_with_iobinding(binding)
    binding.bind_cpu_input("x0", X[:, :3])
    with pytest.raises(OrtSdkError):
        session.run_with_iobinding(binding)


def on_ort_values():
    session = opened(MODEL)
    for _ in range(RUNS):
        session.run_with_ort_values(None, {"x0": ort_sdk.OrtValue.ortvalue_from_numpy(X)})


def feeding_defaults():
    session = opened(with_defaults(MODEL))
    for feeds in ({"x0": X}, {"x0": X, "w0": X[:1].T @ X[:1]}):
        for _ in range(RUNS):
            session.run(None, feeds)


def providers_set_anew():
    session = used()
    session.set_providers(["CPUExecutionProvider"])
    session.run(None, {"x0": X})


def asynchronous():
    session, done = opened(MODEL), threading.Event()
    for feeds in ({"x0": X}, {"x0": X[0]}):
        done.clear()
        session.run_async(None, feeds, lambda *_: done.set(), None)
        assert done.wait(60)
    session.close()


def made_and_dropped_in_threads():
    in_threads([used] * 3)


def run_in_threads():
    session = opened(MODEL)

    def run():
        for count in (3, 5):
            for _ in range(RUNS):
                session.run(None, {"x0": X[:count]})

    in_threads([run] * 3)


def in_threads(actions):
    threads = [threading.Thread(target=action) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


USES = [
    *(dropped, closed, left_with_a_with_block, many_shapes, without_programs, failing_at_once, failing_in_a_program, wrong_feeds),
    *(models_that_are_refused, stopped, bound, on_ort_values, feeding_defaults, providers_set_anew, asynchronous),
    *(made_and_dropped_in_threads, run_in_threads),
]


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_nothing_is_left(use):
    def and_nothing_is_there():
        use()
        assert not still_there(*PARTS)

    assert_no_garbage(and_nothing_is_there, use.__name__)


def test_a_profiled_session(tmp_path):
    def profiled():
        options = ort_sdk.SessionOptions()
        options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
        session = opened(MODEL, options)
        for _ in range(RUNS):
            session.run(None, {"x0": X})
        session.end_profiling()
        for _ in range(RUNS):
            session.run(None, {"x0": X})

    assert_no_garbage(profiled, "a profiled session")


@pytest.mark.parametrize("suffix", ["onnx", "ort"])
def test_sessions_of_saved_models_and_kept_weights(tmp_path, suffix):
    path = tmp_path / f"optimized.{suffix}"

    def saved_and_opened():
        options = ort_sdk.SessionOptions()
        options.optimized_model_filepath = str(path)
        opened(MODEL, options)
        options = ort_sdk.SessionOptions()
        options.add_session_config_entry("session.prepack_cache_dir", str(tmp_path / "packed"))
        session = opened(path, options)
        for _ in range(RUNS):
            session.run(None, {"x0": X})

    assert_no_garbage(saved_and_opened, "sessions of a saved model")


def test_buffers_of_a_closed_session():
    session = opened(MODEL)
    session.close()
    assert not [value for value in vars(session).values() if value is MODEL]
