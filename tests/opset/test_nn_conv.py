"""Convolutions of ai.onnx against onnxruntime, and over another array library."""

from __future__ import annotations

import numpy as np
import pytest

from ort_sdk.api import InvalidArgument, InvalidGraph, TensorElementType
from tests.opset.library_kernel import run_kernel
from tests.opset.one_node import assert_same, compare, make_model, run_sdk

RNG = np.random.default_rng(3)
FLOAT = TensorElementType.FLOAT


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


CONVOLUTIONS = {
    "1d groups dilations": ([(2, 4, 11), (6, 2, 3), (6,)], {"group": 2, "dilations": [2], "pads": [1, 2], "strides": [2]}),
    "same upper": ([(2, 3, 9, 8), (5, 3, 3, 2)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "same lower": ([(2, 3, 9, 8), (5, 3, 3, 2)], {"auto_pad": "SAME_LOWER", "strides": [2, 1]}),
    "valid": ([(2, 3, 9, 8), (5, 3, 3, 2)], {"auto_pad": "VALID", "strides": [2, 1]}),
    "3d": ([(2, 3, 5, 6, 7), (4, 3, 3, 2, 2), (4,)], {"pads": [1, 0, 1, 1, 1, 0]}),
    "depthwise": ([(2, 6, 9, 8), (6, 1, 3, 3), (6,)], {"group": 6, "pads": [1, 1, 1, 1]}),
    "depthwise multiplied": ([(2, 6, 9, 8), (12, 1, 3, 3), (12,)], {"group": 6, "strides": [2, 2], "dilations": [2, 1]}),
    "depthwise in blocks": ([(2, 20, 60, 60), (40, 1, 3, 3), (40,)], {"group": 20, "pads": [1, 1, 1, 1]}),
    "pointwise": ([(2, 6, 9, 8), (12, 3, 1, 1), (12,)], {"group": 2}),
    "pointwise strided": ([(2, 6, 9, 8), (12, 3, 1, 1)], {"group": 2, "strides": [2, 3]}),
    "input cut off": ([(1, 2, 8, 8), (3, 2, 3, 3)], {"strides": [3, 3]}),
    "in blocks": ([(2, 16, 120, 120), (4, 16, 3, 3), (4,)], {"pads": [1, 1, 1, 1]}),
}


@pytest.mark.parametrize("opset", [1, 11, 22])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_conv(case, opset):
    shapes, attributes = CONVOLUTIONS[case]
    compare("Conv", [normal(*shape) for shape in shapes], opset=opset, attributes=attributes, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", [case for case in CONVOLUTIONS if case != "in blocks"])
def test_conv_over_another_library(case):
    shapes, attributes = CONVOLUTIONS[case]
    inputs = [normal(*shape, dtype=np.float64) for shape in shapes]
    (result,) = run_kernel("Conv", inputs, [TensorElementType.DOUBLE], opset=22, attributes=attributes)
    model, feeds = make_model("Conv", inputs, opset=22, attributes=attributes, output_types=[11])
    assert_same(result, run_sdk(model, feeds)[0], 1e-12, 1e-12)


def test_conv_in_half_precision_sums_in_single():
    x, w = normal(1, 600, 3, 3, dtype=np.float16), normal(2, 600, 3, 3, dtype=np.float16)
    (result,) = run_sdk(*make_model("Conv", [x, w], opset=22, output_types=[10]))
    exact = np.sum(x.astype(np.float64) * w.astype(np.float64), axis=(1, 2, 3))
    np.testing.assert_allclose(result.reshape(-1), exact, rtol=1e-3)


def test_conv_of_an_empty_batch():
    (result,) = run_sdk(*make_model("Conv", [normal(0, 3, 8, 8), normal(4, 3, 3, 3)], opset=22, output_types=[1]))
    assert result.shape == (0, 4, 6, 6)


@pytest.mark.parametrize(
    ("shapes", "attributes"),
    [
        ([(1, 3, 8, 8), (4, 2, 3, 3)], {}),
        ([(1, 4, 8, 8), (3, 2, 3, 3)], {"group": 2}),
        ([(1, 3, 8, 8), (4, 3, 3, 3)], {"kernel_shape": [2, 2]}),
        ([(1, 3, 8, 8), (4, 3, 3, 3)], {"strides": [1]}),
        ([(1, 3, 8, 8), (4, 3, 3, 3)], {"pads": [1, 1]}),
        ([(1, 3, 2, 2), (4, 3, 3, 3)], {}),
    ],
)
def test_conv_refuses_what_does_not_fit(shapes, attributes):
    with pytest.raises(InvalidArgument):
        run_kernel("Conv", [normal(*shape) for shape in shapes], [FLOAT], opset=22, attributes=attributes)


def test_unknown_auto_pad_is_refused():
    with pytest.raises(InvalidGraph, match="SAME_UPPER"):
        run_kernel("Conv", [normal(1, 1, 4, 4), normal(1, 1, 2, 2)], [FLOAT], opset=22, attributes={"auto_pad": "SAME"})


TRANSPOSED = {
    "groups": (
        [(2, 4, 5, 6), (4, 3, 3, 2), (6,)],
        {"group": 2, "strides": [2, 3], "pads": [1, 0, 1, 1], "output_padding": [1, 2], "dilations": [1, 2]},
    ),
    "shape beyond the windows": ([(2, 4, 5, 5), (4, 3, 3, 3), (3,)], {"strides": [2, 2], "output_shape": [12, 11]}),
    "1d shape": ([(2, 4, 5), (4, 3, 3)], {"strides": [2], "output_shape": [10]}),
    "shape": ([(2, 4, 5, 5), (4, 3, 3, 3)], {"strides": [2, 2], "output_shape": [8, 8]}),
    "shape upper": ([(2, 4, 5, 5), (4, 3, 3, 3)], {"strides": [2, 2], "output_shape": [8, 8], "auto_pad": "SAME_UPPER"}),
    "same upper": ([(2, 4, 5, 5), (4, 3, 4, 3)], {"strides": [1, 2], "auto_pad": "SAME_UPPER"}),
    "same lower": ([(2, 4, 5, 5), (4, 3, 4, 3)], {"strides": [1, 2], "auto_pad": "SAME_LOWER"}),
    "valid": ([(2, 4, 5, 5), (4, 3, 1, 1)], {"strides": [1, 3], "auto_pad": "VALID"}),
    "pointwise": ([(2, 4, 5, 5), (4, 3, 1, 1), (3,)], {}),
    "3d": ([(2, 4, 3, 4, 5), (4, 3, 3, 2, 2), (3,)], {"strides": [2, 1, 2], "pads": [1, 0, 0, 0, 1, 1]}),
}


@pytest.mark.parametrize("opset", [1, 11, 22])
@pytest.mark.parametrize("case", TRANSPOSED)
def test_conv_transpose(case, opset):
    shapes, attributes = TRANSPOSED[case]
    compare("ConvTranspose", [normal(*shape) for shape in shapes], opset=opset, attributes=attributes, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", TRANSPOSED)
def test_conv_transpose_over_another_library(case):
    shapes, attributes = TRANSPOSED[case]
    inputs = [normal(*shape) for shape in shapes]
    (result,) = run_kernel("ConvTranspose", inputs, [FLOAT], opset=22, attributes=attributes)
    model, feeds = make_model("ConvTranspose", inputs, opset=22, attributes=attributes, output_types=[1])
    assert_same(result, run_sdk(model, feeds)[0], 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("shapes", "attributes"),
    [
        ([(1, 3, 4, 4), (2, 3, 3, 3)], {}),
        ([(1, 4, 4, 4), (4, 3, 3, 3)], {"output_padding": [1]}),
        ([(1, 4, 4, 4), (4, 3, 3, 3)], {"strides": [2, 2], "output_shape": [11, 9]}),
    ],
)
def test_conv_transpose_refuses_what_does_not_fit(shapes, attributes):
    with pytest.raises(InvalidArgument):
        run_kernel("ConvTranspose", [normal(*shape) for shape in shapes], [FLOAT], opset=22, attributes=attributes)


@pytest.mark.parametrize("opset", [19, 22])
@pytest.mark.parametrize(("group", "offset_group"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_deform_conv(group, offset_group, opset):
    x, w, bias = normal(2, 4, 6, 6), normal(6, 4 // group, 3, 2), normal(6)
    offset = normal(2, offset_group * 12, 4, 5) * 2
    mask = RNG.random((2, offset_group * 6, 4, 5)).astype(np.float32)
    attributes = {"group": group, "offset_group": offset_group}
    for inputs in ([x, w, offset, bias, mask], [x, w, offset], [x, w, offset, None, mask]):
        compare("DeformConv", inputs, opset=opset, attributes=attributes, rtol=1e-4, atol=1e-4)


def test_deform_conv_without_offsets_is_conv():
    x, w = normal(1, 4, 4, 5, 3), normal(6, 2, 2, 2, 2)
    attributes = {"group": 2, "pads": [1, 0, 0, 0, 1, 0], "strides": [1, 2, 1], "dilations": [1, 1, 2]}
    (expected,) = run_kernel("Conv", [x, w], [FLOAT], opset=22, attributes=attributes)
    offset = np.zeros((1, 8 * 3, *expected.shape[2:]), np.float32)
    (result,) = run_kernel("DeformConv", [x, w, offset], [FLOAT], opset=22, attributes=attributes)
    assert_same(result, expected, 1e-5, 1e-5)


def test_deform_conv_refuses_offsets_of_another_shape():
    with pytest.raises(InvalidArgument, match="offset"):
        run_kernel("DeformConv", [normal(1, 1, 4, 4), normal(1, 1, 2, 2), normal(1, 8, 2, 2)], [FLOAT], opset=22)
