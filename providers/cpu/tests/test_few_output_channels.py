"""Convolutions into few channels: against float64, in every layout, with and without packed weights."""

import numpy as np
import pytest
from ort_sdk_cpu.conv.few_channels import FewOutputChannelsKernel
from ort_sdk_cpu.onednn import library as onednn_library
from ort_sdk_cpu.platform import libraries

pytestmark = pytest.mark.skipif(
    not onednn_library.is_available() or not libraries.compiled_kernels().is_usable, reason="oneDNN or numba is not installed"
)

CASES = [
    ((1, 19, 12, 15), (1, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 32, 9, 21), (3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 8, 10, 33), (4, 5, 7), {"pads": [2, 3, 2, 3], "strides": [2, 2]}),
    ((3, 16, 8, 12), (2, 3, 1), {"auto_pad": "SAME_UPPER"}),
    ((1, 6, 9, 9), (1, 3, 3), {"pads": [0, 2, 1, 0]}),
    ((1, 40, 4, 9), (1, 2, 2), {"pads": [3, 3, 3, 3]}),
    ((1, 96, 8, 5), (4, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 24, 1, 1), (3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 20, 7, 6), (2, 3, 3), {"strides": [2, 2]}),
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
    assert isinstance(make_kernel("Conv", (x, w, bias), attributes, "", None, (1, 2), ()), FewOutputChannelsKernel)
    expected = in_float64(make_kernel, x, w, bias, attributes)
    channels_last = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    for source in (x, channels_last, np.asfortranarray(x)):
        found, bound = run_both("Conv", source, w, bias, constants=(1, 2), **attributes)
        np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=5e-6)
        np.testing.assert_allclose(bound[0], found[0], rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("activation", [("Relu", None), ("LeakyRelu", [0.2]), ("Clip", [0.0, 0.5]), ("Sigmoid", None)])
@pytest.mark.parametrize("outputs", [1, 3])
def test_activations_and_addends(make_kernel, activation, outputs):
    name, parameters = activation
    x, w, bias = operands((1, 24, 20, 20), (outputs, 3, 3))
    added = random(np.random.default_rng(1), 1, outputs, 18, 18)
    attributes = {"activation": name, **({} if parameters is None else {"activation_params": parameters})}
    kernel = make_kernel("FusedConv", (x, w, bias, added), attributes, "com.microsoft", None, (1, 2), ())
    total = in_float64(make_kernel, x, w, bias, {}) + added
    slope = parameters[0] if name == "LeakyRelu" else 0
    expected = {"Clip": np.clip(total, 0, 0.5), "Sigmoid": 1 / (1 + np.exp(-total))}
    expected = expected.get(name, np.where(total < 0, slope * total, total))
    np.testing.assert_allclose(kernel.compute(x, w, bias, added), expected, rtol=1e-5, atol=5e-6)


def test_infinities_outside_of_windows_do_not_matter(make_kernel, monkeypatch):
    monkeypatch.setattr("ort_sdk_cpu.conv.select.MINIMUM_WORK", 0)
    x, w, bias = operands((1, 10, 6, 12), (1, 3, 3))
    x[0, :, 3:, 9:] = np.inf
    kernel = make_kernel("Conv", (x, w, bias), {"pads": [1, 1, 1, 1]}, "", None, (1, 2), ())
    found = kernel.compute(np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1), w, bias)
    assert np.isfinite(found[0, 0, :2]).all()
    assert np.isfinite(found[0, 0, :, :8]).all()
    assert not np.isfinite(found[0, 0, 2:, 8:]).any()


def test_packed_weights_and_other_shapes(make_kernel, unaligned_constant):
    x, w, bias = operands((1, 20, 32, 33), (2, 3, 3))
    attributes = {"pads": [1, 1, 1, 1], "strides": [2, 2]}
    kernel = make_kernel("Conv", (x, w, bias), attributes, "", None, (1, 2), ())

    kernel.use_prepacked(kernel.prepack(unaligned_constant(w), 1, None), 1)
    np.testing.assert_array_equal(kernel.plain_inputs([x, None, bias])[1], w)
    for shape in ((1, 20, 32, 33), (3, 20, 5, 1), (2, 20, 33, 34), (0, 20, 8, 8)):
        other = random(np.random.default_rng(2), *shape)
        expected = in_float64(make_kernel, other, w, bias, attributes)
        np.testing.assert_allclose(kernel.compute(other, None, bias), expected, rtol=1e-5, atol=5e-6)
