"""Programs on asynchronous devices: what is launched, copied and waited for in a run, and that results are those without them."""

import numpy as np
import onnx
import onnx.parser
import pytest

import ort_sdk as ort
from ort_sdk.api import EPFail, OrtSdkError
from ort_sdk.plugins import plugin_manager
from ort_sdk.testing.null_provider import NULL_PROVIDER, NullProvider
from ort_sdk.testing.strict.provider import STRICT_PROVIDER, BindableStrictKernel, StrictExecutionProvider, StrictProvider
from ort_sdk.testing.strict.transfer import StrictDataTransfer

RUNS = 5
STEP_BY_STEP = "session.disable_programs"


ASYNCHRONOUS = {"waiting": {}, "asynchronous": {"is_asynchronous": True}, "late": {"is_asynchronous": True, "reads_late": True}}
"""Whether runs wait at their end, else whether they do so for what is read on the host."""


@pytest.fixture(params=ASYNCHRONOUS)
def strict(request):
    provider = StrictProvider(**ASYNCHRONOUS[request.param])
    plugin_manager().register(provider, name="strict")
    yield provider
    plugin_manager().unregister("strict")


@pytest.fixture
def null():
    provider = NullProvider(joins_calls=True)
    plugin_manager().register(provider, name="null")
    yield provider
    plugin_manager().unregister("null")


@pytest.fixture
def waits(request):
    """Times a run on values of the host waits that is one joined call: at its end, and at that of the run if need be."""
    return 1 if request.node.callspec.params["strict"] == "asynchronous" else 2


def counts_of(strict):
    return next(iter(strict.devices.values())).counts


def model_bytes(graph, **constants):
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {graph}')
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in constants.items())
    return model.SerializeToString()


def session_of(model, provider=STRICT_PROVIDER, *, steps=False):
    options = ort.SessionOptions()
    options.add_session_config_entry(STEP_BY_STEP, "1" if steps else "0")
    return ort.InferenceSession(model, options, providers=[provider])


def assert_equal(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def replayed(strict, model, feeds_of, runs=RUNS):
    """Counts of the last of some runs, whose results are those of runs step by step, and stay when others follow."""
    session, reference = session_of(model), session_of(model, steps=True)
    kept = []
    for run in range(runs):
        feeds = feeds_of(np.random.default_rng(run))
        expected = reference.run(None, feeds)
        counts_of(strict).reset()
        kept.append((session.run(None, feeds), expected))
        for fed in feeds.values():
            fed.fill(7)
    for found, expected in kept:
        assert_equal(found, expected)
    return counts_of(strict)


CAUSAL = """g (float[b, s, 4] x) => (float[b, s, 4] y, float[b, s, 4] z) {
    sizes = Shape (x)
    length = Gather (sizes, one)
    positions = Range (zero, length, one)
    row = Unsqueeze (positions, first)
    column = Unsqueeze (positions, second)
    seen = LessOrEqual (row, column)
    mask = Cast <to: int = 1> (seen)
    squared = Mul (x, x)
    mixed = MatMul (mask, squared)
    y = Relu (mixed)
    z = Neg (mixed)
}"""
CAUSAL_CONSTANTS = {
    "zero": np.array(0),
    "one": np.array(1),
    "first": np.array([0]),
    "second": np.array([1]),
}


def normal(*shape):
    return lambda random: {"x": random.standard_normal(shape).astype(np.float32)}


def test_a_mask_made_of_shapes_costs_no_copy(strict, waits):
    counts = replayed(strict, model_bytes(CAUSAL, **CAUSAL_CONSTANTS), normal(2, 5, 4))
    assert (counts.joined_calls, counts.single_calls, counts.launches) == (1, 0, 4)
    assert (counts.uploads, counts.downloads) == (1, 2)
    assert counts.waits == waits


def test_the_null_provider_is_asked_for_the_same(null):
    session = session_of(model_bytes(CAUSAL, **CAUSAL_CONSTANTS), NULL_PROVIDER)
    for _ in range(RUNS):
        null.counts.reset()
        session.run(None, {"x": np.ones((2, 5, 4), np.float32)})
    assert (null.counts.joined_calls, null.counts.single_calls) == (1, 0)
    assert (null.counts.uploads, null.counts.downloads, null.counts.waits) == (1, 2, 1)


VIEWS = """g (float[2, 3, 4] x) => (float[24] y, float[2, 12] a) {
    a0 = Neg (x)
    a1 = Reshape (a0, halves)
    a = Exp (a1)
    a2 = Unsqueeze (a, first)
    a3 = Abs (a2)
    a4 = Squeeze (a3, first)
    a5 = Identity (a4)
    a6 = Flatten <axis = 0> (a5)
    a7 = Sin (a6)
    y = Reshape (a7, flat)
}"""
VIEW_CONSTANTS = {"halves": np.array([2, 12]), "first": np.array([0]), "flat": np.array([-1])}


@pytest.fixture
def unoptimized(monkeypatch):
    """Sessions keep the nodes that passes would merge."""
    original = ort.SessionOptions.__init__

    def init(self, *args):
        original(self, *args)
        self.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL

    monkeypatch.setattr(ort.SessionOptions, "__init__", init)


def test_views_of_buffers_take_no_call(strict, unoptimized):
    counts = replayed(strict, model_bytes(VIEWS, **VIEW_CONSTANTS), normal(2, 3, 4))
    assert (counts.joined_calls, counts.single_calls, counts.launches) == (1, 0, 4)
    assert counts.views == 0  # made once, with the program


@pytest.mark.parametrize(("axis", "launches"), [(0, 4), (-2, 4), (1, 5)])
def test_parts_along_the_outermost_axis_are_views(strict, axis, launches):
    graph = f"""g (float[4, 6] x) => (float[n, m] y, float[n, m] z) {{
        a = Exp (x)
        b, c = Split <axis: int = {axis}, num_outputs: int = 2> (a)
        d = Neg (b)
        e = Sin (c)
        y = Add (d, e)
        z = Identity (c)
    }}"""
    counts = replayed(strict, model_bytes(graph), normal(4, 6))
    assert (counts.joined_calls, counts.single_calls, counts.launches) == (1, 0, launches)


def test_views_of_the_null_provider_whose_kernels_would_copy(null, unoptimized):
    session = session_of(model_bytes(VIEWS, **VIEW_CONSTANTS), NULL_PROVIDER)
    for _ in range(RUNS):
        null.counts.reset()
        session.run(None, {"x": np.ones((2, 3, 4), np.float32)})
    assert (null.counts.joined_calls, null.counts.single_calls, null.counts.launches) == (1, 0, 4)


def test_a_provider_that_makes_no_views_runs_their_kernels(strict, unoptimized, monkeypatch):
    monkeypatch.setattr(StrictExecutionProvider, "reshaped", lambda *_: None)
    counts = replayed(strict, model_bytes(VIEWS, **VIEW_CONSTANTS), normal(2, 3, 4))
    assert counts.launches == 10


TWO_KERNELS = "g (float[n, 4] x) => (float[n, 4] y) { a = Exp (x)  y = Neg (a) }"


@pytest.mark.parametrize("rows", [1, 3, 7000, 9000, 70000])
def test_feeds_and_fetches_of_any_size_are_copied_by_the_joined_call(strict, waits, rows):
    counts = replayed(strict, model_bytes(TWO_KERNELS), normal(rows, 4))
    assert (counts.joined_calls, counts.single_calls, counts.launches) == (1, 0, 2)
    assert (counts.uploads, counts.downloads, counts.waits) == (1, 1, waits)


def test_a_provider_that_joins_nothing_gives_the_same():
    provider = StrictProvider(joins_calls=False)
    plugin_manager().register(provider, name="strict")
    try:
        for model, feeds in (
            (model_bytes(CAUSAL, **CAUSAL_CONSTANTS), normal(2, 5, 4)),
            (model_bytes(TWO_KERNELS), normal(3, 4)),
        ):
            counts = replayed(provider, model, feeds)
            assert counts.joined_calls == 0
            assert counts.single_calls == counts.launches + counts.uploads + counts.downloads
    finally:
        plugin_manager().unregister("strict")


def test_a_transfer_that_binds_nothing_copies_as_before(strict, monkeypatch):
    monkeypatch.delattr(StrictDataTransfer, "bind_copy")
    counts = replayed(strict, model_bytes(TWO_KERNELS), normal(3, 4))
    assert (counts.joined_calls, counts.launches, counts.uploads, counts.downloads) == (1, 2, 1, 1)


@pytest.mark.parametrize("wanted", [["y"], ["z"], ["z", "y"], ["y", "y"]])
def test_only_the_outputs_that_are_wanted_come_to_the_host(strict, wanted):
    model = model_bytes(CAUSAL, **CAUSAL_CONSTANTS)
    session, reference = session_of(model), session_of(model, steps=True)
    for run in range(RUNS):
        feeds = normal(2, 5, 4)(np.random.default_rng(run))
        counts_of(strict).reset()
        found = session.run(wanted, feeds)
        assert counts_of(strict).downloads == len(set(wanted))
        assert_equal(found, reference.run(wanted, feeds))
    assert counts_of(strict).joined_calls == 1


def bound_run(session, name, value, output, device):
    binding = session.io_binding()
    binding.bind_ortvalue_input(name, value)
    binding.bind_output(output, "strict")
    session.run_with_iobinding(binding)
    return binding.get_outputs()[0]


@pytest.mark.parametrize(("rows", "copies"), [(3, 2), (60_000, 2), (70_000, 0)])
def test_small_values_on_the_device_are_copied_within_it(strict, rows, copies):
    session = session_of(model_bytes(TWO_KERNELS))
    kept = []
    for run in range(RUNS):
        x = normal(rows, 4)(np.random.default_rng(run))["x"]
        value = ort.OrtValue.ortvalue_from_numpy(x, "strict", 0)
        counts_of(strict).reset()
        kept.append((bound_run(session, "x", value, "y", "strict"), -np.exp(x)))
    counts = counts_of(strict)
    assert (counts.joined_calls, counts.launches, counts.uploads, counts.downloads) == (1, 2, 0, 0)
    assert counts.device_copies == copies
    for found, expected in kept:
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


def test_views_that_the_user_gets_on_the_device_are_copies(strict, unoptimized):
    session = session_of(model_bytes(VIEWS, **VIEW_CONSTANTS))
    kept = []
    for run in range(RUNS):
        x = normal(2, 3, 4)(np.random.default_rng(run))["x"]
        value = ort.OrtValue.ortvalue_from_numpy(x, "strict", 0)
        counts_of(strict).reset()
        kept.append((bound_run(session, "x", value, "y", "strict"), np.sin(np.exp(-x)).reshape(-1)))
    assert counts_of(strict).joined_calls == 1
    for found, expected in kept:
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


def test_an_input_handed_out_as_it_is_is_the_users(strict):
    session = session_of(model_bytes("g (float[n] x) => (float[n] y, float[n] z) { y = Identity (x)  z = Neg (x) }"))
    kept = []
    for run in range(RUNS):
        x = np.full(3, run, np.float32)
        kept.append((session.run(None, {"x": x}), [x.copy(), -x]))
    for found, expected in kept:
        assert_equal(found, expected)


LAYERS = 8
GROWING = f"""g (float[1, 4] h0, int64[1, l] mask) => (float[1, 4] h{LAYERS}) {{
    ones = Cast <to: int = 1> (mask)
    length = ReduceSum (ones, axes)
    {" ".join(f"a{i} = Mul (h{i}, length)  b{i} = Tanh (a{i})  h{i + 1} = Add (b{i}, h{i})" for i in range(LAYERS))}
}}"""


def test_a_growing_mask_gets_one_program_for_all_lengths(strict):
    model = model_bytes(GROWING, axes=np.array([1]))
    session, reference = session_of(model), session_of(model, steps=True)
    for length in range(1, 20):
        feeds = {"h0": np.full((1, 4), 0.1, np.float32), "mask": np.ones((1, length), np.int64)}
        expected = reference.run(None, feeds)
        counts_of(strict).reset()
        assert_equal(session.run(None, feeds), expected)
    assert len(session.program_report()) == 1
    counts = counts_of(strict)
    # The mask's length is unknown: it is copied, cast and summed on its own.
    assert counts.launches == 2 + 3 * LAYERS
    assert counts.joined_calls <= 2
    assert counts.single_calls == 3


def test_slots_know_their_element_types(strict, monkeypatch):
    seen = []
    bind = BindableStrictKernel.bind

    def noting(self, inputs, outputs):
        seen.extend((slot.array is None, slot.element_type) for slot in (*inputs, *outputs))
        return bind(self, inputs, outputs)

    monkeypatch.setattr(BindableStrictKernel, "bind", noting)
    session = session_of(model_bytes("g (int32[n, 4] x) => (int32[n, 4] y) { y = Neg (x) }"))
    value = ort.OrtValue.ortvalue_from_numpy(np.ones((200_000, 4), np.int32), "strict", 0)
    for _ in range(3):
        bound_run(session, "x", value, "y", "strict")
    assert seen
    assert {element_type.name for _, element_type in seen} == {"INT32"}
    assert any(is_empty for is_empty, _ in seen)


def test_feeds_that_are_on_the_device_already_stay_there(strict):
    session = session_of(model_bytes(TWO_KERNELS))
    x = np.ones((3, 4), np.float32)
    for _ in range(RUNS):
        value = ort.OrtValue.ortvalue_from_numpy(x, "strict", 0)
        counts_of(strict).reset()
        (found,) = session.run(None, {"x": value})
        np.testing.assert_allclose(found, -np.exp(x), rtol=1e-6)
    assert (counts_of(strict).uploads, counts_of(strict).downloads) == (0, 1)


def test_inputs_with_defaults_may_be_fed_or_not(strict):
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[3] x, float[3] w) => (float[3] y) { a = Mul (x, w)  y = Exp (a) }'
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.full(3, 2, np.float32), "w"))
    session, x = session_of(model.SerializeToString()), np.array([0, 0.5, 1], np.float32)
    for run in range(2 * RUNS):
        fed = {} if run % 2 else {"w": np.full(3, run, np.float32)}
        (found,) = session.run(None, {"x": x, **fed})
        np.testing.assert_allclose(found, np.exp(x * (2 if run % 2 else run)), rtol=1e-6)


def test_a_transfer_must_give_a_call(strict, monkeypatch):
    monkeypatch.setattr(StrictDataTransfer, "bind_copy", lambda *_: 7)
    session, feeds = session_of(model_bytes(TWO_KERNELS)), {"x": np.ones((3, 4), np.float32)}
    session.run(None, feeds)
    with pytest.raises(EPFail, match=r"StrictDataTransfer of StrictExecutionProvider: bind_copy must give a call.* 7"):
        session.run(None, feeds)


def test_whose_bind_copy_failed_is_said(strict, monkeypatch):
    def bind_copy(self, source, target):
        raise OverflowError("too many copies")

    monkeypatch.setattr(StrictDataTransfer, "bind_copy", bind_copy)
    session, feeds = session_of(model_bytes(TWO_KERNELS)), {"x": np.ones((3, 4), np.float32)}
    session.run(None, feeds)
    with pytest.raises(OrtSdkError, match="too many copies"):
        session.run(None, feeds)


def test_whose_views_failed_is_said(strict, unoptimized, monkeypatch):
    def reshaped(self, array, shape):
        raise OverflowError("no views today")

    monkeypatch.setattr(StrictExecutionProvider, "reshaped", reshaped)
    session, feeds = session_of(model_bytes(VIEWS, **VIEW_CONSTANTS)), {"x": np.ones((2, 3, 4), np.float32)}
    session.run(None, feeds)
    with pytest.raises(OrtSdkError, match="no views today"):
        session.run(None, feeds)


def test_a_copy_that_fails_late_is_reported(strict, monkeypatch):
    session, feeds = session_of(model_bytes(TWO_KERNELS)), {"x": np.ones((3, 4), np.float32)}
    for _ in range(3):
        session.run(None, feeds)
    monkeypatch.setattr(StrictDataTransfer, "_write", lambda *_: (_ for _ in ()).throw(OverflowError("the link is down")))
    with pytest.raises(OrtSdkError, match=r"MemcpyFromHost.*the link is down"):
        session.run(None, feeds)
