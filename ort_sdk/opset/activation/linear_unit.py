"""Rectifiers with a negative side or a threshold: LeakyRelu, PRelu, Elu, Selu, Celu, ThresholdedRelu, Shrink."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, KernelInfo, TensorElementType
from ort_sdk.opset.definition import operator

__all__: list[str] = []


def _zero(info: KernelInfo, xp: Any) -> Array:
    return xp.asarray(0, dtype=xp.dtype(info.input_element_type(0)))


@operator("LeakyRelu")
def leaky_relu(info: KernelInfo, xp: Any) -> Compute:
    """X, and alpha·x where x < 0."""
    alpha = info.attribute("alpha", 0.01)
    maximum, where, zero = xp.maximum, xp.where, _zero(info, xp)
    if 0 < alpha <= 1:
        return lambda x: maximum(x, x * alpha)
    return lambda x: where(x < zero, x * alpha, x)


@operator("PRelu", until=6)
def prelu_by_channel(info: KernelInfo, xp: Any) -> Compute:
    """X, and slope·x where x < 0, with one slope or one per channel (axis 1)."""
    reshape, where, zero = xp.reshape, xp.where, _zero(info, xp)

    def compute(x: Array, slope: Array) -> Array:
        if slope.shape != x.shape and len(x.shape) > 1:
            slope = reshape(slope, (-1,) + (1,) * (len(x.shape) - 2))
        return where(x < zero, x * slope, x)

    return compute


@operator("PRelu", since=7)
def prelu(info: KernelInfo, xp: Any) -> Compute:
    """X, and slope·x where x < 0; slope broadcasts to x."""
    where, zero = xp.where, _zero(info, xp)
    return lambda x, slope: where(x < zero, x * slope, x)


@operator("Elu")
def elu(info: KernelInfo, xp: Any) -> Compute:
    """X, and alpha·(exp(x) - 1) where x < 0."""
    alpha = info.attribute("alpha", 1.0)
    expm1, maximum, minimum, zero = xp.expm1, xp.maximum, xp.minimum, _zero(info, xp)
    return lambda x: maximum(x, zero) + expm1(minimum(x, zero)) * alpha


@operator("Selu")
def selu(info: KernelInfo, xp: Any) -> Compute:
    """gamma·x, and gamma·alpha·(exp(x) - 1) where x <= 0."""
    rounded = info.since_version < 6
    alpha = info.attribute("alpha", 1.6732 if rounded else 1.67326319217681884765625)
    gamma = info.attribute("gamma", 1.0507 if rounded else 1.05070102214813232421875)
    expm1, maximum, minimum, zero = xp.expm1, xp.maximum, xp.minimum, _zero(info, xp)
    scale = alpha * gamma
    return lambda x: maximum(x, zero) * gamma + expm1(minimum(x, zero)) * scale


@operator("Celu")
def celu(info: KernelInfo, xp: Any) -> Compute:
    """max(0, x) + min(0, alpha·(exp(x/alpha) - 1))."""
    alpha = info.attribute("alpha", 1.0)
    expm1, maximum, minimum, zero = xp.expm1, xp.maximum, xp.minimum, _zero(info, xp)
    return lambda x: maximum(x, zero) + expm1(minimum(x, zero) / alpha) * alpha


@operator("ThresholdedRelu")
def thresholded_relu(info: KernelInfo, xp: Any) -> Compute:
    """X where x > alpha, else 0."""
    alpha = info.attribute("alpha", 1.0)
    where, zero = xp.where, _zero(info, xp)
    return lambda x: where(x > alpha, x, zero)


@operator("Shrink")
def shrink(info: KernelInfo, xp: Any) -> Compute:
    """X + bias below -lambd, x - bias above lambd, 0 between; integers are computed as double and truncated."""
    element_type = info.input_element_type(0)
    lambd, bias = info.attribute("lambd", 0.5), info.attribute("bias", 0.0)
    is_float = xp.isdtype(xp.dtype(element_type), "real floating")
    work_type = element_type if is_float else TensorElementType.DOUBLE
    astype, where, zero = xp.astype, xp.where, xp.asarray(0, dtype=xp.dtype(work_type))

    def compute(x: Array) -> Array:
        wide = astype(x, work_type)
        return astype(where(wide < -lambd, wide + bias, where(wide > lambd, wide - bias, zero)), element_type)

    return compute
