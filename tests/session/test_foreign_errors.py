"""Whatever a plugin, a kernel or the system raises leaves the public interface as an error of this package."""

import copy
import errno
import traceback

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk
from ort_sdk.api import EPFail, Fail, InvalidArgument, NoSuchFile, NotImplemented, OrtSdkError, OutOfMemory, RuntimeException
from ort_sdk.api.foreign_errors import ort_error
from ort_sdk.plugins import plugin_manager
from tests.session.failing_provider import NAME, FailingProvider, Observer, QuietFailingProvider

WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3) / 7
BIAS = np.arange(3, dtype=np.float32)
X = np.float32([[1, -2], [0.5, 3]])
EXPECTED = np.exp(X @ WEIGHT + BIAS)


class CustomError(Exception):
    """No builtin but Exception."""


ERRORS = [
    ValueError("lost"),
    MemoryError("lost"),
    OSError(errno.EIO, "lost"),
    RuntimeError("lost"),
    TypeError("lost"),
    KeyError("lost"),
    CustomError("lost"),
]


def failing_model(folder):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["s"]),
        helper.make_node("Exp", ["s"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", 2), ("y", 3))]
    bias = numpy_helper.from_array(BIAS, "b")
    onnx.external_data_helper.set_external_data(bias, "bias.bin", 0, BIAS.nbytes)
    bias.ClearField("raw_data")
    (folder / "bias.bin").write_bytes(BIAS.tobytes())
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [numpy_helper.from_array(WEIGHT, "w"), bias])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


@pytest.fixture
def register():
    manager, names = plugin_manager(), []

    def make(cls=FailingProvider):
        made = cls()
        manager.register(made)
        names.append(made.name)
        manager.register_plugin(Observer(made.fault))
        return made

    yield make
    for name in names:
        manager.unregister(name)
        manager.unregister_plugin("FailingObserver")


def use_everything(path, folder):
    """All that a program may do with a session on a device."""
    options = ort_sdk.SessionOptions()
    session = ort_sdk.InferenceSession(path, options, providers=[NAME])
    for _ in range(4):
        np.testing.assert_allclose(session.run(None, {"x": X})[0], EXPECTED, rtol=1e-6)
    value = ort_sdk.OrtValue.ortvalue_from_numpy(X, "failing")
    assert value.shape() == [2, 2]
    value.update_inplace(X)
    empty = ort_sdk.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32, "failing")
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_ortvalue_output("y", empty)
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(empty.numpy(), EXPECTED, rtol=1e-6)
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    profiled = ort_sdk.InferenceSession(path, options, providers=[NAME])
    profiled.run(None, {"x": X})
    profiled.end_profiling()


SITES = {
    **dict.fromkeys(
        ["create_execution_provider", "get_kernel_registry", "get_capability", "compile", "create_allocator"], EPFail
    ),
    **dict.fromkeys(["get_data_transfer", "get_external_data_loader", "prepack", "get_graph_transformers"], EPFail),
    **dict.fromkeys(["on_session_initialization_end", "on_run_start", "on_run_end", "on_stage_end", "on_node_run"], EPFail),
    **dict.fromkeys(["when", "packing_identity", "prepack of a kernel", "use_prepacked", "bind", "fuse_steps"], EPFail),
    **dict.fromkeys(["join_calls", "describe", "allocate", "can_copy", "copy to the host", "copy to the device"], EPFail),
    **dict.fromkeys(["copy_into", "can_load", "can_load_tensor", "load_tensor", "run_scope", "entering run_scope"], EPFail),
    "leaving run_scope": EPFail,
    "apply": Fail,
    **dict.fromkeys(["making the kernel", "compute", "compiled kernel", "bound call"], RuntimeException),
}
"""Where the provider raises → the least of what leaves."""

NAMED = {
    "prepack of a kernel": "input 1 of ai.onnx::MatMul was packed",
    "packing_identity": "input 1 of ai.onnx::MatMul was packed",
    "use_prepacked": "input 1 of ai.onnx::MatMul was packed",
    "when": "predicate",
    "copy to the host": "copied from failing",
    "copy to the device": "copied from cpu",
    "entering run_scope": "run_scope",
    "leaving run_scope": "run_scope",
    "allocate": "allocated FLOAT",
    "load_tensor": "loaded 1 external tensors",
    "bind": "bound MatMul node",
    "making the kernel": "making the kernel of ai.onnx::MatMul",
    "compute": "MatMul node",
    "bound call": "MatMul node",
    "compiled kernel": "node",
    "apply": "pass FailingPass",
}
"""How a site is named, where it is not by its own name."""
NAMELESS = {
    "apply": "FailingPass",
    "on_stage_end": "FailingObserver",
    "on_node_run": "FailingObserver",
    "making the kernel": "MatMul",
}
"""What names the culprit in place of the provider."""


def test_nothing_fails_by_itself(register, tmp_path):
    register()
    use_everything(failing_model(tmp_path), tmp_path)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("site", SITES)
def test_what_is_raised_anywhere_is_an_error_of_the_package(register, tmp_path, site, error):
    provider = register(QuietFailingProvider if "run_scope" in site else FailingProvider)
    path = failing_model(tmp_path)
    provider.fault.site, provider.fault.error = site, error
    with pytest.raises(OrtSdkError) as raised:
        use_everything(path, tmp_path)
    found = raised.value
    assert isinstance(found, OutOfMemory if isinstance(error, MemoryError) else SITES[site])
    assert isinstance(found, next(base for base in type(error).__mro__ if base.__module__ == "builtins"))
    causes = [found]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    assert causes[-1] is error
    message = "".join(traceback.format_exception_only(found))
    assert NAMED.get(site, site) in message
    assert NAMELESS.get(site, NAME) in message
    assert "lost" in message
    error.__traceback__ = None


def test_a_provider_without_devices_says_what_it_raised(register, tmp_path):
    provider = register()
    provider.fault.site, provider.fault.error = "get_supported_devices", OSError(errno.EIO, "lost")
    with pytest.raises(ort_sdk.api.ProviderUnavailableError, match="lost"):
        ort_sdk.InferenceSession(failing_model(tmp_path), providers=[NAME])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=["KeyboardInterrupt", "SystemExit"])
def test_ends_of_the_process_pass(register, tmp_path, error):
    provider = register()
    session = ort_sdk.InferenceSession(failing_model(tmp_path), providers=[NAME])
    provider.fault.site, provider.fault.error = "compute", error
    with pytest.raises(type(error)):
        session.run(None, {"x": X})


class Unreadable:
    def __array__(self, *_, **__):
        raise ZeroDivisionError("no contents")


def test_what_a_feed_raises(register, tmp_path):
    register()
    session = ort_sdk.InferenceSession(failing_model(tmp_path), providers=[NAME])
    with pytest.raises(OrtSdkError, match="no contents") as raised:
        session.run(None, {"x": Unreadable()})
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_wrong_arguments_of_python_stay_pythons(register, tmp_path):
    register()
    session = ort_sdk.InferenceSession(failing_model(tmp_path), providers=[NAME])
    for call in (session.run, lambda: session.get_inputs(1), ort_sdk.OrtValue.ortvalue_from_numpy):
        with pytest.raises(TypeError) as raised:
            call()
        assert not isinstance(raised.value, OrtSdkError)


def test_the_system_refuses_to_write_the_model(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    options = ort_sdk.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    with pytest.raises(OSError, match="No space left") as raised:
        ort_sdk.InferenceSession(failing_model(tmp_path), options, providers=["CPUExecutionProvider"])
    assert isinstance(raised.value, OrtSdkError)
    assert raised.value.errno == errno.ENOSPC


@pytest.mark.parametrize(
    ("error", "kinds"),
    [
        (ValueError("x"), (InvalidArgument,)),
        (OverflowError("x"), (InvalidArgument, OverflowError)),
        (FileNotFoundError(errno.ENOENT, "x", "file"), (NoSuchFile,)),
        (PermissionError(errno.EACCES, "x", "file"), (Fail, PermissionError)),
        (NotImplementedError("x"), (NotImplemented,)),
        (IndexError("x"), (Fail, IndexError)),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"), (InvalidArgument,)),
        (MemoryError(), (OutOfMemory, RuntimeException)),
        (StopIteration("x"), (Fail,)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_errors_of_the_host_are_of_both_kinds(error, kinds):
    made = ort_error(error)
    assert all(isinstance(made, kind) for kind in kinds)
    assert type(error).__name__ in made.text
    copied = copy.copy(made)
    assert (type(copied), copied.text) == (kinds[0], made.text)
    if isinstance(error, OSError):
        assert (made.errno, made.filename) == (error.errno, "file")
