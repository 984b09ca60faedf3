"""Runs that end before the device's work: what waits, what is there then, and where errors are raised."""

import contextlib
import json
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyopencl as cl
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort
from ort_sdk.api import InvalidArgument, TensorElementType
from ort_sdk.device import DeviceArray, KernelSource, Launch

pytestmark = pytest.mark.opencl

SECONDS = 60.0
"""After which a closed gate opens, so that a test that waits for it fails and does not hang."""
X = np.linspace(-1, 1, 1200, dtype=np.float32).reshape(3, 400)
DEVICE = "opencl"


@pytest.fixture
def context(index):
    """The context of the sessions' device, with nothing queued."""
    from ort_sdk_opencl.device import device_context

    context = device_context(index)
    context.launcher.queue.settle()
    return context


@pytest.fixture
def waits(monkeypatch):
    """The ends of runs that somebody waits for, and whether the device had reached them."""
    from ort_sdk_opencl.queueing.runs import OpenClEvent

    counted = []
    reached = OpenClEvent.reached

    def counting(self):
        counted.append((self, self.is_reached()))
        return reached(self)

    monkeypatch.setattr(OpenClEvent, "reached", counting)
    return counted


@contextlib.contextmanager
def closed_gate(context):
    """Inside, the device does nothing of what is queued, until the gate that this gives is opened."""
    queue = context.launcher.queue
    gate = cl.UserEvent(queue.context)
    cl.enqueue_barrier(queue.queue, wait_for=[gate])
    is_open = threading.Event()

    def open_gate():
        if not is_open.is_set():
            is_open.set()
            gate.set_status(cl.command_execution_status.COMPLETE)

    timer = threading.Timer(SECONDS, open_gate)
    timer.start()
    try:
        yield open_gate
        assert timer.is_alive(), "something waited for the device"
    finally:
        timer.cancel()
        open_gate()


def model(nodes=None, inputs=("x",), outputs=("y",), indices=()):
    nodes = nodes or [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Softmax", ["e"], ["y"])]
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in inputs]
    given += [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in indices]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "g", given, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def wanted(x):
    e = np.exp(np.exp(x) - np.exp(x).max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


GATHER = model([helper.make_node("Gather", ["x", "i"], ["g"]), helper.make_node("Softmax", ["g"], ["y"])], indices=("i",))
GOOD, BAD = np.array([0, -1, 2]), np.array([0, 99, 2])


def session_of(providers, made=None, options=None):
    """A session that does not make itself anew while it runs, so that its runs are those of one provider object."""
    options = options or ort.SessionOptions()
    options.add_session_config_entry("session.compilation", "never")
    return ort.InferenceSession(model() if made is None else made, options, providers=providers)


def device_value(array, index):
    return ort.OrtValue.ortvalue_from_numpy(array, DEVICE, index)


def bound(session, index, on_device=(), on_host=(), outputs=("y",)):
    """A binding of values on the device and on the host, whose outputs are made on the device."""
    binding = session.io_binding()
    for name, array in on_device:
        binding.bind_ortvalue_input(name, device_value(array, index))
    for name, array in on_host:
        binding.bind_cpu_input(name, array)
    for name in outputs:
        binding.bind_output(name, DEVICE, index)
    return binding


def run(session, binding):
    session.run_with_iobinding(binding)
    return binding.get_outputs()


def replayed(session, binding):
    for _ in range(4):
        run(session, binding)[0].numpy()
    assert session.program_report()
    return binding


def test_a_run_on_bound_values_waits_for_nothing(providers, index, context, waits):
    session = session_of(providers)
    binding = replayed(session, bound(session, index, [("x", X)]))
    waits.clear()
    with closed_gate(context) as open_gate:
        values = [run(session, binding)[0] for _ in range(3)]
        assert all(was_done for _, was_done in waits)
        assert not values[0].ready.event.is_done
        open_gate()
        for value in values:
            np.testing.assert_allclose(value.numpy(), wanted(X), rtol=1e-5)
    assert all(value.ready is None for value in values)


def test_also_step_by_step(providers, index, context, waits):
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_programs", "1")
    session = session_of(providers, options=options)
    binding = bound(session, index, [("x", X)])
    run(session, binding)[0].numpy()
    waits.clear()
    with closed_gate(context) as open_gate:
        (value,) = run(session, binding)
        assert all(was_done for _, was_done in waits)
        open_gate()
        np.testing.assert_allclose(value.numpy(), wanted(X), rtol=1e-5)


def test_results_for_the_host_take_one_wait_and_no_blocking_copy(providers, context, waits, monkeypatch):
    nodes = [helper.make_node("Exp", ["x"], ["y0"]), *(helper.make_node("Softmax", [f"y{i}"], [f"y{i + 1}"]) for i in range(3))]
    session = session_of(providers, model(nodes, outputs=["y0", "y1", "y2", "y3"]))
    expected = [each.copy() for each in session.run(None, {"x": X})]
    for _ in range(3):
        session.run(None, {"x": X})
    copy, blocking = cl.enqueue_copy, []

    def noting(*arguments, **keywords):
        blocking.append(keywords.get("is_blocking", True))
        return copy(*arguments, **keywords)

    monkeypatch.setattr(cl, "enqueue_copy", noting)
    waits.clear()
    for got, right in zip(session.run(None, {"x": X}), expected, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-6)
    assert len(waits) == 1
    assert len(blocking) >= 5
    assert not any(blocking)


def test_small_feeds_may_change_as_soon_as_a_run_returns(providers, index, context):
    session = session_of(providers)
    feed = X.copy()
    binding = replayed(session, bound(session, index, on_host=[("x", feed)]))
    with closed_gate(context) as open_gate:
        values, fed = [], []
        for factor in (1, -1, 0.5):
            feed[...] = X * np.float32(factor)
            fed.append(feed.copy())
            values.append(run(session, binding)[0])
        feed[...] = np.nan
        open_gate()
        for value, x in zip(values, fed, strict=True):
            np.testing.assert_allclose(value.numpy(), wanted(x), rtol=1e-5)


def test_large_feeds_may_change_when_a_run_returns(providers, index, context):
    session = session_of(providers)
    large = np.tile(X, (200, 1))
    feed = large.copy()
    binding = replayed(session, bound(session, index, on_host=[("x", feed)]))
    for factor in (1, -1, 0.5):
        feed[...] = large * np.float32(factor)
        (value,) = run(session, binding)
        feed[...] = np.nan
        np.testing.assert_allclose(value.numpy(), wanted(large * np.float32(factor)), rtol=1e-5)


def test_more_small_feeds_than_the_ring_has_room_for(context):
    from ort_sdk_opencl.queueing.staging import MOST_STAGED_BYTES, RING_BYTES

    rng = np.random.default_rng(0)
    sizes = rng.integers(1, MOST_STAGED_BYTES // 4, 4 * RING_BYTES // MOST_STAGED_BYTES)
    feeds = [rng.standard_normal(size, np.float32) for size in sizes]
    with context.launcher.run():
        arrays = []
        for feed in feeds:
            source = feed.copy()
            arrays.append(context.upload(source, TensorElementType.FLOAT))
            source[...] = np.nan
        for array, feed in zip(arrays, feeds, strict=True):
            np.testing.assert_array_equal(context.download(array), feed)


STEP = """
KERNEL WORKGROUP(8, 1, 1) void plus_one(GLOBAL(const f32) x, GLOBAL(f32) y) { y[LANE(0)] = x[LANE(0)] + 1.0f; }
"""


@pytest.mark.parametrize("elements", [8, 1 << 16], ids=["of a slab", "of its own"])
def test_memory_that_python_freed_is_used_again_in_order(context, elements):
    """Another thread gets it while a queued kernel has yet to read it."""
    launcher = context.launcher
    old, new = (np.arange(elements, dtype=np.float32) * factor for factor in (1, -3))
    x = context.upload(old, TensorElementType.FLOAT)
    y = context.new((8,), TensorElementType.FLOAT)
    launcher.finish()
    with closed_gate(context) as open_gate:
        with launcher.run():
            launcher.launch(Launch(KernelSource("plus_one", STEP), (1,), (8,), (x.memory, y.memory), (1,)))
        block, found = x.memory.block, []
        del x

        def other():
            with launcher.run():
                memory = launcher.allocate(new.nbytes)
                # what is small enough is queued, and the rest would wait for the gate
                launcher.upload(new[: 1 << 14], memory)
                found.append(memory)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert found[0].block is block
        open_gate()
    np.testing.assert_array_equal(context.download(y), old[:8] + 1)
    again = np.empty(min(elements, 1 << 14), np.float32)
    launcher.download(found[0], again)
    np.testing.assert_array_equal(again, new[: again.size])


def test_a_session_may_end_before_its_work(providers, index, context):
    session = session_of(providers)
    binding = replayed(session, bound(session, index, [("x", X)]))
    with closed_gate(context) as open_gate:
        (value,) = run(session, binding)
        session.close()
        del session, binding
        open_gate()
        np.testing.assert_allclose(value.numpy(), wanted(X), rtol=1e-5)


@pytest.mark.parametrize("runs", [0, 4], ids=["step by step", "in a program"])
def test_an_error_of_a_run_is_raised_where_its_result_is_read(providers, index, context, runs):
    session = session_of(providers, GATHER)
    for _ in range(runs):
        run(session, bound(session, index, [("x", X), ("i", GOOD)]))[0].numpy()
    bindings = [bound(session, index, [("x", X), ("i", indices)]) for indices in (BAD, GOOD)]
    with closed_gate(context) as open_gate:
        (bad,), (good,) = (run(session, binding) for binding in bindings)
        open_gate()
        for _ in range(2):
            with pytest.raises(InvalidArgument, match=r"kernels on '.*picks elements.* is out of bounds") as raised:
                bad.numpy()
            assert any("OpenCLExecutionProvider" in note for note in raised.value.__notes__)
        softmax = np.exp(X[GOOD] - X[GOOD].max(-1, keepdims=True))
        np.testing.assert_allclose(good.numpy(), softmax / softmax.sum(-1, keepdims=True), rtol=1e-5)


def test_an_error_that_nobody_read_is_not_lost(providers, index):
    session = session_of(providers, GATHER)
    binding = bound(session, index, [("x", X), ("i", BAD)])
    run(session, binding)
    (value,) = run(session, bound(session, index, [("x", X), ("i", GOOD)]))
    binding.clear_binding_outputs()
    value.wait()
    with pytest.raises(InvalidArgument, match="out of bounds"):
        value.synchronize()
    value.synchronize()
    value.numpy()


def test_what_is_made_of_a_bad_result_is_no_better(providers, index):
    session, following = session_of(providers, GATHER), session_of(providers)
    (bad,) = run(session, bound(session, index, [("x", X), ("i", BAD)]))
    binding = following.io_binding()
    binding.bind_ortvalue_input("x", bad)
    binding.bind_output("y", DEVICE, index)
    (value,) = run(following, binding)
    with pytest.raises(InvalidArgument, match="out of bounds"):
        value.numpy()
    value.numpy()


def test_an_error_is_raised_in_the_thread_whose_run_it_is(providers, index):
    session, other = session_of(providers, GATHER), session_of(providers, GATHER)
    wrong, told = [], []

    def work(own, indices, is_bad):
        for _ in range(40):
            (value,) = run(own, bound(own, index, [("x", X), ("i", indices)]))
            try:
                value.numpy()
                wrong.extend(["no error"] if is_bad else [])
            except InvalidArgument:
                (told if is_bad else wrong).append("error")

    # the second and third thread share a session
    threads = [
        threading.Thread(target=work, args=arguments)
        for arguments in ((session, BAD, True), (other, BAD, True), (other, GOOD, False), (session, GOOD, False))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(told) == 80


def test_threads_with_sessions_of_their_own_follow_each_other(providers, index):
    """Results of one session's runs, which another one reads while both go on."""
    first, second = session_of(providers), session_of(providers)
    wrong = []

    def work(seed):
        x = np.random.default_rng(seed).standard_normal((4, 50 + seed)).astype(np.float32)
        right = wanted(wanted(x))
        for _ in range(25):
            (middle,) = run(first, bound(first, index, [("x", x)]))
            binding = second.io_binding()
            binding.bind_ortvalue_input("x", middle)
            binding.bind_output("y", DEVICE, index)
            del middle
            got = run(second, binding)[0].numpy()
            wrong.extend([] if np.allclose(got, right, rtol=1e-4) else [seed])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_profiles_have_the_devices_times(providers, tmp_path):
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    product = helper.make_node("MatMul", ["x", "x"], ["m"], name="product")
    nodes = [product, helper.make_node("Softmax", ["m"], ["y"], name="rows")]
    session = session_of(providers, model(nodes), options)
    x = np.random.default_rng(0).standard_normal((700, 700)).astype(np.float32)
    for _ in range(3):
        session.run(None, {"x": x})
    events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    runs = [event for event in events if event["name"] == "model_run"]
    products = [event for event in events if event["name"].startswith("product")]
    rows = [event for event in events if event["name"].startswith("rows")]
    assert len(products) == len(rows) == len(runs) == 3
    for product, softmax, whole in zip(products, rows, runs, strict=True):
        # 0.7 GFLOP take longer than queueing them
        assert product["dur"] > 300
        assert product["ts"] + product["dur"] <= softmax["ts"] + 1
        assert product["dur"] + softmax["dur"] <= whole["dur"]
    # the queue that takes times computes as the other one does
    plain = session_of(providers, model(nodes))
    for _ in range(4):
        np.testing.assert_allclose(plain.run(None, {"x": x})[0], session.run(None, {"x": x})[0], rtol=1e-5)


def test_there_are_no_addresses(providers, index):
    session = session_of(providers)
    binding = session.io_binding()
    with pytest.raises(ort.api.NotImplemented, match=r"OpenCL is buffers, which have no addresses.*bind the array"):
        binding.bind_input("x", DEVICE, index, np.float32, (3, 400), 1 << 20)
    value = device_value(X, index)
    with pytest.raises(ort.api.NotImplemented, match=r"numpy\(\) copies one to the host"):
        value.to_dlpack()
    with pytest.raises(ort.api.Fail, match="do not have an address"):
        value.data_ptr()
    np.testing.assert_array_equal(value.numpy(), X)


def test_a_value_that_is_brought_to_the_host_and_taken_back_in_one_call(context):
    from ort_sdk_opencl.launching import OpenClCopy, joined

    x = np.arange(64, dtype=np.float32)
    first, second = (DeviceArray(context, context.upload(each, TensorElementType.FLOAT)) for each in (x, np.full_like(x, np.nan)))
    on_host, queue = np.zeros_like(x), context.launcher.queue
    slots = [SimpleNamespace(array=array) for array in (first, on_host, second)]
    ((count, call),) = joined([OpenClCopy(queue, slots[0], slots[1]), OpenClCopy(queue, slots[1], slots[2])])
    assert count == 2
    call()
    np.testing.assert_array_equal(on_host, x)
    np.testing.assert_array_equal(context.download(second.node), x)
