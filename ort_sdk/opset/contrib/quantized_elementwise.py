"""com.microsoft operators on 8-bit tensors that compute element by element: QLinearAdd, QLinearSigmoid and their kin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ort_sdk.api import Array, Compute, InvalidArgument, KernelInfo, TensorElementType
from ort_sdk.opset.activation.softmax import along_axis
from ort_sdk.opset.definition import operator
from ort_sdk.opset.quantization.saturation import saturating_cast

from .gelu import sigmoid

__all__ = ["dequantize", "requantize", "storage_type"]

MICROSOFT = "com.microsoft"
FLOAT = TensorElementType.FLOAT


def dequantize(xp: Any, values: Array, scale: Array, zero_point: Array | None) -> Array:
    """(values - zero_point) * scale in float32, with one scale for the whole tensor."""
    real = xp.astype(values, FLOAT)
    if zero_point is not None:
        real -= xp.astype(xp.reshape(zero_point, ()), FLOAT)
    real *= xp.reshape(scale, ())
    return real


def requantize(xp: Any, values: Array, scale: Array, zero_point: Array | None, element_type: TensorElementType) -> Array:
    """saturate(values / scale + zero_point), with one scale for the whole tensor."""
    shift = None if zero_point is None else xp.astype(xp.reshape(zero_point, ()), FLOAT)
    return saturating_cast(xp, xp.asarray(values / xp.reshape(scale, ())), element_type, shift)


def storage_type(info: KernelInfo, index: int = 0) -> TensorElementType:
    """Type of the output, or else of an input that has the same."""
    return info.output_element_type(0) or info.input_element_type(index) or TensorElementType.UINT8


def _binary(info: KernelInfo, xp: Any, function: Callable[[Array, Array], Array]) -> Compute:
    element_type = storage_type(info)

    def compute(
        a: Array,
        a_scale: Array,
        a_zero_point: Array | None,
        b: Array,
        b_scale: Array,
        b_zero_point: Array | None,
        c_scale: Array,
        c_zero_point: Array | None = None,
    ) -> Array:
        left, right = dequantize(xp, a, a_scale, a_zero_point), dequantize(xp, b, b_scale, b_zero_point)
        return requantize(xp, function(left, right), c_scale, c_zero_point, element_type)

    return compute


@operator("QLinearAdd", domain=MICROSOFT)
def qlinear_add(info: KernelInfo, xp: Any) -> Compute:
    """Quantised A + B."""
    return _binary(info, xp, xp.add)


@operator("QLinearMul", domain=MICROSOFT)
def qlinear_mul(info: KernelInfo, xp: Any) -> Compute:
    """Quantised A * B."""
    return _binary(info, xp, xp.multiply)


def _unary(info: KernelInfo, xp: Any, function: Callable[[Array], Array]) -> Compute:
    element_type = storage_type(info)

    def compute(x: Array, x_scale: Array, x_zero_point: Array | None, y_scale: Array, y_zero_point: Array | None = None) -> Array:
        return requantize(xp, function(dequantize(xp, x, x_scale, x_zero_point)), y_scale, y_zero_point, element_type)

    return compute


@operator("QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_leaky_relu(info: KernelInfo, xp: Any) -> Compute:
    """Quantised LeakyRelu."""
    alpha = info.attribute("alpha", 0.01)
    return _unary(info, xp, lambda x: xp.where(x >= 0, x, x * alpha))


@operator("QLinearSigmoid", domain=MICROSOFT)
def qlinear_sigmoid(info: KernelInfo, xp: Any) -> Compute:
    """Quantised Sigmoid."""
    return _unary(info, xp, lambda x: sigmoid(xp, x))


@operator("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(info: KernelInfo, xp: Any) -> Compute:
    """Quantised Softmax over ``axis``; over all axes from it on, if the attribute ``opset`` is below 13."""
    return _unary(info, xp, along_axis(info, xp, xp.softmax, info.attribute("axis", -1), info.attribute("opset") < 13))


@operator("QLinearReduceMean", domain=MICROSOFT)
def qlinear_reduce_mean(info: KernelInfo, xp: Any) -> Compute:
    """Quantised mean over ``axes``."""
    axes = tuple(info.attribute("axes")) or None
    keepdims = bool(info.attribute("keepdims"))
    return _unary(info, xp, lambda x: xp.mean(x, axis=axes, keepdims=keepdims))


@operator("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(info: KernelInfo, xp: Any) -> Compute:
    """Quantised mean over the spatial axes of NCHW or, with ``channels_last``, NHWC data."""
    channels_last = bool(info.attribute("channels_last", 0))

    def pool(x: Array) -> Array:
        axes = range(1, x.ndim - 1) if channels_last else range(2, x.ndim)
        return xp.mean(x, axis=tuple(axes), keepdims=True)

    return _unary(info, xp, pool)


@operator("QLinearWhere", domain=MICROSOFT)
def qlinear_where(info: KernelInfo, xp: Any) -> Compute:
    """Quantised Where: X or Y by a condition, each rescaled to Z's parameters."""
    element_type = storage_type(info, 1)

    def compute(
        condition: Array,
        x: Array,
        x_scale: Array,
        x_zero_point: Array,
        y: Array,
        y_scale: Array,
        y_zero_point: Array,
        z_scale: Array,
        z_zero_point: Array,
    ) -> Array:
        chosen = xp.where(condition, dequantize(xp, x, x_scale, x_zero_point), dequantize(xp, y, y_scale, y_zero_point))
        return requantize(xp, chosen, z_scale, z_zero_point, element_type)

    return compute


@operator("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(info: KernelInfo, xp: Any) -> Compute:
    """Concatenation of (tensor, scale, zero point) triples, each rescaled to Y's parameters."""
    axis = info.attribute("axis")
    element_type = storage_type(info, 1)
    _check_triples(info)

    def compute(y_scale: Array, y_zero_point: Array, *triples: Array) -> Array:
        if not triples or len(triples) % 3:
            raise InvalidArgument(
                f"{info.describe()}: {len(triples)} inputs after Y's are no (tensor, scale, zero point) triples"
            )
        parts = [
            requantize(xp, dequantize(xp, *triples[start : start + 3]), y_scale, y_zero_point, element_type)
            for start in range(0, len(triples), 3)
        ]
        return xp.concat(parts, axis=axis)

    return compute


def _check_triples(info: KernelInfo) -> None:
    """The schema allows any mix of types: raise InvalidArgument unless tensors are of bytes, and scales of floats."""
    quantized = (TensorElementType.UINT8, TensorElementType.INT8)
    for index in range(2, len(info.inputs)):
        allowed = (FLOAT,) if index % 3 == 0 else quantized
        found = info.input_element_type(index)
        if found is not None and found not in allowed:
            names = " or ".join(each.name.lower() for each in allowed)
            raise InvalidArgument(f"{info.describe()}: input {index} is {found.name.lower()}; must be {names}")


@operator("MulInteger", domain=MICROSOFT)
def mul_integer(_info: KernelInfo, xp: Any) -> Compute:
    """(A - A_zero_point) * (B - B_zero_point) in int32."""
    int32 = TensorElementType.INT32

    def centred(values: Array, zero_point: Array | None) -> Array:
        wide = xp.astype(values, int32)
        return wide if zero_point is None else wide - xp.astype(xp.reshape(zero_point, ()), int32)

    def compute(a: Array, a_zero_point: Array | None, b: Array, b_zero_point: Array | None = None) -> Array:
        return centred(a, a_zero_point) * centred(b, b_zero_point)

    return compute


@operator("ReduceSumInteger", domain=MICROSOFT)
def reduce_sum_integer(info: KernelInfo, xp: Any) -> Compute:
    """Sum of 8-bit integers over ``axes`` in 32 bits."""
    axes = tuple(info.attribute("axes")) or None
    keepdims = bool(info.attribute("keepdims"))
    dtype = xp.dtype(info.output_element_type(0) or TensorElementType.INT32)
    return lambda x: xp.sum(x, axis=axes, keepdims=keepdims, dtype=dtype)
