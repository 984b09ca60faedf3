"""Convolutions with one filter per channel: against float64, in every layout, with and without packed weights."""

import numpy as np
import pytest
from ort_sdk_cpu import libraries
from ort_sdk_cpu.kernels.conv_separable import DepthwiseKernel
from ort_sdk_cpu.onednn import library as onednn_library

pytestmark = pytest.mark.skipif(
    not onednn_library.is_available() or not libraries.numba().is_usable, reason="oneDNN or numba is not installed"
)

CASES = [
    ((1, 32, 14, 15), (3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 41, 9, 40), (5, 3), {"pads": [0, 2, 1, 0], "strides": [2, 1]}),
    ((1, 8, 30, 33), (7, 7), {"pads": [3, 3, 3, 3], "strides": [2, 3]}),
    ((3, 96, 8, 8), (1, 3), {"auto_pad": "SAME_UPPER"}),
    ((1, 72, 12, 1), (3, 3), {"pads": [4, 4, 4, 4], "dilations": [2, 3]}),
    ((1, 16, 4, 20), (4, 4), {"strides": [4, 1], "pads": [5, 4, 5, 4]}),
    ((2, 33, 1, 50), (1, 9), {"pads": [0, 4, 0, 4]}),
    ((1, 40, 10, 10), (3, 3), {"dilations": [4, 4], "pads": [4, 4, 4, 4]}),
]
"""Shape of X, kernel, attributes."""


def random(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def operands(x_shape, kernel, seed=0):
    rng = np.random.default_rng(seed)
    channels = x_shape[1]
    return random(rng, *x_shape), random(rng, channels, 1, *kernel) / np.float32(np.sqrt(np.prod(kernel))), random(rng, channels)


def in_float64(make_kernel, x, w, bias, attributes):
    wide = tuple(array.astype(np.float64) for array in (x, w, bias))
    return make_kernel("Conv", wide, {**attributes, "group": w.shape[0]}, "", None, (), ()).compute(*wide)


@pytest.mark.parametrize(("x_shape", "kernel", "attributes"), CASES, ids=str)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_shapes_and_layouts(make_kernel, run_both, monkeypatch, x_shape, kernel, attributes, threads):
    for least in ("MINIMUM_WORK", "MINIMUM_WORK_OF_MANY"):
        monkeypatch.setattr(f"ort_sdk_cpu.kernels.conv_onednn.{least}", 0)
    monkeypatch.setattr("ort_sdk_cpu.kernels.conv_separable.TEAM_WORK", 0)
    monkeypatch.setattr("ort_sdk_cpu.libraries.thread_count", lambda: threads)
    x, w, bias = operands(x_shape, kernel)
    grouped = {**attributes, "group": x_shape[1]}
    assert isinstance(make_kernel("Conv", (x, w, bias), grouped, "", None, (1, 2), ()), DepthwiseKernel)
    expected = in_float64(make_kernel, x, w, bias, attributes)
    channels_last = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    for source in (x, channels_last, np.asfortranarray(x)):
        found, bound = run_both("Conv", source, w, bias, constants=(1, 2), **grouped)
        np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=5e-6)
        np.testing.assert_allclose(bound[0], found[0], rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("channels", [96, 41])
@pytest.mark.parametrize("activation", [("Relu", None), ("LeakyRelu", [0.2]), ("Clip", [0.0, 0.5])])
def test_activations_and_addends(make_kernel, activation, channels):
    name, parameters = activation
    x, w, bias = operands((1, channels, 40, 40), (3, 3))
    added = random(np.random.default_rng(1), 1, channels, 38, 38)
    attributes = {"activation": name, **({} if parameters is None else {"activation_params": parameters}), "group": channels}
    kernel = make_kernel("FusedConv", (x, w, bias, added), attributes, "com.microsoft", None, (1, 2), ())
    total = in_float64(make_kernel, x, w, bias, {}) + added
    slope = parameters[0] if name == "LeakyRelu" else 0
    expected = np.clip(total, 0, 0.5) if name == "Clip" else np.where(total < 0, slope * total, total)
    np.testing.assert_allclose(kernel.compute(x, w, bias, added), expected, rtol=1e-5, atol=5e-6)


def test_packed_weights_and_other_shapes(make_kernel):
    x, w, bias = operands((1, 50, 32, 33), (3, 3))
    attributes = {"pads": [1, 1, 1, 1], "strides": [2, 2]}
    kernel = make_kernel("Conv", (x, w, bias), {**attributes, "group": 50}, "", None, (1, 2), ())

    class Constant:
        shape = w.shape

        def packed(self):
            unaligned = np.empty(w.nbytes + 1, np.uint8)[1:]
            unaligned[:] = w.reshape(-1).view(np.uint8)
            return unaligned

    kernel.use_prepacked(kernel.prepack(Constant(), 1, None), 1)
    np.testing.assert_array_equal(kernel.plain_inputs([x, None, bias])[1], w)
    for shape in ((1, 50, 32, 33), (3, 50, 5, 1), (2, 50, 33, 34), (0, 50, 8, 8)):
        other = random(np.random.default_rng(2), *shape)
        expected = in_float64(make_kernel, other, w, bias, attributes)
        np.testing.assert_allclose(kernel.compute(other, None, bias), expected, rtol=1e-5, atol=5e-6)
