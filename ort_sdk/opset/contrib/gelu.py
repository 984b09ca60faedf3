"""com.microsoft's Gaussian error linear units and their fusions with a bias."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ort_sdk.api import Array, Compute, KernelInfo
from ort_sdk.opset.activation.gated import gelu as standard_gelu
from ort_sdk.opset.definition import operator

__all__ = ["exact_gelu", "sigmoid", "tanh_gelu"]

MICROSOFT = "com.microsoft"


def exact_gelu(xp: Any) -> Callable[[Array], Array]:
    """X * Phi(x) with the error function."""
    return standard_gelu(KernelInfo("Gelu", 20), xp)


def tanh_gelu(xp: Any) -> Callable[[Array], Array]:
    """X * Phi(x) approximated with tanh."""
    return standard_gelu(KernelInfo("Gelu", 20, attributes={"approximate": "tanh"}), xp)


def sigmoid(xp: Any, x: Array) -> Array:
    """1 / (1 + exp(-x)); the exponential may overflow to infinity, which gives the right 0."""
    return 1.0 / (xp.exp(-x) + 1.0)


@operator("Gelu", domain=MICROSOFT)
def gelu(_info: KernelInfo, xp: Any) -> Compute:
    """X * Phi(x)."""
    return exact_gelu(xp)


@operator("BiasGelu", domain=MICROSOFT)
def bias_gelu(_info: KernelInfo, xp: Any) -> Compute:
    """Gelu(A + B)."""
    activate = exact_gelu(xp)
    return lambda a, b: activate(a + b)


@operator("FastGelu", domain=MICROSOFT)
def fast_gelu(_info: KernelInfo, xp: Any) -> Compute:
    """Gelu(X + bias) by its tanh approximation."""
    activate = tanh_gelu(xp)

    def compute(x: Array, bias: Array | None = None) -> Array:
        return activate(x if bias is None else x + bias)

    return compute


@operator("QuickGelu", domain=MICROSOFT)
def quick_gelu(info: KernelInfo, xp: Any) -> Compute:
    """X * sigmoid(alpha * x)."""
    alpha = info.attribute("alpha", 1.702)
    return lambda x: x * sigmoid(xp, x * alpha)


@operator("ScaledSiLU", domain=MICROSOFT)
def scaled_silu(info: KernelInfo, xp: Any) -> Compute:
    """Z * sigmoid(z) for z = scale * X, where the scalar input replaces the attribute ``alpha``."""
    alpha = info.attribute("alpha", 1.0)

    def compute(x: Array, scale: Array | None = None) -> Array:
        scaled = x * (alpha if scale is None else xp.module.astype(xp.reshape(scale, ()), x.dtype))
        return scaled * sigmoid(xp, scaled)

    return compute


@operator("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(_info: KernelInfo, xp: Any) -> Compute:
    """Left half of X + bias, times the Gelu of its right half."""
    activate = exact_gelu(xp)

    def compute(x: Array, bias: Array) -> Array:
        total = x + bias
        half = total.shape[-1] // 2
        return total[..., :half] * activate(total[..., half:])

    return compute


@operator("BiasAdd", domain=MICROSOFT)
def bias_add(_info: KernelInfo, _xp: Any) -> Compute:
    """X + bias + skip."""
    return lambda x, bias, skip: x + bias + skip


@operator("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(info: KernelInfo, xp: Any) -> Compute:
    """Softmax(data + bias) over the axes from ``axis`` on.

    The bias lacks, or has as 1, either the axes just before ``axis`` (``is_inner_broadcast``) or the leading ones.
    """
    axis = info.attribute("axis", 1)
    inner = bool(info.attribute("is_inner_broadcast"))

    def compute(data: Array, bias: Array) -> Array:
        first = axis % data.ndim
        shape = tuple(data.shape)
        columns = math.prod(shape[first:])
        rows = math.prod(shape[:first])
        groups = max(math.prod(bias.shape) // max(columns, 1), 1)
        layout = (groups, rows // groups, columns) if inner else (rows // groups, groups, columns)
        bias_layout = (groups, 1, columns) if inner else (1, groups, columns)
        scores = xp.reshape(data, layout) + xp.reshape(bias, bias_layout)
        return xp.reshape(xp.softmax(scores, axis=-1), shape)

    return compute


@operator("BiasDropout", domain=MICROSOFT)
def bias_dropout(info: KernelInfo, xp: Any) -> Compute:
    """Inference form of dropout(data + bias) + residual: nothing is dropped, the mask is all true."""
    wants_mask = info.wants_output(1)

    def compute(data: Array, bias: Array, residual: Array | None = None, *_ratio_and_mode: Array | None) -> Any:
        total = data + bias
        total = total if residual is None else total + residual
        return (total, xp.ones(total.shape, dtype=xp.bool)) if wants_mask else total

    return compute
