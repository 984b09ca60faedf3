"""Programs of a device share one block, laid out by lifetime: counted by a meter that knows nothing of the plan."""

import gc
import threading

import numpy as np
import pytest
from onnx import TensorProto, helper

from ort_sdk.api import MemoryUse
from ort_sdk.testing.collection import only_new_objects
from ort_sdk.testing.memory_meter import MemoryMeter
from ort_sdk.testing.null_provider import NULL_PROVIDER, NullProvider
from ort_sdk.testing.strict.allocator import StrictAllocator
from ort_sdk.testing.strict.provider import STRICT_PROVIDER, StrictProvider
from tests.run.device_chains import chain_model, model_of, registered, run_on_device, session_on

WIDTH = 1024
BYTES = 4 * WIDTH
NODES = 100


@pytest.fixture
def meter():
    return MemoryMeter("null:0")


@pytest.fixture
def null(meter):
    with registered(NullProvider(meter), "null") as provider:
        yield provider


@pytest.fixture(params=[False, True], ids=["waiting", "asynchronous"])
def strict(request):
    with registered(StrictProvider(is_asynchronous=request.param), "strict") as provider:
        yield provider


def strict_meter(provider):
    device = next(iter(provider.devices.values()))
    gc.collect()
    device.queue.synchronize()
    return device.meter


def x_of(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_a_chain_on_values_of_the_host_holds_two_activations_and_nothing_else(null, meter):
    session = session_on(chain_model(["Neg"] * NODES, [WIDTH]), NULL_PROVIDER)
    for _ in range(3):
        session.run(None, {"x": np.ones(WIDTH, np.float32)})
    (row,) = session.program_report()
    # The copies of the feed and of the result are steps, too.
    assert (row.bound_count, row.device_bytes) == (NODES + 2, 2 * BYTES)
    meter.reset_peaks()
    session.run(None, {"x": np.ones(WIDTH, np.float32)})
    assert (meter.peak_pieces, meter.peak_bytes) == (1, 2 * BYTES)


def test_a_chain_on_the_device_holds_two_activations_beside_feed_and_result(null, meter):
    session = session_on(chain_model(["Neg"] * NODES, [WIDTH]), NULL_PROVIDER)
    for _ in range(3):
        run_on_device(session, np.ones(WIDTH, np.float32))
    (row,) = session.program_report()
    assert (row.bound_count, row.device_bytes) == (NODES, 2 * BYTES)
    assert (meter.pieces, meter.nbytes) == (1, 2 * BYTES)
    meter.reset_peaks()
    run_on_device(session, np.ones(WIDTH, np.float32))
    assert (meter.peak_pieces, meter.peak_bytes) == (3, 4 * BYTES)


def test_feeds_and_results_that_are_copied_within_the_device_take_part_in_the_block(meter):
    with registered(NullProvider(meter, joins_calls=True), "null") as provider:
        session = session_on(chain_model(["Neg"] * NODES, [WIDTH]), NULL_PROVIDER)
        for _ in range(3):
            run_on_device(session, np.ones(WIDTH, np.float32))
        assert session.program_report()[0].device_bytes == 2 * BYTES
        meter.reset_peaks()
        provider.counts.reset()
        run_on_device(session, np.ones(WIDTH, np.float32))
        assert (provider.counts.joined_calls, provider.counts.device_copies) == (1, 2)
        # The caller's feed, the block, and the result.
        assert (meter.peak_pieces, meter.peak_bytes) == (3, 4 * BYTES)
        assert session.memory_report()[0].peak_bytes == meter.peak_bytes


@pytest.mark.parametrize(("on_device", "held"), [(False, 2), (True, 3)])
def test_recording_and_step_by_step_runs_hold_a_few_values(null, meter, on_device, held):
    """What a node reads and what it makes, and a feed that the caller has on the device."""

    def run(session):
        run_on_device(session, x) if on_device else session.run(None, {"x": x})

    model, x = chain_model(["Neg"] * NODES, [WIDTH]), np.ones(WIDTH, np.float32)
    stepwise = session_on(model, NULL_PROVIDER, disable_programs="1")
    for _ in range(3):
        meter.reset_peaks()
        run(stepwise)
        assert (meter.peak_pieces, meter.peak_bytes, meter.nbytes) == (held, held * BYTES, 0)
    session = session_on(model, NULL_PROVIDER)
    run(session)
    meter.reset_peaks()
    run(session)
    assert session.program_report()
    # When the block is there, so are feed and result that are on the device.
    assert meter.peak_bytes == (4 if on_device else 2) * BYTES


def test_results_are_those_of_runs_without_programs(strict):
    model = chain_model(["Neg", "Abs", "Sqrt", "Cos", "Neg", "Sin"] * 8, [5, 7], weight=True)
    session, stepwise = session_on(model, STRICT_PROVIDER), session_on(model, STRICT_PROVIDER, disable_programs="1")
    for seed in range(6):
        feeds = {"x": x_of(seed, 5, 7)}
        np.testing.assert_array_equal(session.run(None, feeds)[0], stepwise.run(None, feeds)[0])
    assert session.program_report()[0].device_bytes == 2 * 256
    assert not stepwise.program_report()


def test_values_that_live_longer_keep_their_memory(strict):
    """Each value is read by its successor and once more at the end, in reverse."""
    count = 12
    nodes = [helper.make_node("Neg", [f"v{index}"], [f"v{index + 1}"]) for index in range(count)]
    sums = [helper.make_node("Sub", [f"v{count - index}", f"s{index}"], [f"s{index + 1}"]) for index in range(count)]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [WIDTH]) for name in ("v0", "s0")]
    outputs = [helper.make_tensor_value_info(f"s{count}", TensorProto.FLOAT, [WIDTH])]
    session = session_on(model_of([*nodes, *sums], inputs, outputs), STRICT_PROVIDER)
    for seed in range(5):
        feeds = {"v0": x_of(seed, WIDTH), "s0": x_of(seed + 1, WIDTH)}
        wanted = feeds["s0"]
        for index in range(count):
            wanted = (feeds["v0"] if index % 2 == count % 2 else -feeds["v0"]) - wanted
        np.testing.assert_array_equal(session.run(None, feeds)[0], wanted)
    # All values but the first one of the chain, the other input and the first difference.
    assert session.program_report()[0].device_bytes == (count + 2) * BYTES


def test_programs_of_all_shapes_share_one_block(null, meter):
    session = session_on(chain_model(["Neg"] * 10, ["n"]), NULL_PROVIDER)
    for count in (WIDTH, WIDTH // 2, WIDTH // 4, WIDTH // 8):
        for _ in range(4):
            session.run(None, {"x": np.ones(count, np.float32)})
    assert len(session.program_report()) == 4
    # The largest feed; the null provider's kernels give one element for sizes that the model does not name.
    assert (meter.pieces, meter.nbytes) == (1, BYTES + 256)


@pytest.mark.parametrize("is_rising", [True, False])
def test_programs_of_growing_shapes_are_made_anew_in_a_larger_block(strict, is_rising):
    model = chain_model(["Neg", "Exp", "Neg", "Abs"], ["n"])
    session, stepwise = session_on(model, STRICT_PROVIDER), session_on(model, STRICT_PROVIDER, disable_programs="1")
    counts = [1000 * (index + 1) for index in range(8)]
    for count in counts if is_rising else counts[::-1]:
        for seed in range(3):
            feeds = {"x": x_of(seed, count)}
            np.testing.assert_array_equal(session.run(None, feeds)[0], stepwise.run(None, feeds)[0])
    for seed in range(3):
        for count in counts:
            feeds = {"x": x_of(seed, count)}
            np.testing.assert_array_equal(session.run(None, feeds)[0], stepwise.run(None, feeds)[0])
    meter = strict_meter(strict)
    assert len(session.program_report()) == len(counts)
    assert meter.pieces == 1
    most = 2 * 4 * max(counts)
    assert most <= meter.nbytes <= 1.5 * most + 1024
    (usage,) = session.memory_report()
    assert usage.total_bytes == meter.nbytes


def test_blocks_that_grow_where_they_are_keep_their_programs(strict, monkeypatch):
    allocate = StrictAllocator.allocate_block
    monkeypatch.setattr(StrictAllocator, "allocate_block", lambda self, nbytes: allocate(self, 10 * nbytes))
    monkeypatch.setattr(StrictAllocator, "grow_block", lambda self, block, nbytes: nbytes <= block.storage.nbytes)
    session = session_on(chain_model(["Neg"] * 4, ["n"]), STRICT_PROVIDER)
    for count in range(100, 800, 100):
        for seed in range(3):
            x = np.full(count, seed, np.float32)
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)
    assert len(session.program_report()) == 7
    assert strict_meter(strict).pieces == 1
    assert session.memory_report()[0].held_bytes[MemoryUse.ARENA] == 2 * 4 * 704


def test_runs_of_changing_shapes_are_flat(strict):
    session, rng, sizes = session_on(chain_model(["Neg"] * 4, [16, "n"]), STRICT_PROVIDER), np.random.default_rng(0), 50
    for run in range(2000):
        x = np.full((16, int(rng.integers(1, sizes))), run, np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)
        if run % 100 == 99:
            meter = strict_meter(strict)
            assert meter.pieces <= 1
            assert meter.nbytes <= 1.5 * 2 * 16 * 4 * sizes
    assert session.program_report()
    # Beside the block a run has three values at most, and the block it replaces.
    assert meter.peak_bytes <= (1.5 * 2 * 2 + 3) * 16 * 4 * sizes


@only_new_objects()
@pytest.mark.parametrize("name", [NULL_PROVIDER, STRICT_PROVIDER])
def test_sessions_leave_nothing(null, meter, strict, name):
    model, feeds = chain_model(["Neg"] * 4, [WIDTH], weight=True), {"x": np.ones(WIDTH, np.float32)}
    for _ in range(100 if name == NULL_PROVIDER else 20):
        session = session_on(model, name)
        for _ in range(3):
            session.run(None, feeds)
        assert session.program_report()[0].device_bytes
        session.close()
        del session
        counts = strict_meter(strict) if name == STRICT_PROVIDER else meter
        assert (counts.pieces, counts.nbytes) == (0, 0)


def test_runs_at_the_same_time_have_blocks_of_their_own(strict):
    session = session_on(chain_model(["Neg", "Cos", "Abs", "Sqrt", "Sin"] * 4, [33]), STRICT_PROVIDER)
    stepwise = session_on(chain_model(["Neg", "Cos", "Abs", "Sqrt", "Sin"] * 4, [33]), STRICT_PROVIDER, disable_programs="1")
    faults = []

    def work(seed):
        feeds = {"x": x_of(seed, 33)}
        (wanted,) = stepwise.run(None, feeds)
        for _ in range(20):
            (found,) = session.run(None, feeds)
            if not np.array_equal(found, wanted, equal_nan=True):
                faults.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert strict_meter(strict).pieces == len(session.program_report())


def test_values_at_guards_and_in_continuations_are_right(strict):
    """The shape of NonZero's result is guarded; continuations have programs and blocks of their own."""
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("NonZero", ["r"], ["i"]),
        helper.make_node("Abs", ["i"], ["j"]),
        helper.make_node("Neg", ["j"], ["k"]),
        helper.make_node("Neg", ["b"], ["c"]),
        helper.make_node("Abs", ["c"], ["d"]),
        helper.make_node("Neg", ["k"], ["m"]),
        helper.make_node("Abs", ["m"], ["n"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [40])]
    outputs = [
        helper.make_tensor_value_info("d", TensorProto.FLOAT, [40]),
        helper.make_tensor_value_info("n", TensorProto.INT64, [1, None]),
    ]
    session = session_on(model_of(nodes, inputs, outputs), STRICT_PROVIDER)
    rng = np.random.default_rng(0)
    for run in range(120):
        x = x_of(run, 40)
        x[rng.permutation(40)[: (0, 3, 3, 3, 9)[run % 5]]] = -1
        x[:20] = abs(x[:20]) + 1
        x[20:] = -1 if run % 3 else x[20:]
        found = session.run(None, {"x": x})
        np.testing.assert_array_equal(found[0], np.exp(-x))
        np.testing.assert_array_equal(found[1], np.stack(np.nonzero(np.maximum(x, 0))))
    assert len(session.program_report()) > 1


def test_bodies_have_blocks_of_their_own(strict):
    """A Loop of the host's whose body works on the device, between steps on the device."""
    operators = ["Neg", "Abs", "Sqrt", "Cos", "Sin"]
    names = ["state", *(f"b{index}" for index in range(len(operators) - 1)), "next"]
    body_nodes = [helper.make_node(op, [a], [b]) for op, a, b in zip(operators, names[:-1], names[1:], strict=True)]
    body_nodes.append(helper.make_node("Identity", ["go on"], ["still"]))
    state, after = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [WIDTH]) for name in ("state", "next"))
    turn = helper.make_tensor_value_info("turn", TensorProto.INT64, [])
    go_on, still = (helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in ("go on", "still"))
    body = helper.make_graph(body_nodes, "body", [turn, go_on, state], [still, after])
    nodes = [
        *(helper.make_node("Cos", [a], [b]) for a, b in (("x", "p"), ("p", "q"), ("q", "r"))),
        helper.make_node("Loop", ["count", "", "r"], ["s"], body=body),
        *(helper.make_node("Sin", [a], [b]) for a, b in (("s", "t"), ("t", "u"), ("u", "y"))),
    ]
    inputs = [helper.make_tensor_value_info("count", TensorProto.INT64, [])]
    inputs.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [WIDTH]))
    model = model_of(nodes, inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [WIDTH])])
    session, stepwise = session_on(model, STRICT_PROVIDER), session_on(model, STRICT_PROVIDER, disable_programs="1")
    seen = []
    for run in range(40):
        feeds = {"count": np.int64(run % 3 + 1), "x": x_of(run, WIDTH)}
        np.testing.assert_array_equal(session.run(None, feeds)[0], stepwise.run(None, feeds)[0])
        seen.append(strict_meter(strict).nbytes)
    assert session.memory_report()[0].held_bytes[MemoryUse.ARENA] == seen[-1] == max(seen[:20])
