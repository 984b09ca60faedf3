"""Values that go to the host and back within a run: a device may read host memory late, and finds in it what was put there."""

import itertools

import numpy as np
import onnx
import onnx.parser
import pytest

import ort_sdk as ort
from ort_sdk.api import TensorElementType
from ort_sdk.plugins import plugin_manager
from ort_sdk.testing.strict.provider import STRICT_PROVIDER, STRICT_TYPES, StrictProvider


@pytest.fixture(params=[True, False], ids=["joined", "single"])
def strict(request):
    """Devices without float64, which only the host computes in."""
    provider = StrictProvider(STRICT_TYPES - {TensorElementType.DOUBLE}, joins_calls=request.param)
    provider.is_joining = request.param
    plugin_manager().register(provider, name="strict")
    yield provider
    plugin_manager().unregister("strict")


def counts_of(strict):
    return next(iter(strict.devices.values())).counts


def detour(source, target):
    """Work on the device, on the host in float64, and on the device again."""
    return f"""
        {target}0 = Sin ({source})
        {target}1 = Cast <to: int = 11> ({target}0)
        {target}2 = CumSum ({target}1, axis)
        {target}3 = Neg ({target}2)
        {target}4 = Cast <to: int = 1> ({target}3)
        {target} = Cos ({target}4)
    """


def after_detour(x):
    return np.cos(-np.sin(x).astype(np.float64).cumsum(axis=0).astype(np.float32))


def session_of(graph, *, steps=False):
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {graph}')
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0), "axis"))
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_programs", "1" if steps else "0")
    return ort.InferenceSession(model.SerializeToString(), options, providers=[STRICT_PROVIDER])


@pytest.mark.parametrize("rows", [3, 600, 9000])
def test_several_detours_in_a_run(strict, rows):
    names = [f"v{index}" for index in range(6)]
    graph = f"""g (float[n, 4] v0) => (float[n, 4] v5, float[n, 4] v2) {{
        {"".join(detour(source, target) for source, target in itertools.pairwise(names))}
    }}"""
    session, reference = session_of(graph), session_of(graph, steps=True)
    for seed in range(5):
        x = np.random.default_rng(seed).standard_normal((rows, 4)).astype(np.float32)
        expected = [x]
        for _ in names[1:]:
            expected.append(after_detour(expected[-1]))
        found = session.run(None, {"v0": x})
        for one, other, true in zip(found, reference.run(None, {"v0": x}), (expected[5], expected[2]), strict=True):
            np.testing.assert_array_equal(one, other)
            np.testing.assert_allclose(one, true, atol=1e-3)


@pytest.mark.parametrize("rows", [3, 9000])
def test_detours_in_every_iteration_of_a_loop(strict, rows):
    graph = f"""g (int64 trips, float[n, 4] x) => (float[n, 4] y, float[t, n, 4] all) {{
        yes = Constant <value = bool {{1}}> ()
        y, all = Loop (trips, yes, x) <body = b (int64 i, bool going, float[n, 4] state) =>
            (bool goes_on, float[n, 4] next, float[n, 4] each) {{
                goes_on = Identity (going)
                {detour("state", "made")}
                next = Mul (made, x)
                each = Abs (made)
        }}>
    }}"""
    session, reference = session_of(graph), session_of(graph, steps=True)
    for seed in range(5):
        x = np.random.default_rng(seed).standard_normal((rows, 4)).astype(np.float32)
        feeds = {"trips": np.array(4), "x": x}
        state, each = x, []
        for _ in range(4):
            made = after_detour(state)
            state, each = made * x, [*each, abs(made)]
        found = session.run(None, feeds)
        for one, other, true in zip(found, reference.run(None, feeds), (state, np.stack(each)), strict=True):
            np.testing.assert_array_equal(one, other)
            np.testing.assert_allclose(one, true, atol=1e-2)


def test_small_results_of_the_host_are_uploaded_by_joined_calls(strict):
    graph = f"g (float[3, 4] v0) => (float[3, 4] v1) {{ {detour('v0', 'v1')} }}"
    session = session_of(graph)
    counts = counts_of(strict)
    for seed in range(4):
        counts.reset()
        session.run(None, {"v0": np.full((3, 4), seed, np.float32)})
    assert (counts.uploads, counts.downloads, counts.launches) == (2, 2, 2)
    assert (counts.joined_calls, counts.single_calls) == ((2, 0) if strict.is_joining else (0, 6))


def test_the_host_goes_on_while_a_device_has_not_read_yet(strict):
    """What is uploaded lies in memory that other values of the host would get, and nothing waits for the device in between."""
    chains = "".join(
        f"e{i} = Neg (d{i})  h{i} = CumSum (e{i}, axis)  f{i} = Cast <to: int = 1> (h{i})  a{i} = Sin (f{i})\n" for i in range(4)
    )
    feeds = ", ".join(f"double[n, 4] d{i}" for i in range(4))
    graph = f"g ({feeds}) => (float[n, 4] y) {{ {chains} b = Add (a0, a1)  c = Add (a2, a3)  y = Mul (b, c) }}"
    session, counts = session_of(graph), counts_of(strict)
    for seed in range(5):
        given = {f"d{i}": np.random.default_rng(4 * seed + i).standard_normal((50, 4)) for i in range(4)}
        waves = [np.sin((-given[f"d{i}"]).cumsum(axis=0).astype(np.float32)) for i in range(4)]
        counts.reset()
        (found,) = session.run(None, given)
        np.testing.assert_allclose(found, (waves[0] + waves[1]) * (waves[2] + waves[3]), atol=1e-5)
    # The host goes ahead: nothing of it is between the calls of the device.
    assert (counts.joined_calls, counts.single_calls) == ((1, 0) if strict.is_joining else (0, 4 + 7 + 1))


def test_iterations_of_a_loop_that_never_wait_for_the_device(strict):
    graph = """g (int64 trips, float[n, 4] x) => (float[n, 4] y) {
        yes = Constant <value = bool {1}> ()
        y = Loop (trips, yes, x) <body = b (int64 i, bool going, float[n, 4] state) => (bool going, float[n, 4] next) {
            wide = Cast <to: int = 11> (i)
            half = Sin (wide)
            bias = Cast <to: int = 1> (half)
            sum = Add (state, bias)
            next = Mul (sum, x)
        }>
    }"""
    session, counts = session_of(graph), counts_of(strict)
    for seed in range(5):
        x = np.random.default_rng(seed).random((3, 4)).astype(np.float32)
        expected = x
        for iteration in range(6):
            expected = (expected + np.float32(np.sin(float(iteration)))) * x
        counts.reset()
        (found,) = session.run(None, {"trips": np.array(6), "x": x})
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert counts.joined_calls == (6 if strict.is_joining else 0)


def test_what_leaves_a_program_on_the_device_is_the_users(strict):
    graph = """g (float[n] x, float[m] z) => (float[n] y, float[k] w) {
        y = Neg (x)
        found = NonZero (z)
        real = Cast <to: int = 1> (found)
        a = Sin (real)
        b = Cos (a)
        c = ReduceSum <keepdims = 0> (b)
        w = Mul (c, y)
    }"""
    session, kept = session_of(graph), []
    for run in range(10):
        x, z = np.full(3, run, np.float32), (np.arange(5) < 1 + run % 3).astype(np.float32)
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(x, "strict", 0))
        binding.bind_ortvalue_input("z", ort.OrtValue.ortvalue_from_numpy(z, "strict", 0))
        binding.bind_output("y", "strict")
        binding.bind_output("w", "strict")
        session.run_with_iobinding(binding)
        factor = np.cos(np.sin(np.arange(1 + run % 3, dtype=np.float32))).sum()
        kept.append((binding.get_outputs(), (-x, -x * factor)))
    for found, expected in kept:
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one.numpy(), other, rtol=1e-5)
