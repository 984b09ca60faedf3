"""First convolutions of networks for pictures: against float64, in every layout, with and without packed weights."""

import numpy as np
import pytest
from ort_sdk_cpu.conv.few_channels import FewInputChannelsKernel
from ort_sdk_cpu.onednn import library as onednn_library
from ort_sdk_cpu.platform import libraries

pytestmark = pytest.mark.skipif(
    not onednn_library.is_available() or not libraries.compiled_kernels().is_usable, reason="oneDNN or numba is not installed"
)

CASES = [
    ((1, 3, 14, 15), (32, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ((2, 1, 9, 40), (40, 5, 3), {"pads": [0, 2, 1, 0]}),
    ((1, 4, 30, 33), (17, 7, 7), {"pads": [3, 3, 3, 3], "strides": [2, 3]}),
    ((3, 3, 8, 8), (8, 1, 3), {"auto_pad": "SAME_UPPER"}),
    ((1, 3, 12, 6), (16, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 2, 4, 20), (64, 4, 4), {"strides": [4, 1], "pads": [0, 4, 0, 4]}),
]


def random(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def operands(x_shape, weight, seed=0):
    rng = np.random.default_rng(seed)
    outputs, *kernel = weight
    w = random(rng, outputs, x_shape[1], *kernel) / np.float32(np.sqrt(np.prod(kernel) * x_shape[1]))
    return random(rng, *x_shape), w, random(rng, outputs)


def in_float64(make_kernel, x, w, bias, attributes):
    wide = tuple(array.astype(np.float64) for array in (x, w, bias))
    return make_kernel("Conv", wide, attributes, "", None, (), ()).compute(*wide)


@pytest.mark.parametrize(("x_shape", "weight", "attributes"), CASES, ids=str)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_shapes_and_layouts(make_kernel, run_both, monkeypatch, x_shape, weight, attributes, threads):
    monkeypatch.setattr("ort_sdk_cpu.conv.select.MINIMUM_WORK", 0)
    monkeypatch.setattr("ort_sdk_cpu.platform.libraries.thread_count", lambda: threads)
    x, w, bias = operands(x_shape, weight)
    assert isinstance(make_kernel("Conv", (x, w, bias), attributes, "", None, (1, 2), ()), FewInputChannelsKernel)
    expected = in_float64(make_kernel, x, w, bias, attributes)
    channels_last = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    for source in (x, channels_last, np.asfortranarray(x)):
        found, bound = run_both("Conv", source, w, bias, constants=(1, 2), **attributes)
        np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=5e-6)
        np.testing.assert_allclose(bound[0], found[0], rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("activation", [("Relu", None), ("LeakyRelu", [0.2]), ("Clip", [0.0, 0.5])])
def test_activations_and_addends(make_kernel, activation):
    name, parameters = activation
    x, w, bias = operands((1, 3, 20, 20), (24, 3, 3))
    added = random(np.random.default_rng(1), 1, 24, 18, 18)
    attributes = {"activation": name, **({} if parameters is None else {"activation_params": parameters})}
    kernel = make_kernel("FusedConv", (x, w, bias, added), attributes, "com.microsoft", None, (1, 2), ())
    total = in_float64(make_kernel, x, w, bias, {}) + added
    slope = parameters[0] if name == "LeakyRelu" else 0
    expected = np.clip(total, 0, 0.5) if name == "Clip" else np.where(total < 0, slope * total, total)
    np.testing.assert_allclose(kernel.compute(x, w, bias, added), expected, rtol=1e-5, atol=5e-6)


def test_packed_weights_and_other_shapes(make_kernel, unaligned_constant):
    x, w, bias = operands((1, 3, 32, 33), (50, 3, 3))
    attributes = {"pads": [1, 1, 1, 1], "strides": [2, 2]}
    kernel = make_kernel("Conv", (x, w, bias), attributes, "", None, (1, 2), ())

    kernel.use_prepacked(kernel.prepack(unaligned_constant(w), 1, None), 1)
    np.testing.assert_array_equal(kernel.plain_inputs([x, None, bias])[1], w)
    for shape in ((1, 3, 32, 33), (3, 3, 5, 1), (2, 3, 33, 34), (0, 3, 8, 8)):
        other = random(np.random.default_rng(2), *shape)
        expected = in_float64(make_kernel, other, w, bias, attributes)
        np.testing.assert_allclose(kernel.compute(other, None, bias), expected, rtol=1e-5, atol=5e-6)
