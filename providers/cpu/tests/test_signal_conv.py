"""Convolutions of one channel along one axis: products with overlapping windows."""

import numpy as np
import pytest
from ort_sdk_cpu import libraries
from ort_sdk_cpu.kernels.signal_conv import SignalConvKernel

pytestmark = pytest.mark.skipif(not libraries.numba().is_usable, reason="products are compiled")


def reference(x, weight, bias, stride, pads):
    signal = np.pad(x.reshape(x.shape[0], -1).astype(np.float64), ((0, 0), pads))
    windows = np.lib.stride_tricks.sliding_window_view(signal, weight.shape[-1], axis=1)[:, ::stride]
    result = np.einsum("ntk,mk->nmt", windows, weight.reshape(weight.shape[0], -1).astype(np.float64))
    return result + (0 if bias is None else bias[None, :, None])


@pytest.mark.parametrize("outputs", [1, 16, 33, 130])
@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize(
    ("batch", "length", "taps", "stride", "pads"),
    [(1, 500, 40, 7, (0, 0)), (2, 333, 64, 1, (5, 9)), (1, 64, 64, 3, (0, 0)), (3, 100, 17, 50, (0, 3))],
)
@pytest.mark.parametrize("has_bias", [False, True])
def test_convolution(make_kernel, run_both, outputs, rank, batch, length, taps, stride, pads, has_bias):
    rng = np.random.default_rng(0)
    ones = (1,) * (rank - 3)
    x = rng.standard_normal((batch, 1, *ones, length), dtype=np.float32)
    weight = rng.standard_normal((outputs, 1, *ones, taps), dtype=np.float32)
    bias = rng.standard_normal(outputs, dtype=np.float32) if has_bias else None
    given = (x, weight) if bias is None else (x, weight, bias)
    zeros = (0,) * (rank - 3)
    attributes = {"strides": [*ones, stride], "pads": [*zeros, pads[0], *zeros, pads[1]]}
    constants = tuple(range(1, len(given)))
    kernel = make_kernel("Conv", given, attributes, "", None, constants, ())
    assert isinstance(kernel, SignalConvKernel)
    found, bound = run_both("Conv", *given, constants=constants, **attributes)
    expected = reference(x, weight, bias, stride, pads)
    for one in (found[0], bound[0]):
        np.testing.assert_allclose(one.reshape(expected.shape), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((20, 2, 9), {}),
        ((20, 1, 9), {"dilations": [2]}),
        ((20, 1, 9), {"auto_pad": "SAME_UPPER"}),
        ((20, 1, 3), {}),
        ((4, 1, 9), {}),
        ((20, 1, 3, 9), {}),
    ],
)
def test_others_are_left_to_other_kernels(make_kernel, run_both, shape, attributes):
    rng = np.random.default_rng(1)
    weight = rng.standard_normal(shape, dtype=np.float32)
    x = rng.standard_normal((1, shape[1], *(30,) * (len(shape) - 2)), dtype=np.float32)
    kernel = make_kernel("Conv", (x, weight), attributes, "", None, (1,), ())
    assert not isinstance(kernel, SignalConvKernel)
    found, bound = run_both("Conv", x, weight, constants=(1,), **attributes)
    np.testing.assert_allclose(bound[0], found[0], rtol=1e-4, atol=1e-5)
