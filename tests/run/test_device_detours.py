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
    plugin_manager().register(provider, name="strict")
    yield provider
    plugin_manager().unregister("strict")


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
    counts = next(iter(strict.devices.values())).counts
    for seed in range(4):
        counts.reset()
        session.run(None, {"v0": np.full((3, 4), seed, np.float32)})
    assert (counts.uploads, counts.downloads, counts.launches) == (2, 2, 2)
    is_joining = counts.joined_calls > 0
    assert (counts.joined_calls, counts.single_calls) == ((2, 0) if is_joining else (0, 6))
