"""What goes wrong in the middle: each is a clear error, and other sessions go on."""

import threading

import numpy as np
import pyopencl as cl
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk as ort
from ort_sdk.api import DeviceReset, InvalidArgument, OutOfMemory, RuntimeException
from ort_sdk.device.recently_used import RecentlyUsed

pytestmark = pytest.mark.opencl

X = np.linspace(-1, 1, 12, dtype=np.float32)


def _session(providers, nodes=None, inputs=(), initializers=()):
    nodes = nodes or [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Add", ["e", "x"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x, *inputs], [y], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return ort.InferenceSession(model.SerializeToString(), providers=providers)


def _computes(session):
    np.testing.assert_allclose(session.run(None, {"x": X})[0], np.exp(X) + X, rtol=1e-6)


def _raising(code):
    """What stands for a function of the driver that fails."""

    def fail(*_arguments, **_keywords):
        raise cl.RuntimeError(cl._cl._ErrorRecord(msg="planted", code=code, routine="clEnqueueNDRangeKernel"))

    return fail


@pytest.mark.parametrize("runs", [0, 1, 4], ids=["in the first run", "step by step", "in a program"])
@pytest.mark.parametrize("code", ["OUT_OF_RESOURCES", "INVALID_COMMAND_QUEUE", -9999])
def test_a_lost_device(providers, index, monkeypatch, runs, code):
    from ort_sdk_opencl.device import device_context
    from ort_sdk_opencl.queueing.device_queue import DeviceQueue

    session = _session(providers)
    for _ in range(runs):
        _computes(session)
    number = getattr(cl.status_code, code) if isinstance(code, str) else code
    with monkeypatch.context() as patch:
        patch.setattr(cl, "enqueue_nd_range_kernel", _raising(number))
        patch.setattr(DeviceQueue, "_answers", lambda self: False)
        with pytest.raises(DeviceReset, match=r"'.* was lost.*lose all sessions on it, and make new ones"):
            session.run(None, {"x": X})
    lost = session
    with pytest.raises(DeviceReset, match="was lost: close all sessions on it, and make new ones"):
        lost.run(None, {"x": X})
    _computes(_session(["CPUExecutionProvider"]))
    lost.close()
    assert not device_context(index).launcher.queue.is_lost
    session = _session(providers)
    for _ in range(4):
        _computes(session)


@pytest.mark.parametrize("runs", [1, 4])
def test_no_room_when_a_kernel_is_queued(providers, monkeypatch, runs):
    session = _session(providers)
    for _ in range(runs):
        _computes(session)
    with monkeypatch.context() as patch:
        patch.setattr(cl, "enqueue_nd_range_kernel", _raising(cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE))
        with pytest.raises(OutOfMemory, match="planted"):
            session.run(None, {"x": X})
    for _ in range(3):
        _computes(session)


@pytest.mark.parametrize("code", ["INVALID_WORK_GROUP_SIZE", "OUT_OF_RESOURCES"])
def test_an_error_of_the_driver_after_which_the_device_works(providers, monkeypatch, code):
    session = _session(providers)
    _computes(session)
    with monkeypatch.context() as patch:
        patch.setattr(cl, "enqueue_nd_range_kernel", _raising(getattr(cl.status_code, code)))
        with pytest.raises(RuntimeException, match="planted"):
            session.run(None, {"x": X})
    _computes(session)


def test_an_index_out_of_bounds_is_raised_in_its_own_run(providers):
    index = helper.make_tensor_value_info("i", TensorProto.INT64, ["k"])
    nodes = [helper.make_node("Gather", ["x", "i"], ["g"]), helper.make_node("Neg", ["g"], ["y"])]
    session, other = _session(providers, nodes, [index]), _session(providers, nodes, [index])
    good, bad = np.array([0, -1, 5]), np.array([0, 99, 5])
    wrong = []

    def work():
        for _ in range(30):
            got = other.run(None, {"x": X, "i": good})[0]
            wrong.extend([1] if not np.array_equal(got, -X[good]) else [])

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(10):
        with pytest.raises(InvalidArgument, match="out of bounds"):
            session.run(None, {"x": X, "i": bad})
        np.testing.assert_array_equal(session.run(None, {"x": X, "i": good})[0], -X[good])
    thread.join()
    assert not wrong


def _failing_from(number, code, original):
    """What stands for a function of the driver that works so many times and then fails."""
    left, fail = [number], _raising(code)

    def call(*arguments, **keywords):
        left[0] -= 1
        return original(*arguments, **keywords) if left[0] >= 0 else fail()

    return call


LAYERS = [
    helper.make_node("Softmax", ["x"], ["a"]),
    helper.make_node("CumSum", ["a", "axis"], ["b"]),
    helper.make_node("Softmax", ["b"], ["y"]),
]
"""Kernels of which none computes another's."""


def _layers(providers):
    session = _session(providers, LAYERS, initializers=[numpy_helper.from_array(np.array(0), "axis")])
    for _ in range(4):
        _layers_compute(session)
    return session


def _layers_compute(session):
    def softmax(x):
        return np.exp(x) / np.exp(x).sum()

    np.testing.assert_allclose(session.run(None, {"x": X})[0], softmax(np.cumsum(softmax(X))), rtol=1e-5)


@pytest.mark.parametrize("launched", [0, 1, 2])
def test_a_device_that_is_lost_in_the_middle_of_a_replayed_program(providers, monkeypatch, launched):
    session = _layers(providers)
    with monkeypatch.context() as patch:
        failing = _failing_from(launched, cl.status_code.INVALID_COMMAND_QUEUE, cl.enqueue_nd_range_kernel)
        patch.setattr(cl, "enqueue_nd_range_kernel", failing)
        with pytest.raises(DeviceReset, match=r"queueing .*'.* was lost.*lose all sessions on it, and make new ones"):
            session.run(None, {"x": X})
    with pytest.raises(DeviceReset, match="was lost"):
        session.run(None, {"x": X})
    _layers_compute(_layers(providers))


@pytest.mark.parametrize("runs", [1, 4], ids=["step by step", "in a program"])
def test_a_device_that_is_lost_while_it_is_waited_for(providers, monkeypatch, runs):
    session = _session(providers)
    for _ in range(runs):
        _computes(session)
    with monkeypatch.context() as patch:
        patch.setattr(cl, "enqueue_copy", _with_lost_events(cl.enqueue_copy, is_blocking=runs == 1))
        with pytest.raises(DeviceReset, match=r"planted.*lose all sessions on it, and make new ones"):
            session.run(None, {"x": X})
    with pytest.raises(DeviceReset, match="was lost"):
        session.run(None, {"x": X})
    _computes(_session(providers))


def _with_lost_events(original, *, is_blocking):
    """A copy from the device that fails as it is waited for: at once if it is blocking, else by its event."""
    fail = _raising(cl.status_code.EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)

    class Lost:
        wait = staticmethod(fail)

    def copy(queue, target, source, **keywords):
        event = original(queue, target, source, **keywords)
        if not isinstance(target, np.ndarray):
            return event
        return fail() if is_blocking else Lost()

    return copy


def test_a_device_that_is_lost_while_another_session_runs(providers, monkeypatch):
    session, other = _layers(providers), _layers(providers)
    found, started = [], threading.Event()
    original, victim = cl.enqueue_nd_range_kernel, threading.get_ident()

    def work():
        try:
            while True:
                _layers_compute(other)
                started.set()
        except DeviceReset as error:
            found.append(error)
        finally:
            started.set()

    def fail_here(*arguments, **keywords):
        if threading.get_ident() == victim:
            _raising(cl.status_code.INVALID_COMMAND_QUEUE)()
        return original(*arguments, **keywords)

    thread = threading.Thread(target=work)
    thread.start()
    assert started.wait(60)
    with monkeypatch.context() as patch:
        patch.setattr(cl, "enqueue_nd_range_kernel", fail_here)
        with pytest.raises(DeviceReset):
            session.run(None, {"x": X})
    thread.join(60)
    assert not thread.is_alive()
    assert "make new ones" in str(found[0])
    _layers_compute(_layers(providers))


@pytest.mark.parametrize("runs", [0, 1], ids=["step by step", "as a program is made"])
@pytest.mark.parametrize("code", ["BUILD_PROGRAM_FAILURE", "OUT_OF_HOST_MEMORY", "COMPILER_NOT_AVAILABLE"])
def test_a_driver_that_cannot_compile(providers, context, monkeypatch, runs, code):
    from ort_sdk_opencl.launching import programs

    error = OutOfMemory if code == "OUT_OF_HOST_MEMORY" else RuntimeException
    session = _session(providers)
    for _ in range(runs):
        _computes(session)
    with monkeypatch.context() as patch:
        patch.setattr(context.launcher.programs, "_programs", RecentlyUsed(8))
        patch.setattr(context.launcher, "_kernels", RecentlyUsed(8))
        patch.setattr(context.launcher.programs, "_loaded", lambda *_arguments: None)
        patch.setattr(programs, "_built_by_driver", _raising(getattr(cl.status_code, code)))
        with pytest.raises(error, match=r"compiling kernel 'elementwise'.*planted"):
            session.run(None, {"x": X})
    for _ in range(4):
        _computes(session)


def test_contents_out_of_range_in_a_program_that_is_replayed(providers):
    index = helper.make_tensor_value_info("i", TensorProto.INT64, ["k"])
    nodes = [
        helper.make_node("Softmax", ["x"], ["s"]),
        helper.make_node("GatherElements", ["s", "i"], ["g"]),
        helper.make_node("ScatterElements", ["s", "i", "g"], ["u"]),
        helper.make_node("Softmax", ["u"], ["y"]),
    ]
    session, plain = _session(providers, nodes, [index]), _session(["CPUExecutionProvider"], nodes, [index])
    good = np.array([0, -1, 5])
    wanted = plain.run(None, {"x": X, "i": good})[0]
    for run in range(8):
        np.testing.assert_allclose(session.run(None, {"x": X, "i": good})[0], wanted, rtol=1e-5)
        if run >= 3:
            with pytest.raises(InvalidArgument, match=r"GatherElements.*; and .*ScatterElements.*out of bounds"):
                session.run(None, {"x": X, "i": np.array([0, 12, 5])})


def test_what_a_failed_run_has_reported_is_not_told_to_the_next(providers, monkeypatch):
    index = helper.make_tensor_value_info("i", TensorProto.INT64, ["k"])
    session = _session(providers, [helper.make_node("Gather", ["x", "i"], ["y"])], [index])
    good, bad = {"x": X, "i": np.array([0, -1, 5])}, {"x": X, "i": np.array([0, 99, 5])}
    for _ in range(4):
        session.run(None, good)
    with monkeypatch.context() as patch:
        patch.setattr(cl, "enqueue_copy", _with_failing_downloads(cl.enqueue_copy))
        with pytest.raises(RuntimeException, match="planted"):
            session.run(None, bad)
    np.testing.assert_array_equal(session.run(None, good)[0], X[good["i"]])


def _with_failing_downloads(original):
    """Copies of results fail, and the device works."""
    fail = _raising(cl.status_code.INVALID_OPERATION)

    def copy(queue, target, source, **keywords):
        if isinstance(target, np.ndarray) and target.nbytes > 4:
            fail()
        return original(queue, target, source, **keywords)

    return copy


def test_a_model_that_fits_step_by_step_fits_in_a_program(providers):
    """Where the arena of a program, or its workspace, has no room, its runs go on without."""
    (name, options), host = providers
    x = np.random.default_rng(0).standard_normal((512, 1024), np.float32)
    axis = [numpy_helper.from_array(np.array(0), "axis")]
    wanted = _session(["CPUExecutionProvider"], LAYERS, initializers=axis).run(None, {"x": x})[0]
    fits = []
    for mebibytes in range(2, 16):
        limited = [(name, {**options, "gpu_mem_limit": str(mebibytes << 20)}), host]
        session = _session(limited, LAYERS, initializers=axis)
        try:
            session.run(None, {"x": x})
        except OutOfMemory:
            fits.append(False)
            continue
        fits.append(True)
        for _ in range(4):
            np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-4)
        session.close()
    assert set(fits) == {False, True}
    assert fits == sorted(fits), "what fits in less fits in more"
