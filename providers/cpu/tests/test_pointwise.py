"""Convolutions of one tap: against float64, in every layout, with and without packed weights."""

import numpy as np
import pytest
from ort_sdk_cpu.conv.pointwise import PointwiseKernel
from ort_sdk_cpu.onednn import library as onednn_library
from ort_sdk_cpu.platform import libraries

pytestmark = pytest.mark.skipif(
    not onednn_library.is_available() or not libraries.compiled_kernels().is_usable, reason="oneDNN or numba is not installed"
)

CASES = [
    ((1, 16, 14, 15), 96),
    ((2, 24, 9), 33),
    ((1, 8, 1, 1), 48),
    ((1, 700, 7, 7), 17),
    ((3, 9, 2, 3, 4), 8),
    ((1, 40, 1, 1), 600),
]
"""Shape of X, and output channels."""


def random(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def operands(x_shape, outputs):
    rng = np.random.default_rng(0)
    w = random(rng, outputs, x_shape[1], *(1 for _ in x_shape[2:])) / np.float32(np.sqrt(x_shape[1]))
    return random(rng, *x_shape), w, random(rng, outputs)


def in_float64(x, w, bias):
    total = np.einsum("nc...,mc->nm...", x.astype(np.float64), w.reshape(w.shape[:2]).astype(np.float64))
    return total + bias.reshape(-1, *(1 for _ in x.shape[2:]))


@pytest.mark.parametrize(("x_shape", "outputs"), CASES, ids=str)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_shapes_and_layouts(make_kernel, run_both, monkeypatch, x_shape, outputs, threads):
    for least in ("MINIMUM_WORK", "MINIMUM_WORK_OF_MANY"):
        monkeypatch.setattr(f"ort_sdk_cpu.conv.select.{least}", 0)
    monkeypatch.setattr("ort_sdk_cpu.conv.pointwise.TEAM_WORK", 0)
    monkeypatch.setattr("ort_sdk_cpu.platform.libraries.thread_count", lambda: threads)
    x, w, bias = operands(x_shape, outputs)
    assert isinstance(make_kernel("Conv", (x, w, bias), {}, "", None, (1, 2), ()), PointwiseKernel)
    expected = in_float64(x, w, bias)
    channels_last = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    for source in (x, channels_last, np.asfortranarray(x)):
        found, bound = run_both("Conv", source, w, bias, constants=(1, 2))
        np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=5e-6)
        np.testing.assert_allclose(bound[0], found[0], rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("outputs", [96, 41])
@pytest.mark.parametrize("activation", [("Relu", None), ("LeakyRelu", [0.2]), ("Clip", [0.0, 0.5])])
def test_activations_and_addends(make_kernel, activation, outputs):
    name, parameters = activation
    x, w, bias = operands((1, 300, 20, 20), outputs)
    added = random(np.random.default_rng(1), 1, outputs, 20, 20)
    attributes = {"activation": name, **({} if parameters is None else {"activation_params": parameters})}
    kernel = make_kernel("FusedConv", (x, w, bias, added), attributes, "com.microsoft", None, (1, 2), ())
    total = in_float64(x, w, bias) + added
    slope = parameters[0] if name == "LeakyRelu" else 0
    expected = np.clip(total, 0, 0.5) if name == "Clip" else np.where(total < 0, slope * total, total)
    np.testing.assert_allclose(kernel.compute(x, w, bias, added), expected, rtol=1e-5, atol=5e-6)


def test_numbers_that_are_none_stay(make_kernel):
    x, w, bias = operands((1, 64, 32, 32), 64)
    x[0, :, 3, 5] = np.nan
    found = make_kernel("Conv", (x, w, bias), {}, "", None, (1, 2), ()).compute(x, w, bias)
    assert np.isnan(found[0, :, 3, 5]).all()
    assert np.isnan(found).sum() == 64


def test_packed_weights_and_other_shapes(make_kernel, unaligned_constant):
    x, w, bias = operands((1, 48, 32, 33), 50)
    kernel = make_kernel("Conv", (x, w, bias), {}, "", None, (1, 2), ())

    kernel.use_prepacked(kernel.prepack(unaligned_constant(w), 1, None), 1)
    np.testing.assert_array_equal(kernel.plain_inputs([x, None, bias])[1], w)
    for shape in ((1, 48, 32, 33), (3, 48, 5, 1), (2, 48, 33, 34), (0, 48, 8, 8)):
        other = random(np.random.default_rng(2), *shape)
        np.testing.assert_allclose(kernel.compute(other, None, bias), in_float64(other, w, bias), rtol=1e-5, atol=5e-6)
