"""Shapes of scales and zero points beside the quantized tensors they belong to."""

from __future__ import annotations

from ort_sdk.api import KernelInfo
from ort_sdk.opset.input_shapes import InputShapes, Shape

__all__ = [
    "conv_integer_shapes",
    "dynamic_product_shapes",
    "linear_shapes",
    "matmul_integer_shapes",
    "product_to_float_shapes",
    "qgemm_shapes",
    "qlinear_conv_shapes",
    "qlinear_matmul_shapes",
]


def linear_shapes(_info: KernelInfo, shapes: InputShapes) -> None:
    """Those of QuantizeLinear and DequantizeLinear: a zero point for each scale."""
    scale = shapes.of(1) or ()
    shapes.match(2, "zero_point", *([(), (1,)] if scale in {(), (1,)} else [scale]))


def conv_integer_shapes(info: KernelInfo, shapes: InputShapes) -> None:
    """Those of ConvInteger."""
    _match_convolution(info, shapes, 1)
    shapes.count(2, "x_zero_point", 1)
    _match_channels(shapes, 3, "w_zero_point", "outputs")


def qlinear_conv_shapes(info: KernelInfo, shapes: InputShapes) -> None:
    """Those of QLinearConv."""
    _match_convolution(info, shapes, 3)
    for index, name in ((1, "x_scale"), (2, "x_zero_point"), (6, "y_scale"), (7, "y_zero_point")):
        shapes.count(index, name, 1)
    _match_channels(shapes, 4, "w_scale", "outputs")
    _match_channels(shapes, 5, "w_zero_point", "outputs")
    shapes.match(8, "B", ("outputs",))


def _match_convolution(info: KernelInfo, shapes: InputShapes, weight: int) -> None:
    shapes.match(0, "x", ("batch", ..., "inputs") if info.attribute("channels_last", 0) else ("batch", "inputs", ...))
    shapes.match(weight, "w", ("outputs", "inputs of a group", *(None for _ in (shapes.of(0) or ())[2:])))


def _match_channels(shapes: InputShapes, index: int, name: str, channels: str) -> None:
    """One number for the whole tensor, or one for each channel."""
    shapes.match(index, name, (), (1,), (channels,))


def matmul_integer_shapes(_info: KernelInfo, shapes: InputShapes) -> None:
    """Those of MatMulInteger."""
    _match_rows(shapes, 0, (2, "a_zero_point"))
    _match_columns(shapes, 1, (3, "b_zero_point"))


def qlinear_matmul_shapes(_info: KernelInfo, shapes: InputShapes) -> None:
    """Those of QLinearMatMul."""
    _match_rows(shapes, 0, (1, "a_scale"), (2, "a_zero_point"))
    _match_columns(shapes, 3, (4, "b_scale"), (5, "b_zero_point"))
    _match_rows(shapes, 0, (6, "y_scale"), (7, "y_zero_point"))


def product_to_float_shapes(_info: KernelInfo, shapes: InputShapes) -> None:
    """Those of MatMulIntegerToFloat."""
    shapes.count(2, "a_scale", 1)
    shapes.count(4, "a_zero_point", 1)
    _match_columns(shapes, 1, (3, "b_scale"), (5, "b_zero_point"))
    _match_bias(shapes, 1, 6)


def dynamic_product_shapes(_info: KernelInfo, shapes: InputShapes) -> None:
    """Those of DynamicQuantizeMatMul."""
    _match_columns(shapes, 1, (2, "b_scale"), (3, "b_zero_point"))
    _match_bias(shapes, 1, 4)


def qgemm_shapes(info: KernelInfo, shapes: InputShapes) -> None:
    """Those of QGemm."""
    shapes.match(0, "A", ("inputs", "rows") if info.attribute("transA", 0) else ("rows", "inputs"))
    shapes.match(3, "B", ("columns", "inputs") if info.attribute("transB", 0) else ("inputs", "columns"))
    for index, name in ((1, "a_scale"), (2, "a_zero_point"), (7, "y_scale"), (8, "y_zero_point")):
        shapes.count(index, name, 1)
    _match_channels(shapes, 4, "b_scale", "columns")
    _match_channels(shapes, 5, "b_zero_point", "columns")
    shapes.spread(6, "C", (shapes["rows"], shapes["columns"]))


def _match_rows(shapes: InputShapes, matrix: int, *parameters: tuple[int, str]) -> None:
    """One number for a matrix, or one for each of its rows."""
    whole = shapes.of(matrix) or ()
    rows: Shape = (*whole[:-1], 1) if len(whole) > 1 else ()
    for index, name in parameters:
        shapes.match(index, name, (), (1,), rows[-2:-1] or (1,), rows)


def _match_columns(shapes: InputShapes, matrix: int, *parameters: tuple[int, str]) -> None:
    """One number for a matrix, or one for each of its columns."""
    whole = shapes.of(matrix) or ()
    columns: Shape = (*whole[:-2], 1, whole[-1]) if len(whole) > 1 else ()
    for index, name in parameters:
        shapes.match(index, name, (), (1,), columns[-1:] or (1,), columns)


def _match_bias(shapes: InputShapes, matrix: int, index: int) -> None:
    """One number for each column."""
    columns = (shapes.of(matrix) or (1,))[-1]
    shapes.match(index, "bias", (columns,), (1, columns))
