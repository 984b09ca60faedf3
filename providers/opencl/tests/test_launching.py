"""Launches: programs as one joined call, with arguments set beforehand; threads and sessions share a device."""

import threading

import numpy as np
import pyopencl as cl
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort
from ort_sdk.api import TensorElementType
from ort_sdk.device import DeviceContext, KernelSource, Launch

pytestmark = pytest.mark.opencl

STEP = """
KERNEL WORKGROUP(8, 1, 1) void next_step(GLOBAL(const f32) x, GLOBAL(f32) y, f32 add) { y[LANE(0)] = 2.0f * x[LANE(0)] + add; }
"""


def _layers(depth, size):
    """A model of products, each followed by a softmax, which no kernel computes with its neighbours."""
    rng = np.random.default_rng(depth)
    nodes, weights, value = [], [], "x"
    for layer in range(depth):
        weight = (rng.standard_normal((size, size)) / size**0.5).astype(np.float32)
        weights.append(helper.make_tensor(f"w{layer}", TensorProto.FLOAT, weight.shape, weight.tobytes(), raw=True))
        nodes.append(helper.make_node("MatMul", [value, f"w{layer}"], [f"m{layer}"]))
        value = "y" if layer == depth - 1 else f"s{layer}"
        nodes.append(helper.make_node("Softmax", [f"m{layer}"], [value]))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def test_a_program_is_one_call_that_sets_no_fixed_argument(providers, monkeypatch):
    from ort_sdk_opencl.launching import bound_calls

    session = ort.InferenceSession(_layers(6, 16), providers=providers)
    x = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)
    wanted = session.run(None, {"x": x})[0]
    for _ in range(3):
        session.run(None, {"x": x})
    calls = []
    for kind in (bound_calls.OpenClCall, bound_calls.OpenClCopy, bound_calls.OpenClSequence):

        def counted(self, original=kind.__call__):
            calls.append(self)
            original(self)

        monkeypatch.setattr(kind, "__call__", counted)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-6)
    (call,) = calls
    upload, kernels, download = call.parts
    assert isinstance(upload, bound_calls.OpenClCopy)
    assert isinstance(download, bound_calls.OpenClCopy)
    assert len(kernels.rows) >= 12
    assert not kernels.changes


def test_bound_calls_keep_their_memory(context):
    launcher = context.launcher
    x, y, z = (context.new((8,), TensorElementType.FLOAT) for _ in range(3))
    launcher.upload(np.arange(8, dtype=np.float32), x.memory)
    from ort_sdk.device import Scalar

    kernel = KernelSource("next_step", STEP)
    launches = [
        Launch(kernel, (1,), (8,), (x.memory, y.memory, Scalar("f32", 1.0)), (1,)),
        Launch(kernel, (1,), (8,), (y.memory, z.memory, Scalar("f32", -3.0)), (1,)),
    ]
    from ort_sdk_opencl.launching.bound_calls import joined

    ((count, call),) = joined([launcher.bind([each], {}, []) for each in launches])
    assert count == 2
    wanted = 2 * (2 * np.arange(8) + 1) - 3
    del launches, x, y
    other = [context.new((8,), TensorElementType.FLOAT) for _ in range(64)]
    for each in other:
        launcher.upload(np.full(8, 7, np.float32), each.memory)
    for _ in range(3):
        call()
        launcher.finish()
        np.testing.assert_array_equal(context.download(z), wanted)


def test_long_calls_are_flushed_on_the_way(context, monkeypatch):
    from ort_sdk_opencl.launching.bound_calls import FLUSHED_ROWS, OpenClCall

    from ort_sdk.device import Scalar

    launcher = context.launcher
    x = context.upload(np.zeros(8, np.float32), TensorElementType.FLOAT)
    launch = Launch(KernelSource("next_step", STEP), (1,), (8,), (x.memory, x.memory, Scalar("f32", 0.0)), (1,))
    call = launcher.bind([launch] * (2 * FLUSHED_ROWS + 5), {}, [])
    flushes = []

    class Queue:
        queue = type("", (), {"flush": lambda self: flushes.append(1)})()
        queueing, note = launcher.queue.queueing, launcher.queue.note

    monkeypatch.setattr(cl, "enqueue_nd_range_kernel", lambda *_arguments: None)
    OpenClCall(Queue, call.rows, [], [], [])()
    assert len(flushes) == 3


@pytest.mark.parametrize("depth", [3, 20])
def test_threads_with_sessions_of_their_own_share_a_device(providers, depth):
    """Calls of several programs use the same workspace, one after the other."""
    sessions = [ort.InferenceSession(_layers(depth + number, 32), providers=providers) for number in range(3)]
    feeds = [np.random.default_rng(seed).standard_normal((4, 32)).astype(np.float32) for seed in range(3)]
    wanted = [session.run(None, {"x": x})[0] for session, x in zip(sessions, feeds, strict=True)]
    wrong = []

    def work(position):
        for _ in range(40):
            got = sessions[position].run(None, {"x": feeds[position]})[0]
            wrong.extend([position] if not np.allclose(got, wanted[position], rtol=1e-5) else [])

    threads = [threading.Thread(target=work, args=(position,)) for position in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_threads_launch_at_once(context):
    from ort_sdk.device.namespace.device_namespace import DeviceNamespace

    xp = DeviceNamespace(DeviceContext(context.launcher))
    wrong = []

    def work(seed):
        values = np.random.default_rng(seed).standard_normal((7, 5 + seed)).astype(np.float32)
        for _ in range(25):
            x = xp.from_host(values)
            got = xp.to_host(xp.module.sum(x * 2.0 + 1.0, axis=1))
            wrong.extend([seed] if not np.allclose(got, (values * 2 + 1).sum(axis=1), rtol=1e-4, atol=1e-4) else [])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_thread_waits_for_its_own_work_only(context, monkeypatch):
    """A run's end is an event of its own, and not the end of all that any session has queued."""
    from ort_sdk_opencl.queueing.device_queue import DeviceQueue

    def refuse(self):
        raise AssertionError("waited for all commands of the device")

    monkeypatch.setattr(DeviceQueue, "settle", refuse)
    waited = []

    class Event:
        def wait(self):
            waited.append(threading.get_ident())

    queue = context.launcher.queue
    queue.finish()
    other = threading.Thread(target=lambda: queue.note(Event()))
    other.start()
    other.join()
    queue.finish()
    assert not waited
    queue.note(Event())
    queue.finish()
    queue.finish()
    assert waited == [threading.get_ident()]
