"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ort_sdk.api import Array, Compute, KernelInfo, TensorElementType
from ort_sdk.opset.definition import operator

from .granularity import Granularity
from .parameter_shapes import linear_shapes
from .saturation import float_cast, is_integer, saturating_cast

__all__ = ["dequantize_linear", "dynamic_quantize_linear", "quantize_linear"]

FLOAT = TensorElementType.FLOAT
DOUBLE = TensorElementType.DOUBLE
INT32 = TensorElementType.INT32


@operator("QuantizeLinear", since=10, any_type=True, shapes=linear_shapes)
@operator("QuantizeLinear", domain="com.microsoft", any_type=True, shapes=linear_shapes)
def quantize_linear(info: KernelInfo, xp: Any) -> Compute:
    """saturate(x / y_scale + y_zero_point).

    The quotient is taken in float32 (float64 where x and scale are integers) and rounded to the attribute ``precision``
    if the node gives one. ONNX Runtime divides float16 in float32 as well.
    """
    output_type = _quantized_type(info)
    saturate = bool(info.attribute("saturate", 1)) or output_type is TensorElementType.FLOAT4E2M1
    granularity = _granularity(info, xp)
    divide = _divider(info, xp)

    def compute(x: Array, scale: Array, zero_point: Array | None = None) -> Array:
        shape = tuple(x.shape)
        quotient = divide(x, granularity.expand(scale, shape))
        shift = None if zero_point is None else xp.astype(granularity.expand(zero_point, shape), FLOAT)
        if is_integer(output_type):
            return saturating_cast(xp, quotient, output_type, shift)
        return float_cast(xp, quotient if shift is None else quotient + shift, output_type, saturate=saturate)

    return compute


@operator("DequantizeLinear", since=10, any_type=True, shapes=linear_shapes)
@operator("DequantizeLinear", domain="com.microsoft", any_type=True, shapes=linear_shapes)
def dequantize_linear(info: KernelInfo, xp: Any) -> Compute:
    """(x - x_zero_point) * x_scale, computed in float32 and cast once to the output type."""
    output_type = TensorElementType(info.attribute("output_dtype", 0) or info.input_element_type(1) or FLOAT)
    subtract_first = info.input_element_type(0) is INT32
    granularity = _granularity(info, xp)

    def compute(x: Array, scale: Array, zero_point: Array | None = None) -> Array:
        shape = tuple(x.shape)
        if zero_point is None:
            centred = xp.astype(x, FLOAT)
        elif subtract_first:
            centred = xp.astype(x - granularity.expand(zero_point, shape), FLOAT)
        else:
            centred = xp.astype(x, FLOAT)
            centred -= xp.astype(granularity.expand(zero_point, shape), FLOAT)
        centred *= granularity.expand(xp.astype(scale, FLOAT), shape)
        return xp.astype(centred, output_type)

    return compute


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(_info: KernelInfo, xp: Any) -> Compute:
    """X in uint8 with the scale and zero point that cover its range and zero; (y, y_scale, y_zero_point)."""
    return lambda x: quantize_dynamically(xp, x, TensorElementType.UINT8)


def quantize_dynamically(xp: Any, x: Array, element_type: TensorElementType) -> tuple[Array, Array, Array]:
    """A float32 array as 8-bit integers with one scale: (values, scale, zero point), scalars as 0-d arrays.

    Args:
        xp: array namespace.
        x: array to quantize.
        element_type: UINT8, or INT8, whose range is used without -128 and with zero point 0.
    """
    zero = xp.zeros((), dtype=x.dtype)
    is_empty = 0 in x.shape
    if element_type is TensorElementType.INT8:
        largest = zero if is_empty else xp.asarray(xp.max(xp.abs(x)))
        scale = xp.where(largest == 0, xp.ones_like(largest), largest / 127)
        return saturating_cast(xp, x / scale, element_type), scale, xp.zeros((), dtype=xp.int8)
    low, high = (zero, zero) if is_empty else (xp.minimum(xp.min(x), zero), xp.maximum(xp.max(x), zero))
    scale = xp.where(low == high, xp.ones_like(zero), (high - low) / 255)
    zero_point = xp.round(xp.clip(-low / scale, 0, 255))
    quantized = saturating_cast(xp, x / scale, element_type, zero_point)
    return quantized, xp.asarray(scale), xp.astype(xp.asarray(zero_point), element_type)


def _quantized_type(info: KernelInfo) -> TensorElementType:
    chosen = info.attribute("output_dtype", 0) or info.input_element_type(2) or info.output_element_type(0)
    return TensorElementType(chosen or TensorElementType.UINT8)


def _granularity(info: KernelInfo, xp: Any) -> Granularity:
    return Granularity(xp, info.attribute("axis", 1), info.attribute("block_size", 0), info.describe())


def _divider(info: KernelInfo, xp: Any) -> Callable[[Array, Array], Array]:
    integers = info.input_element_type(0) is INT32 and info.input_element_type(1) is INT32
    wide = DOUBLE if integers else FLOAT
    precision = TensorElementType(info.attribute("precision", 0))
    rounds = precision not in {TensorElementType.UNDEFINED, FLOAT, DOUBLE}

    def divide(x: Array, scale: Array) -> Array:
        quotient = xp.asarray(xp.astype(x, wide) / xp.astype(scale, wide))
        return xp.astype(xp.astype(quotient, precision), wide) if rounds else quotient

    return divide
