"""What goes wrong in the middle: each is a clear error, and other sessions go on."""

import threading

import numpy as np
import pyopencl as cl
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort
from ort_sdk.api import DeviceReset, InvalidArgument, OutOfMemory, RuntimeException

pytestmark = pytest.mark.opencl

X = np.linspace(-1, 1, 12, dtype=np.float32)


def _session(providers, nodes=None, inputs=()):
    nodes = nodes or [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Add", ["e", "x"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x, *inputs], [y])
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
    from ort_sdk_opencl.device_queue import DeviceQueue

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


def test_an_index_out_of_bounds_is_told_to_the_run_that_has_it(providers):
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
