"""Where values are: shapes and what is computed from them on the host, values of control flow where bodies make and read them."""

import numpy as np
import onnx
import onnx.parser
import pytest

import ort_sdk as ort
from ort_sdk.plugins import plugin_manager
from ort_sdk.testing.strict.provider import STRICT_PROVIDER, StrictProvider


@pytest.fixture
def strict():
    provider = StrictProvider()
    plugin_manager().register(provider, name="strict")
    yield provider
    plugin_manager().unregister("strict")


def model_bytes(graph, **constants):
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {graph}')
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in constants.items())
    return model.SerializeToString()


def session_of(model, providers=(STRICT_PROVIDER,), *, steps=False):
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_programs", "1" if steps else "0")
    return ort.InferenceSession(model, options, providers=list(providers))


def assert_agree(strict, model, feeds):
    """Results on the device, with programs and without, are those of the host; gives the counts of the last run of either."""
    counts = next(iter(strict.devices.values())).counts
    sessions = [session_of(model), session_of(model, steps=True)]
    reference = session_of(model, ["CPUExecutionProvider"], steps=True)
    found = []
    for each in feeds:
        expected = reference.run(None, each)
        found = []
        for session in sessions:
            counts.reset()
            for one, other in zip(session.run(None, each), expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
            found.append((counts.uploads, counts.downloads))
    return found


def providers_of(session):
    return {placement.op_type: placement.provider for placement in session.placements()}


def normal(seed, *shape):
    return np.random.default_rng(seed).random(shape).astype(np.float32)


SIZES = {"one": np.array([1]), "two": np.array([2]), "axis": np.array([0])}


def test_arithmetic_on_shapes_is_on_the_host(strict):
    graph = """g (float[b, s, 6] x) => (float[h, s, 6] y) {
        sizes = Shape (x)
        batch = Gather (sizes, axis)
        half = Div (batch, two)
        end = Max (half, one)
        a = Neg (x)
        y = Slice (a, axis, end)
    }"""
    model = model_bytes(graph, **SIZES)
    placed = providers_of(session_of(model))
    assert {placed[name] for name in ("Gather", "Div", "Max")} == {"CPUExecutionProvider"}
    assert {placed[name] for name in ("Shape", "Neg", "Slice")} == {STRICT_PROVIDER}
    feeds = [{"x": normal(seed, 5, 1 + seed, 6)} for seed in range(5)]
    assert assert_agree(strict, model, feeds) == [(1, 1), (1, 1)]


def test_a_placement_says_why_it_is_on_the_host(strict):
    model = model_bytes("g (float[b, 6] x) => (int64[2] y) { s = Shape (x) y = Mul (s, two) }", **SIZES)
    (placement,) = [each for each in session_of(model).placements() if each.op_type == "Mul"]
    assert "a few numbers" in " ".join(placement.rejections[STRICT_PROVIDER])


def test_it_stays_there_when_passes_have_changed_the_graph(strict):
    """The fused Gelu is placed in a second round."""
    graph = """g (float[b, 6] x) => (float[h, 6] y, int64[2] d) {
        p = Div (x, root)
        q = Erf (p)
        r = Add (q, unit)
        s = Mul (x, r)
        t = Mul (s, half)
        sizes = Shape (t)
        d = Mul (sizes, two)
        rows = Gather (d, axis)
        y = Slice (t, axis, rows)
    }"""
    constants = {"root": 2**0.5, "unit": 1, "half": 0.5}
    model = model_bytes(graph, **SIZES, **{name: np.float32(value).reshape(()) for name, value in constants.items()})
    placements = {each.op_type: each for each in session_of(model).placements()}
    assert placements["Gelu"].provider == STRICT_PROVIDER
    for name in ("Mul", "Gather"):
        assert placements[name].provider == "CPUExecutionProvider"
        assert "a few numbers" in " ".join(placements[name].rejections[STRICT_PROVIDER])
    assert assert_agree(strict, model, [{"x": normal(seed, 3, 6)} for seed in range(4)]) == [(1, 1), (1, 1)]


@pytest.mark.parametrize(
    "body",
    [
        "s = Shape (x) r = Cast <to: int = 10> (s) y = Neg (r)",  # float16
        "s = Shape (x) l = Gather (s, first) y = Expand (two, l)",  # of an unknown size
        "s = Shape (x) y = Gather (table, s)",  # of a large constant
    ],
)
def test_other_work_stays_on_the_device(strict, body):
    model = model_bytes(f"g (float[b, 6] x) => (y) {{ {body} }}", **SIZES, first=np.array([0]), table=np.arange(100))
    last = session_of(model).placements()[-1]
    assert last.provider == STRICT_PROVIDER


def test_nodes_that_a_provider_claims_stay_with_it(strict, monkeypatch):
    from ort_sdk.api import ComputeCapability, hookimpl

    @hookimpl
    def get_capability(self, execution_provider, graph_viewer, kernel_lookup):
        return [ComputeCapability([node]) for node in graph_viewer.nodes if kernel_lookup.lookup(node) is not None]

    class Claiming(StrictProvider):
        pass

    Claiming.get_capability = get_capability
    plugin_manager().unregister("strict")
    plugin_manager().register(Claiming(), name="strict")
    model = model_bytes("g (float[b, 6] x) => (int64[2] y) { s = Shape (x) y = Mul (s, two) }", **SIZES)
    assert providers_of(session_of(model))["Mul"] == STRICT_PROVIDER


BRANCHES = """g (bool c, float[n, 4] x) => (float[n, 4] y) {
    a = Abs (x)
    b = If (c) <
        then_branch = t () => (float[n, 4] o) { p = Neg (a)  q = Exp (p)  r = Cos (q)  o = MatMul (r, w) },
        else_branch = e () => (float[n, 4] u) { p = Exp (a)  q = Sin (p)  r = Tan (q)  u = Mul (r, x) }
    >
    y = Sqrt (b)
}"""


def test_what_both_branches_make_stays_on_the_device(strict):
    model = model_bytes(BRANCHES, w=np.eye(4, dtype=np.float32))
    feeds = [{"c": np.array(seed % 2 == 0), "x": normal(seed, 3, 4)} for seed in range(8)]
    assert assert_agree(strict, model, feeds) == [(1, 1), (1, 1)]


def test_branches_of_which_one_is_on_the_host(strict):
    """One gives out a constant: both are needed on the host then."""
    graph = """g (bool c, float[3, 4] x) => (float[3, 4] y) {
        a = Abs (x)
        b = If (c) <
            then_branch = t () => (float[3, 4] o) { o = Identity (w) },
            else_branch = e () => (float[3, 4] u) { u = Exp (a) }
        >
        y = Sqrt (b)
    }"""
    feeds = [{"c": np.array(seed % 2 == 0), "x": normal(seed, 3, 4)} for seed in range(8)]
    assert_agree(strict, model_bytes(graph, w=np.ones((3, 4), np.float32)), feeds)


LOOP = """g (int64 trips, float[n, 4] x) => (float[n, 4] y, float[k, n, 4] all) {
    yes = Constant <value = bool {1}> ()
    last, all = Loop (trips, yes, start) <body = b (int64 i, bool going, float[n, 4] state) =>
        (bool goes_on, float[n, 4] next, float[n, 4] each) {
            goes_on = Identity (going)
            sum = Add (state, x)
            wave = Sin (sum)
            next = Cos (wave)
            each = Neg (next)
    }>
    y = Abs (last)
}"""


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_what_a_loop_carries_stays_on_the_device(strict, trips):
    model = model_bytes(LOOP, start=np.ones((3, 4), np.float32))
    feeds = [{"trips": np.array(trips), "x": normal(seed, 3, 4)} for seed in range(6)]
    # The feed, and both results: what is gathered is, too. Of no iterations it is a new array of the host's.
    assert assert_agree(strict, model, feeds) == [(1 + (trips == 0), 2)] * 2


def test_what_is_gathered_is_read_on_the_device(strict):
    """Of a loop whose trips are not known before it runs, and that is not unrolled."""
    graph = """g (float[n, 4] x) => (float[k, n, 4] y) {
        yes = Constant <value = bool {1}> ()
        last, all = Loop (, yes, x) <body = b (int64 i, bool going, float[n, 4] state) =>
            (bool goes_on, float[n, 4] next, float[n, 4] each) {
                next = Mul (state, half)
                most = ReduceMax <keepdims = 0> (next)
                goes_on = Greater (most, limit)
                each = Neg (next)
        }>
        y = Abs (all)
    }"""
    model = model_bytes(graph, half=np.float32(0.5).reshape(()), limit=np.float32(0.3).reshape(()))
    feeds = [{"x": np.full((3, 4), 1 + seed % 2, np.float32)} for seed in range(7)]
    # The feed and the result, and the condition of two iterations.
    assert assert_agree(strict, model, feeds) == [(1, 3)] * 2


def test_parts_that_differ_in_shape_are_refused(strict):
    graph = """g (int64 trips, float[n, 4] x) => (float[k, a, 4] y) {
        yes = Constant <value = bool {1}> ()
        last, all = Loop (trips, yes, x) <body = b (int64 i, bool going, float[m, 4] state) =>
            (bool goes_on, float[p, 4] next, float[q, 4] each) {
                goes_on = Identity (going)
                next = Concat <axis = 0> (state, x)
                each = Neg (next)
        }>
        y = Abs (all)
    }"""
    model = model_bytes(graph)
    for providers in ((STRICT_PROVIDER,), ("CPUExecutionProvider",)):
        session = session_of(model, providers)
        for _ in range(3):
            with pytest.raises(ort.api.OrtSdkError, match="scan output 'each' has shape"):
                session.run(None, {"trips": np.array(3), "x": np.ones((2, 4), np.float32)})
            assert session.run(None, {"trips": np.array(1), "x": np.ones((2, 4), np.float32)})[0].shape == (1, 4, 4)


SCAN = """g (float[t, 4] x) => (float[4] y) {
    last = Scan (start, x) <num_scan_inputs = 1, body = b (float[4] state, float[4] row) => (float[4] next) {
        sum = Add (state, row)
        wave = Sin (sum)
        next = Cos (wave)
    }>
    y = Abs (last)
}"""


@pytest.mark.parametrize("length", [1, 4])
def test_the_states_of_a_scan_stay_on_the_device(strict, length):
    model = model_bytes(SCAN, start=np.ones(4, np.float32))
    feeds = [{"x": normal(seed, length, 4)} for seed in range(6)]
    # The rows, which are slices on the host, and the result.
    assert assert_agree(strict, model, feeds) == [(length, 1)] * 2


def test_states_of_a_scan_that_swap_and_stay(strict):
    graph = """g (float[t, n, 4] x, float[n, 4] s) => (float[n, 4] y, float[n, 4] z, float[n, 4] w, float[t, n, 4] all) {
        a = Neg (s)
        y, z, w, all = Scan (a, s, s, x) <num_scan_inputs = 1, body = b (
            float[n, 4] first, float[n, 4] second, float[n, 4] same, float[n, 4] row
        ) => (float[n, 4] second, float[n, 4] next, float[n, 4] same, float[n, 4] each) {
            sum = Add (first, row)
            next = Sin (sum)
            each = Sub (next, same)
        }>
    }"""
    feeds = [{"x": normal(seed, 1 + seed % 3, 3, 4), "s": normal(9, 3, 4)} for seed in range(8)]
    assert_agree(strict, model_bytes(graph), feeds)


def test_what_a_scan_gathers_along_any_axis_backwards(strict):
    graph = """g (float[t, n, 4] x) => (float[n, t, 4] y, float[n, 4, t] z) {
        first, second = Scan (x) <num_scan_inputs = 1, scan_output_axes = [1, -1], scan_output_directions = [1, 0], body = b (
            float[n, 4] row
        ) => (float[n, 4] one, float[n, 4] other) {
            one = Sin (row)
            other = Cos (one)
        }>
        y = Abs (first)
        z = Neg (second)
    }"""
    for length in (1, 3):
        feeds = [{"x": normal(seed, length, 3, 4)} for seed in range(6)]
        assert assert_agree(strict, model_bytes(graph), feeds) == [(length, 2)] * 2


def test_a_loop_hands_on_a_state_that_it_does_not_change(strict):
    graph = """g (int64 trips, float[n, 4] x) => (float[n, 4] y, float[n, 4] z) {
        yes = Constant <value = bool {1}> ()
        a = Neg (x)
        y, z = Loop (trips, yes, a, a) <body = b (int64 i, bool going, float[n, 4] first, float[n, 4] second) =>
            (bool going, float[n, 4] first, float[n, 4] next) { next = Add (first, second) }>
    }"""
    feeds = [{"trips": np.array(seed % 3), "x": normal(seed, 3, 4)} for seed in range(8)]
    assert_agree(strict, model_bytes(graph), feeds)


def test_states_that_a_loop_swaps(strict):
    graph = """g (int64 trips, float[n, 4] x) => (float[n, 4] y, float[n, 4] z) {
        yes = Constant <value = bool {1}> ()
        a = Neg (x)
        y, z = Loop (trips, yes, a, x) <body = b (int64 i, bool going, float[n, 4] first, float[n, 4] second) =>
            (bool going, float[n, 4] second, float[n, 4] next) { next = Add (first, second) }>
    }"""
    feeds = [{"trips": np.array(seed % 4), "x": normal(seed, 3, 4)} for seed in range(8)]
    assert_agree(strict, model_bytes(graph), feeds)


def test_a_condition_computed_on_the_device(strict):
    graph = """g (float[n, 4] x) => (float[n, 4] y) {
        yes = Constant <value = bool {1}> ()
        y = Loop (, yes, x) <body = b (int64 i, bool going, float[n, 4] state) => (bool goes_on, float[n, 4] next) {
            next = Mul (state, half)
            most = ReduceMax <keepdims = 0> (next)
            goes_on = Greater (most, limit)
        }>
    }"""
    model = model_bytes(graph, half=np.float32(0.5).reshape(()), limit=np.float32(0.1).reshape(()))
    assert_agree(strict, model, [{"x": normal(seed, 3, 4) + 1} for seed in range(6)])


def test_nested_control_flow(strict):
    graph = """g (int64 trips, bool c, float[n, 4] x) => (float[n, 4] y) {
        yes = Constant <value = bool {1}> ()
        y = Loop (trips, yes, x) <body = b (int64 i, bool going, float[n, 4] state) => (bool going, float[n, 4] next) {
            next = If (c) <
                then_branch = t () => (float[n, 4] o) { p = Neg (state)  o = Exp (p) },
                else_branch = e () => (float[n, 4] u) { q = Sin (state)  u = Add (q, x) }
            >
        }>
    }"""
    feeds = [{"trips": np.array(3), "c": np.array(seed % 2 == 0), "x": normal(seed, 3, 4)} for seed in range(8)]
    assert assert_agree(strict, model_bytes(graph), feeds) == [(1, 1), (1, 1)]
