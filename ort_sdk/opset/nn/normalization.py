"""InstanceNormalization, LayerNormalization, GroupNormalization, RMSNormalization, MeanVarianceNormalization, LpNormalization."""

from __future__ import annotations

import math
from typing import Any

from ort_sdk.api import Array, Compute, InvalidArgument, KernelInfo
from ort_sdk.opset.axes import normalized_axes
from ort_sdk.opset.definition import operator
from ort_sdk.opset.input_shapes import InputShapes

__all__ = [
    "group_normalization",
    "instance_normalization",
    "layer_normalization",
    "lp_normalization",
    "mean_variance_normalization",
    "rms_normalization",
    "scale_shapes",
    "standardized",
]

EPSILON = 1e-5


def standardized(xp: Any, rows: Array, epsilon: float) -> tuple[Array, Array, Array]:
    """Zero mean and unit variance along the last axis.

    Returns:
        The standardized rows (new, may be written to), their mean, and the inverse of their standard deviation; the last two keep
        the reduced axis with size 1.
    """
    mean = xp.mean(rows, axis=-1, keepdims=True)
    centred = rows - mean
    variance = xp.expand_dims(xp.vecdot(centred, centred), axis=-1) / rows.shape[-1]
    inverse = 1 / xp.sqrt(variance + epsilon)
    centred *= inverse
    return centred, mean, inverse


def _rows(xp: Any, x: Array, axis: int) -> Array:
    """Axes from ``axis`` on flattened into one: (*leading, elements)."""
    return xp.reshape(x, (*x.shape[:axis], math.prod(x.shape[axis:])))


def _normalized_axis(info: KernelInfo, axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise InvalidArgument(f"{info.describe()}: axis is {axis}; for an input of rank {rank} it must be in [{-rank}, {rank})")
    return axis % rank


def _check_channels(info: KernelInfo, x: Array, scale: Array, bias: Array, expected: int) -> None:
    if tuple(scale.shape) != (expected,) or tuple(bias.shape) != (expected,):
        raise InvalidArgument(
            f"{info.describe()}: input has shape {list(x.shape)}, so scale and bias must have shape [{expected}];"
            f" they have {list(scale.shape)} and {list(bias.shape)}"
        )


def scale_shapes(info: KernelInfo, shapes: InputShapes) -> None:
    """Those of normalizations over the axes from ``axis`` on, whose scale and bias are broadcast to the data."""
    data = shapes.of(0) or ()
    _normalized_axis(info, int(info.attribute("axis", -1)), len(data))
    shapes.spread(1, "scale", data)
    shapes.spread(2, "bias", data)


@operator("LayerNormalization", shapes=scale_shapes)
def layer_normalization(info: KernelInfo, xp: Any) -> Compute:
    """Standardized over the axes from ``axis`` on, then scaled and shifted; also gives mean and inverse deviation."""
    axis = int(info.attribute("axis", -1))
    epsilon = float(info.attribute("epsilon", EPSILON))
    statistics = info.wants_output(1) or info.wants_output(2)
    statistics_type = info.output_element_type(1) or info.output_element_type(2)

    def compute(x: Array, scale: Array, bias: Array | None = None) -> Any:
        first = _normalized_axis(info, axis, x.ndim)
        y, mean, inverse = standardized(xp, _rows(xp, x, first), epsilon)
        y = xp.reshape(y, x.shape)
        y *= scale
        if bias is not None:
            y += bias
        if not statistics:
            return y
        shape = (*x.shape[:first], *(1 for _ in x.shape[first:]))
        return y, *(xp.astype(xp.reshape(value, shape), statistics_type) for value in (mean, inverse))

    return compute


@operator("RMSNormalization", shapes=scale_shapes)
def rms_normalization(info: KernelInfo, xp: Any) -> Compute:
    """Divided by the root of the mean square over the axes from ``axis`` on, then scaled."""
    axis = int(info.attribute("axis", -1))
    epsilon = float(info.attribute("epsilon", EPSILON))

    def compute(x: Array, scale: Array) -> Array:
        rows = _rows(xp, x, _normalized_axis(info, axis, x.ndim))
        square = xp.expand_dims(xp.vecdot(rows, rows), axis=-1) / rows.shape[-1]
        y = xp.module.astype(rows * (1 / xp.sqrt(square + epsilon)), scale.dtype, copy=False)
        y = xp.reshape(y, x.shape)
        y *= scale
        return y

    return compute


@operator("InstanceNormalization")
def instance_normalization(info: KernelInfo, xp: Any) -> Compute:
    """Standardized over the spatial axes of each channel, then scaled and shifted per channel."""
    epsilon = float(info.attribute("epsilon", EPSILON))

    def compute(x: Array, scale: Array, bias: Array) -> Array:
        _check_channels(info, x, scale, bias, x.shape[1])
        y, _, _ = standardized(xp, _rows(xp, x, 2), epsilon)
        y *= scale[:, None]
        y += bias[:, None]
        return xp.reshape(y, x.shape)

    return compute


@operator("GroupNormalization")
def group_normalization(info: KernelInfo, xp: Any) -> Compute:
    """Standardized over groups of channels, then scaled and shifted: per group in version 18, per channel since 21."""
    epsilon = float(info.attribute("epsilon", EPSILON))
    groups = int(info.attribute("num_groups"))
    per_group = info.since_version < 21

    def compute(x: Array, scale: Array, bias: Array) -> Array:
        batch, channels = x.shape[:2]
        if channels % groups:
            raise InvalidArgument(f"{info.describe()}: num_groups {groups} must divide the number of channels, {channels}")
        _check_channels(info, x, scale, bias, groups if per_group else channels)
        y, _, _ = standardized(xp, xp.reshape(x, (batch, groups, math.prod(x.shape[1:]) // groups)), epsilon)
        if not per_group:
            y = xp.reshape(y, (batch, channels, math.prod(x.shape[2:])))
        y *= scale[:, None]
        y += bias[:, None]
        return xp.reshape(y, x.shape)

    return compute


@operator("MeanVarianceNormalization", since=9)
def mean_variance_normalization(info: KernelInfo, xp: Any) -> Compute:
    """Zero mean and unit variance over ``axes``: all but the second of up to four, if none are given."""
    given = tuple(int(axis) for axis in info.attribute("axes", ()))

    def compute(x: Array) -> Array:
        axes = normalized_axes(given, x.ndim, info) or tuple(axis for axis in (0, 2, 3) if axis < x.ndim)
        centred = x - xp.mean(x, axis=axes, keepdims=True)
        deviation = xp.sqrt(xp.mean(centred * centred, axis=axes, keepdims=True))
        return centred / (deviation + 1e-9)

    return compute


@operator("LpNormalization")
def lp_normalization(info: KernelInfo, xp: Any) -> Compute:
    """Divided by the 1- or 2-norm along an axis; zeros where the norm is zero."""
    axis = int(info.attribute("axis", -1))
    p = int(info.attribute("p", 2))
    if p not in (1, 2):
        raise InvalidArgument(f"{info.describe()}: p is {p}; it must be 1 or 2")

    def compute(x: Array) -> Array:
        along = normalized_axes((axis,), x.ndim, info)[0]
        norm = xp.sum(xp.abs(x) if p == 1 else x * x, axis=along, keepdims=True)
        norm = norm if p == 1 else xp.sqrt(norm)
        return x / xp.where(norm == 0, xp.ones_like(norm), norm)

    return compute
