"""com.microsoft's Gaussian error linear units and their fusions with a bias."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from ort_sdk.api import Array, Compute, KernelInfo
from ort_sdk.opset.activation.gated import gelu as standard_gelu
from ort_sdk.opset.definition import operator
from ort_sdk.opset.input_shapes import InputShapes

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


def _biased_shapes(_info: KernelInfo, shapes: InputShapes) -> None:
    """A bias for each element along the last axis."""
    shapes.match(0, "X", (..., "width"))
    shapes.match(1, "bias", ("width",))


@operator("BiasGelu", domain=MICROSOFT, shapes=_biased_shapes)
def bias_gelu(_info: KernelInfo, xp: Any) -> Compute:
    """Gelu(A + B)."""
    activate = exact_gelu(xp)
    return lambda a, b: activate(a + b)


def _fast_gelu_shapes(info: KernelInfo, shapes: InputShapes) -> None:
    """The same, or no bias and any array."""
    if shapes.of(1) is not None:
        _biased_shapes(info, shapes)


@operator("FastGelu", domain=MICROSOFT, shapes=_fast_gelu_shapes)
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


def _split_shapes(_info: KernelInfo, shapes: InputShapes) -> None:
    """A bias for each element along the last axis, which has two halves."""
    shapes.match(0, "X", (..., "width"))
    shapes.match(1, "bias", ("width",))
    if shapes["width"] % 2:
        raise shapes.refused(f"X has {shapes['width']} elements along its last axis, which is odd")


@operator("BiasSplitGelu", domain=MICROSOFT, shapes=_split_shapes)
def bias_split_gelu(_info: KernelInfo, xp: Any) -> Compute:
    """Left half of X + bias, times the Gelu of its right half."""
    activate = exact_gelu(xp)

    def compute(x: Array, bias: Array) -> Array:
        total = x + bias
        half = total.shape[-1] // 2
        return total[..., :half] * activate(total[..., half:])

    return compute


def _skipped_shapes(_info: KernelInfo, shapes: InputShapes) -> None:
    """A bias along the last axis, and another array like the first."""
    shapes.match(0, "X", ("batch", "length", "width"))
    shapes.match(1, "bias", ("width",))
    shapes.match(2, "skip", ("batch", "length", "width"))


@operator("BiasAdd", domain=MICROSOFT, shapes=_skipped_shapes)
def bias_add(_info: KernelInfo, _xp: Any) -> Compute:
    """X + bias + skip."""
    return lambda x, bias, skip: x + bias + skip


def _bias_softmax_shapes(info: KernelInfo, shapes: InputShapes) -> None:
    """A bias that is repeated along the axes just before ``axis``, or along the leading ones."""
    shapes.match(0, "data", (...,))
    data, bias, axis = shapes.of(0) or (), shapes.of(1) or (), int(info.attribute("axis", 1))
    if not -len(data) <= axis < len(data):
        raise shapes.refused(f"axis is {axis}; data has {len(data)} axes")
    first = axis % len(data)
    shapes.spread(1, "bias", data)
    whole = (1,) * (len(data) - len(bias)) + bias
    parts = [(own, size) for own, size in zip(whole[:first], data[:first], strict=True)]
    order = parts if info.attribute("is_inner_broadcast") else parts[::-1]
    kept = sum(1 for _ in itertools.takewhile(lambda part: part[0] == part[1], order))
    if whole[first:] != data[first:] or any(own != 1 for own, _ in order[kept:]):
        raise shapes.refused(f"bias of shape {bias} is not repeated along neighbouring axes of data, shape {data}, before {axis}")


@operator("BiasSoftmax", domain=MICROSOFT, shapes=_bias_softmax_shapes)
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
