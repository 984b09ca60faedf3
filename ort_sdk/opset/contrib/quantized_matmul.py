"""com.microsoft GEMMs of quantized matrices: QGemm, DynamicQuantizeMatMul, MatMulIntegerToFloat, MatMulInteger16."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, KernelInfo, TensorElementType
from ort_sdk.opset.definition import operator
from ort_sdk.opset.quantization.linear import quantize_dynamically
from ort_sdk.opset.quantization.matmul import integer_matmul, per_column
from ort_sdk.opset.quantization.parameter_shapes import dynamic_product_shapes, product_to_float_shapes, qgemm_shapes
from ort_sdk.opset.quantization.saturation import saturating_cast

__all__ = ["dynamic_quantize_matmul", "matmul_integer_to_float", "qgemm"]

MICROSOFT = "com.microsoft"
FLOAT = TensorElementType.FLOAT


@operator("QGemm", domain=MICROSOFT, shapes=qgemm_shapes)
def qgemm(info: KernelInfo, xp: Any) -> Compute:
    """Alpha * a_scale * b_scale * (A @ B + C), in float32, or quantized if y_scale is given."""
    alpha = info.attribute("alpha", 1.0)
    trans_a, trans_b = bool(info.attribute("transA", 0)), bool(info.attribute("transB", 0))
    multiply = integer_matmul(info, xp, (0, 2), (3, 5), transposed=trans_b)
    output_type = info.output_element_type(0) or info.input_element_type(8) or FLOAT

    def compute(
        a: Array,
        a_scale: Array,
        a_zero_point: Array,
        b: Array,
        b_scale: Array,
        b_zero_point: Array,
        c: Array | None = None,
        y_scale: Array | None = None,
        y_zero_point: Array | None = None,
    ) -> Array:
        left, right = a.T if trans_a else a, b.T if trans_b else b
        sums = multiply(left, a_zero_point, right, b_zero_point)
        if c is not None:
            sums = sums + xp.module.astype(c, sums.dtype)
        scale = xp.reshape(a_scale, ()) * per_column(xp, b_scale) * alpha
        if y_scale is None:
            return xp.astype(sums, FLOAT) * scale
        shift = None if y_zero_point is None else xp.astype(xp.reshape(y_zero_point, ()), FLOAT)
        return saturating_cast(xp, xp.astype(sums, FLOAT) * (scale / xp.reshape(y_scale, ())), output_type, shift)

    return compute


@operator("DynamicQuantizeMatMul", domain=MICROSOFT, shapes=dynamic_product_shapes)
def dynamic_quantize_matmul(info: KernelInfo, xp: Any) -> Compute:
    """A, quantized to uint8 by its own range, times quantized B, plus bias, in float32."""
    multiply = integer_matmul(info, xp, 255, (1, 3))

    def compute(a: Array, b: Array, b_scale: Array, b_zero_point: Array | None = None, bias: Array | None = None) -> Array:
        quantized, a_scale, a_zero_point = quantize_dynamically(xp, a, TensorElementType.UINT8)
        sums = xp.astype(multiply(quantized, a_zero_point, b, b_zero_point), FLOAT)
        result = sums * (a_scale * per_column(xp, b_scale))
        return result if bias is None else result + bias

    return compute


@operator("MatMulIntegerToFloat", domain=MICROSOFT, shapes=product_to_float_shapes)
def matmul_integer_to_float(info: KernelInfo, xp: Any) -> Compute:
    """Quantized A times quantized B, plus bias, in floating point."""
    multiply = integer_matmul(info, xp, (0, 4), (1, 5))

    def compute(
        a: Array,
        b: Array,
        a_scale: Array,
        b_scale: Array,
        a_zero_point: Array | None = None,
        b_zero_point: Array | None = None,
        bias: Array | None = None,
    ) -> Array:
        sums = xp.astype(multiply(a, a_zero_point, b, b_zero_point), FLOAT)
        result = sums * (per_column(xp, a_scale) * per_column(xp, b_scale))
        return result if bias is None else result + bias

    return compute


@operator("MatMulInteger16", domain=MICROSOFT)
def matmul_integer16(info: KernelInfo, xp: Any) -> Compute:
    """A @ B of 16-bit integers, modulo 2**32."""
    output_type = info.output_element_type(0) or TensorElementType.INT32
    double = TensorElementType.DOUBLE

    def compute(a: Array, b: Array) -> Array:
        sums = xp.asarray(xp.matmul(xp.astype(a, double), xp.astype(b, double)))
        return xp.astype(xp.astype(sums, TensorElementType.INT64), output_type)

    return compute
