"""Convolutions on the device layer against float64, in the forms for processors and for GPUs."""

import itertools

import numpy as np
import pytest

from ort_sdk.api import InvalidArgument, KernelInfo, NodeArg
from ort_sdk.device.products.overrides import PRODUCT_OVERRIDES

from .device_contexts import CLASSES, host, launches_of, namespace

pytestmark = pytest.mark.opencl

EPSILON = {"f4": 2.0**-24, "f2": 2.0**-11}
CASES = [
    # x, weight, strides, dilations, pads, groups
    ((1, 1, 5), (1, 1, 3), (1,), (1,), (0, 0), 1),
    ((2, 3, 40), (5, 3, 3), (1,), (2,), (1, 2), 1),
    ((2, 3, 90), (5, 3, 4), (3,), (1,), (2, 0), 1),
    ((1, 3, 9, 11), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
    ((1, 2, 33, 34), (9, 2, 2, 3), (1, 1), (1, 1), (0, 0, 0, 0), 1),
    ((2, 4, 17, 33), (6, 2, 3, 5), (2, 3), (1, 2), (1, 0, 2, 3), 2),
    ((1, 8, 12, 12), (8, 1, 3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 8),
    ((2, 6, 13, 40), (12, 1, 3, 3), (2, 2), (1, 1), (0, 1, 1, 0), 6),
    ((1, 16, 20, 20), (33, 16, 1, 1), (1, 1), (1, 1), (0, 0, 0, 0), 1),
    ((1, 16, 5, 5), (13, 16, 1, 1), (1, 1), (1, 1), (0, 0, 0, 0), 1),
    ((3, 16, 20, 20), (13, 16, 1, 1), (2, 2), (1, 1), (0, 0, 0, 0), 1),
    ((1, 2, 6, 7, 8), (9, 2, 2, 3, 3), (1, 2, 1), (2, 1, 1), (1, 1, 0, 1, 1, 1), 1),
    ((1, 2, 5, 6, 17), (3, 2, 2, 2, 2), (1, 1, 1), (1, 1, 1), (0, 0, 0, 0, 0, 0), 1),
    ((1, 3, 30, 30), (64, 3, 7, 7), (2, 2), (1, 1), (3, 3, 3, 3), 1),
    ((1, 4, 8, 8), (16, 4, 3, 3), (3, 1), (2, 2), (2, 2, 2, 2), 1),
]


@pytest.fixture(params=CLASSES)
def xp(request):
    return namespace(request.param)


def _kernel(xp, op_type, dtype, domain="", **attributes):
    kind = {"f4": "tensor(float)", "f2": "tensor(float16)"}[dtype]
    info = KernelInfo(op_type, 11, domain, attributes=attributes, inputs=tuple(NodeArg(name, kind, None) for name in "xwbz"))
    return PRODUCT_OVERRIDES[domain, op_type](info, xp, None)


def _data(shape, dtype="f4", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _convolved(x, weight, strides, dilations, pads, groups):
    """Tap by tap, in float64."""
    rank, (batch, channels), outputs = x.ndim - 2, x.shape[:2], weight.shape[0]
    padded = np.pad(x.astype("f8"), [(0, 0), (0, 0), *((pads[axis], pads[axis + rank]) for axis in range(rank))])
    spans = [(weight.shape[2 + axis] - 1) * dilations[axis] + 1 for axis in range(rank)]
    output = [(padded.shape[2 + axis] - spans[axis]) // strides[axis] + 1 for axis in range(rank)]
    y = np.zeros((batch, outputs, *output))
    for tap in itertools.product(*map(range, weight.shape[2:])):
        starts = [index * dilation for index, dilation in zip(tap, dilations, strict=True)]
        cut = tuple(slice(s, s + (n - 1) * step + 1, step) for s, n, step in zip(starts, output, strides, strict=True))
        part = padded[(slice(None), slice(None), *cut)].reshape(batch, groups, channels // groups, *output)
        own = weight[(slice(None), slice(None), *tap)].astype("f8").reshape(groups, outputs // groups, channels // groups)
        y += np.einsum("ngc...,gmc->ngm...", part, own).reshape(y.shape)
    return y


def _transposed(x, weight, strides, dilations, pads, groups, extra):
    rank, batch, per_group = x.ndim - 2, x.shape[0], x.shape[1] // groups
    full = [(x.shape[2 + a] - 1) * strides[a] + (weight.shape[2 + a] - 1) * dilations[a] + 1 + extra[a] for a in range(rank)]
    y = np.zeros((batch, groups, weight.shape[1], *full))
    split = x.astype("f8").reshape(batch, groups, per_group, *x.shape[2:])
    for tap in itertools.product(*map(range, weight.shape[2:])):
        own = weight[(slice(None), slice(None), *tap)].astype("f8").reshape(groups, per_group, -1)
        starts = [index * dilation for index, dilation in zip(tap, dilations, strict=True)]
        cut = tuple(slice(s, s + (n - 1) * step + 1, step) for s, n, step in zip(starts, x.shape[2:], strides, strict=True))
        y[(slice(None), slice(None), slice(None), *cut)] += np.einsum("ngc...,gcm->ngm...", split, own)
    inner = tuple(slice(pads[a], full[a] - pads[a + rank]) for a in range(rank))
    return y.reshape(batch, -1, *full)[(slice(None), slice(None), *inner)]


def _assert_close(found, wanted, magnitudes, terms, rounded):
    """Sums are off by a rounding for each term, and by what the values that are rounded on the way lose."""
    error = np.abs(found - wanted)
    assert error.shape == wanted.shape
    assert (error <= (terms + 8) * EPSILON["f4"] * magnitudes + rounded).all()


@pytest.mark.parametrize(
    ("shape", "kernel", "strides", "dilations", "pads", "groups", "dtype"),
    [*((*case, "f4") for case in CASES), *((*case, "f2") for case in CASES[3:10:2])],
)
def test_convolutions_with_what_follows(xp, shape, kernel, strides, dilations, pads, groups, dtype):
    x, weight, bias = _data(shape, dtype), _data(kernel, dtype, 1), _data((kernel[0],), dtype, 2)
    convolve = _kernel(xp, "Conv", dtype, strides=strides, dilations=dilations, pads=pads, group=groups)
    geometry = (strides, dilations, pads, groups)
    wanted, magnitudes = _convolved(x, weight, *geometry), _convolved(np.abs(x), np.abs(weight), *geometry)
    rest = _data(wanted.shape, dtype, 3)
    y = convolve(*(xp.from_host(each) for each in (x, weight, bias)))
    assert y.dtype == x.dtype
    y = y + xp.from_host(rest)
    along = bias.astype("f8").reshape(1, -1, *(1 for _ in shape[2:]))
    terms = int(np.prod(kernel[1:]))
    magnitudes += np.abs(along) + np.abs(rest.astype("f8"))
    wanted = wanted + along
    _assert_close(host(y), wanted + rest, magnitudes, terms, EPSILON[dtype] * 1.01 * (np.abs(wanted) + np.abs(wanted + rest)))


def test_one_kernel_convolves_and_computes_what_follows(xp, monkeypatch):
    x, weight, bias = _data((2, 16, 20, 20)), _data((24, 16, 3, 3), seed=1), _data((24,), seed=2)
    rest = _data((2, 24, 20, 20), seed=3)
    convolve = _kernel(xp, "FusedConv", "f4", "com.microsoft", pads=(1, 1, 1, 1), activation="Relu")
    y = convolve(*(xp.from_host(each) for each in (x, weight, bias, rest)))
    names = launches_of(xp, monkeypatch)
    found = host(y)
    assert "elementwise" not in names
    wanted = _convolved(x, weight, (1, 1), (1, 1), (1, 1, 1, 1), 1) + bias.reshape(1, -1, 1, 1) + rest
    np.testing.assert_allclose(found, np.maximum(wanted, 0), rtol=1e-5, atol=1e-4)


def test_an_input_with_other_strides(xp):
    x, weight = _data((2, 9, 12, 8)), _data((16, 8, 3, 3), seed=1)
    convolve = _kernel(xp, "Conv", "f4", pads=(1, 0, 1, 0))
    found = host(convolve(xp.permute_dims(xp.from_host(x), (0, 3, 1, 2)), xp.from_host(weight)))
    wanted = _convolved(x.transpose(0, 3, 1, 2), weight, (1, 1), (1, 1), (1, 0, 1, 0), 1)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)


def test_pads_that_cut_the_input(xp):
    x, weight = _data((1, 3, 12, 12)), _data((4, 3, 3, 3), seed=1)
    found = host(_kernel(xp, "Conv", "f4", pads=(-1, 1, 0, -2))(xp.from_host(x), xp.from_host(weight)))
    wanted = _convolved(x[:, :, 1:, :-2], weight, (1, 1), (1, 1), (0, 1, 0, 0), 1)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", ["f4", "f2"])
@pytest.mark.parametrize(
    ("shape", "kernel", "strides", "dilations", "pads", "groups", "extra"),
    [
        ((1, 3, 7), (3, 2, 3), (2,), (1,), (0, 1), 1, (0,)),
        ((2, 4, 5, 6), (4, 3, 3, 3), (2, 2), (1, 1), (1, 1, 1, 1), 2, (1, 0)),
        ((1, 8, 9, 9), (8, 5, 2, 2), (2, 2), (1, 1), (0, 0, 0, 0), 1, (0, 0)),
        ((1, 2, 4, 5), (2, 3, 3, 2), (1, 3), (2, 1), (0, 1, 1, 0), 1, (0, 2)),
        ((1, 2, 3, 4, 5), (2, 3, 2, 2, 2), (2, 1, 1), (1, 1, 2), (0, 0, 0, 0, 0, 0), 1, (0, 0, 0)),
    ],
)
def test_transposed_convolutions(xp, shape, kernel, strides, dilations, pads, groups, extra, dtype):
    x, weight, bias = _data(shape, dtype), _data(kernel, dtype, 1), _data((kernel[1] * groups,), dtype, 2)
    attributes = {"strides": strides, "dilations": dilations, "pads": pads, "group": groups, "output_padding": extra}
    y = _kernel(xp, "ConvTranspose", dtype, **attributes)(*(xp.from_host(each) for each in (x, weight, bias)))
    assert y.dtype == x.dtype
    geometry = (strides, dilations, pads, groups, extra)
    along = bias.astype("f8").reshape(1, -1, *(1 for _ in shape[2:]))
    wanted, magnitudes = (
        _transposed(x, weight, *geometry) + along,
        _transposed(np.abs(x), np.abs(weight), *geometry) + np.abs(along),
    )
    _assert_close(host(y), wanted, magnitudes, shape[1] * int(np.prod(kernel[2:])), EPSILON[dtype] * np.abs(wanted))


def test_channels_that_do_not_fit_are_refused(xp):
    convolve = _kernel(xp, "Conv", "f4", group=2)
    with pytest.raises(InvalidArgument, match="M a multiple of group"):
        convolve(xp.from_host(_data((1, 4, 5, 5))), xp.from_host(_data((3, 2, 3, 3))))
    with pytest.raises(InvalidArgument, match="does not fit into an input"):
        _kernel(xp, "Conv", "f4")(xp.from_host(_data((1, 4, 2, 5))), xp.from_host(_data((3, 4, 3, 3))))


def test_other_types_are_left_to_the_shared_operators(xp):
    info = KernelInfo("Conv", 11, inputs=(NodeArg("x", "tensor(double)", None), NodeArg("w", "tensor(double)", None)))
    assert PRODUCT_OVERRIDES["", "Conv"](info, xp, None) is None
