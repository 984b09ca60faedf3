"""Normalisations of ONNX Runtime: simplified (RMS), fused with a skip connection, and over groups of channels."""

from __future__ import annotations

import math
from typing import Any

from ort_sdk.api import Array, Compute, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator
from ort_sdk.opset.input_shapes import InputShapes, Pattern
from ort_sdk.opset.nn.normalization import scale_shapes, standardized

from .gelu import sigmoid

__all__ = ["root_mean_square_normalized"]

MICROSOFT = "com.microsoft"


def root_mean_square_normalized(xp: Any, rows: Array, epsilon: float) -> tuple[Array, Array]:
    """Rows divided by the root of the mean square along the last axis (new, may be written to), and the factor used.

    The factor keeps the last axis with size 1.
    """
    square = xp.expand_dims(xp.vecdot(rows, rows), axis=-1) / rows.shape[-1]
    inverse = 1 / xp.sqrt(square + epsilon)
    return rows * inverse, inverse


@operator("SimplifiedLayerNormalization", shapes=scale_shapes)
def simplified_layer_normalization(info: KernelInfo, xp: Any) -> Compute:
    """X divided by its root mean square over the axes from ``axis`` on, times a scale; optionally the factor."""
    axis, epsilon = info.attribute("axis", -1), info.attribute("epsilon", 1e-5)
    wants_inverse = info.wants_output(1)
    dtype = xp.dtype(info.output_element_type(0) or info.input_element_type(0))

    def compute(x: Array, scale: Array) -> Any:
        first = axis % x.ndim
        rows = xp.reshape(x, (*x.shape[:first], math.prod(x.shape[first:])))
        normalized, inverse = root_mean_square_normalized(xp, rows, epsilon)
        y = xp.module.astype(xp.reshape(normalized, x.shape), dtype, copy=False) * xp.module.astype(scale, dtype, copy=False)
        if not wants_inverse:
            return y
        kept = xp.reshape(inverse, (*x.shape[:first], *(1 for _ in x.shape[first:])))
        return y, xp.astype(kept, info.output_element_type(1))

    return compute


def _skip_shapes(_info: KernelInfo, shapes: InputShapes) -> None:
    """Another array like the first, or for all samples; further inputs are vectors along the last axis."""
    if shapes.match(0, "input", ("batch", "length", "width"), ("length", "width")):
        shapes.match(1, "skip", ("length", "width"))
    else:
        shapes.match(1, "skip", ("batch", "length", "width"), (1, "length", "width"), ("length", "width"))
    for index, name in enumerate(("gamma", "beta", "bias"), 2):
        shapes.match(index, name, ("width",))


def _sum(x: Array, skip: Array, bias: Array | None) -> Array:
    total = x + skip
    if bias is not None:
        total += bias
    return total


@operator("SkipLayerNormalization", domain=MICROSOFT, shapes=_skip_shapes)
def skip_layer_normalization(info: KernelInfo, xp: Any) -> Compute:
    """LayerNormalization of input + skip + bias; the sum is output 3."""
    epsilon = info.attribute("epsilon", 1e-12)
    outputs = len(info.outputs)

    def compute(x: Array, skip: Array, gamma: Array, beta: Array | None = None, bias: Array | None = None) -> Any:
        total = _sum(x, skip, bias)
        y, mean, inverse = standardized(xp, total, epsilon)
        y *= gamma
        if beta is not None:
            y += beta
        return y if outputs < 2 else (y, mean, inverse, total)[:outputs]

    return compute


@operator("SkipSimplifiedLayerNormalization", domain=MICROSOFT, shapes=_skip_shapes)
def skip_simplified_layer_normalization(info: KernelInfo, xp: Any) -> Compute:
    """SimplifiedLayerNormalization of input + skip + bias; the sum is output 3."""
    epsilon = info.attribute("epsilon", 1e-12)
    outputs = len(info.outputs)

    def compute(x: Array, skip: Array, gamma: Array, bias: Array | None = None) -> Any:
        total = _sum(x, skip, bias)
        y, inverse = root_mean_square_normalized(xp, total, epsilon)
        y *= gamma
        return y if outputs < 2 else (y, xp.mean(total, axis=-1, keepdims=True), inverse, total)[:outputs]

    return compute


@operator("GatedRMSNorm", domain=MICROSOFT)
def gated_rms_norm(info: KernelInfo, xp: Any) -> Compute:
    """RMS normalisation over groups as long as ``scale``, times silu (or sigmoid) of a gate."""
    epsilon = info.attribute("epsilon", 1e-5)
    is_sigmoid = info.attribute("activation", "silu") == "sigmoid"

    def compute(x: Array, scale: Array, gate: Array) -> Array:
        rows = xp.reshape(x, (*x.shape[:-1], -1, scale.shape[0]))
        normalized = xp.reshape(root_mean_square_normalized(xp, rows, epsilon)[0] * scale, x.shape)
        opening = sigmoid(xp, gate)
        return normalized * (opening if is_sigmoid else opening * gate)

    return compute


def _group_shapes(info: KernelInfo, shapes: InputShapes) -> None:
    """Data, then a scale and a shift for each channel."""
    shapes.match(0, "X", ("batch", ..., "channels") if info.attribute("channels_last", 1) else ("batch", "channels", ...))
    shapes.match(1, "gamma", ("channels",))
    shapes.match(2, "beta", ("channels",))


@operator("GroupNorm", domain=MICROSOFT, shapes=_group_shapes)
def group_norm(info: KernelInfo, xp: Any) -> Compute:
    """Normalisation over groups of channels of NHWC (or NCHW) data, scaled per channel, then optionally SiLU."""
    return _group_normalizer(info, xp)


def _skip_group_shapes(info: KernelInfo, shapes: InputShapes) -> None:
    """The same with another array like the first, or with one pixel of it, and a bias for each channel."""
    _group_shapes(info, shapes)
    data = shapes.of(0) or ()
    ones = (1,) * (len(data) - 2)
    pixel: Pattern = ("batch", *ones, "channels") if info.attribute("channels_last", 1) else ("batch", "channels", *ones)
    shapes.match(3, "skip", data, pixel, ("batch", "channels"))
    shapes.match(4, "bias", ("channels",))


@operator("SkipGroupNorm", domain=MICROSOFT, shapes=_skip_group_shapes)
def skip_group_norm(info: KernelInfo, xp: Any) -> Compute:
    """GroupNorm of X + skip + bias; the sum is output 1."""
    normalize = _group_normalizer(info, xp)
    channels_last = bool(info.attribute("channels_last", 1))
    wants_sum = info.wants_output(1)

    def compute(x: Array, gamma: Array, beta: Array, skip: Array, bias: Array | None = None) -> Any:
        spatial = (1,) * (x.ndim - 2)
        if skip.ndim == 2:
            batch, channels = skip.shape
            skip = xp.reshape(skip, (batch, *spatial, channels) if channels_last else (batch, channels, *spatial))
        total = x + skip
        if bias is not None:
            total = total + (bias if channels_last else xp.reshape(bias, (-1, *spatial)))
        y = normalize(total, gamma, beta)
        return (y, total) if wants_sum else y

    return compute


def _group_normalizer(info: KernelInfo, xp: Any) -> Compute:
    epsilon, groups = info.attribute("epsilon", 1e-5), info.attribute("groups")
    channels_last = bool(info.attribute("channels_last", 1))
    has_silu = info.attribute("activation") == 1

    def normalize(x: Array, gamma: Array, beta: Array) -> Array:
        data = xp.moveaxis(x, -1, 1) if channels_last else x
        batch, channels = data.shape[:2]
        if channels % groups:
            raise InvalidArgument(
                f"{info.describe()}: attribute 'groups' is {groups}; it must divide the {channels} channels of X"
            )
        y, _, _ = standardized(xp, xp.reshape(data, (batch, groups, math.prod(data.shape[1:]) // groups)), epsilon)
        shape = (-1, *(1 for _ in data.shape[2:]))
        gamma, beta = (xp.module.astype(value, x.dtype, copy=False) for value in (gamma, beta))
        y = xp.reshape(y, data.shape) * xp.reshape(gamma, shape) + xp.reshape(beta, shape)
        y = y * sigmoid(xp, y) if has_silu else y
        return xp.moveaxis(y, 1, -1) if channels_last else y

    return normalize
