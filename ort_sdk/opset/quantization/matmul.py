"""MatMulInteger and QLinearMatMul."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ort_sdk.api import Array, Compute, KernelInfo, TensorElementType
from ort_sdk.opset.definition import operator

from .integer_gemm import IntegerGemm, centre, wrap_to_int32
from .parameter_shapes import matmul_integer_shapes, qlinear_matmul_shapes
from .saturation import float_cast, is_integer, saturating_cast

__all__ = ["integer_matmul", "matmul_integer", "output_type_of", "per_column", "per_row", "qlinear_matmul"]

FLOAT = TensorElementType.FLOAT


@operator("MatMulInteger", since=10, shapes=matmul_integer_shapes)
def matmul_integer(info: KernelInfo, xp: Any) -> Compute:
    """(A - a_zero_point) @ (B - b_zero_point) in int32; zero points per tensor, per row of A or per column of B."""
    multiply = integer_matmul(info, xp, (0, 2), (1, 3))

    def compute(a: Array, b: Array, a_zero_point: Array | None = None, b_zero_point: Array | None = None) -> Array:
        return wrap_to_int32(xp, multiply(a, a_zero_point, b, b_zero_point))

    return compute


@operator("QLinearMatMul", since=10, any_type=True, shapes=qlinear_matmul_shapes)
def qlinear_matmul(info: KernelInfo, xp: Any) -> Compute:
    """saturate(A @ B * a_scale * b_scale / y_scale + y_zero_point) of quantized matrices.

    Integer sums are exact; they are scaled in float32 as ONNX Runtime does.
    """
    multiply = integer_matmul(info, xp, (0, 2), (3, 5))
    output_type = output_type_of(info, 7)

    def finish(values: Array, zero_point: Array) -> Array:
        shift = xp.astype(per_row(xp, zero_point), FLOAT)
        if is_integer(output_type):
            return saturating_cast(xp, values, output_type, shift)
        return float_cast(xp, values + shift, output_type, saturate=True)

    def compute(
        a: Array,
        a_scale: Array,
        a_zero_point: Array,
        b: Array,
        b_scale: Array,
        b_zero_point: Array,
        y_scale: Array,
        y_zero_point: Array,
    ) -> Array:
        sums = xp.astype(multiply(a, a_zero_point, b, b_zero_point), FLOAT)
        a_scale, b_scale, y_scale = (xp.astype(scale, FLOAT) for scale in (a_scale, b_scale, y_scale))
        return finish(sums * (per_row(xp, a_scale) * per_column(xp, b_scale) / per_row(xp, y_scale)), y_zero_point)

    return compute


def integer_matmul(
    info: KernelInfo,
    xp: Any,
    first: tuple[int, int] | int,
    second: tuple[int, int],
    *,
    transposed: bool = False,
) -> Callable[[Array, Array | None, Array, Array | None], Array]:
    """A function ``(a, a_zero_point, b, b_zero_point) -> exact sums`` as float32 or float64 whole numbers.

    Args:
        info: the node.
        xp: array namespace.
        first: input indices of A and of its zero point, or the largest magnitude A minus its zero point can have.
        second: input indices of B and of its zero point.
        transposed: whether the node's B is the transpose of the matrix the function is called with.
    """
    bound = IntegerGemm(info, first, second, -1 if transposed else -2)
    matmul = xp.matmul

    def multiply(a: Array, a_zero_point: Array | None, b: Array, b_zero_point: Array | None) -> Array:
        element_type = bound.element_type(a.shape[-1])
        left = centre(xp, a, None if bound.first_is_centred else per_row(xp, a_zero_point), element_type)
        right = centre(xp, b, None if bound.second_is_centred else per_column(xp, b_zero_point), element_type)
        return xp.asarray(matmul(left, right))

    return multiply


def output_type_of(info: KernelInfo, zero_point_index: int) -> TensorElementType:
    """Type of a quantized output: declared, or that of its zero point, or uint8."""
    return info.output_element_type(0) or info.input_element_type(zero_point_index) or TensorElementType.UINT8


def per_row(xp: Any, parameter: Array | None) -> Any:
    """A scalar, vector or matrix of parameters laid out against the rows of a matrix."""
    if parameter is None or parameter.ndim != 1:
        return parameter
    return xp.reshape(parameter, () if parameter.shape[0] == 1 else (-1, 1))


def per_column(xp: Any, parameter: Array | None) -> Any:
    """A scalar, vector or matrix of parameters laid out against the columns of a matrix."""
    if parameter is None or parameter.ndim != 1 or parameter.shape[0] != 1:
        return parameter
    return xp.reshape(parameter, ())
