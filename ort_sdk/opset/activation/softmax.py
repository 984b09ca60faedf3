"""Softmax, LogSoftmax and Hardmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ort_sdk.api import Array, Compute, KernelInfo
from ort_sdk.opset.axes import normalized_axis
from ort_sdk.opset.definition import operator

__all__ = ["along_axis"]


def along_axis(
    info: KernelInfo, xp: Any, function: Callable[[Array, int], Array], axis: int, is_coerced: bool
) -> Callable[[Array], Array]:
    """Apply along ``axis``; if the input is coerced, along all axes from it on, as if it were two-dimensional."""
    if not is_coerced:
        return lambda x: function(x, normalized_axis(axis, len(x.shape), info))
    reshape = xp.reshape

    def compute(x: Array) -> Array:
        start = axis if axis == len(x.shape) else normalized_axis(axis, len(x.shape), info)
        matrix = reshape(x, (math.prod(x.shape[:start]), math.prod(x.shape[start:])))
        return reshape(function(matrix, 1), x.shape)

    return compute


def _along_axis(info: KernelInfo, xp: Any, function: Callable[[Array, int], Array]) -> Compute:
    """Apply along the attribute ``axis``, which coerces the input before version 13."""
    is_coerced = info.since_version < 13
    return along_axis(info, xp, function, info.attribute("axis", 1 if is_coerced else -1), is_coerced)


@operator("Softmax")
def softmax(info: KernelInfo, xp: Any) -> Compute:
    """exp(x) over its sum along the axis."""
    return _along_axis(info, xp, xp.softmax)


@operator("LogSoftmax")
def log_softmax(info: KernelInfo, xp: Any) -> Compute:
    """Logarithm of Softmax."""
    exp, log, maximum, total = xp.exp, xp.log, xp.max, xp.sum

    def function(x: Array, axis: int) -> Array:
        if 0 in x.shape:
            return xp.asarray(x, copy=True)
        shifted = x - maximum(x, axis=axis, keepdims=True)
        return shifted - log(total(exp(shifted), axis=axis, keepdims=True))

    return _along_axis(info, xp, function)


@operator("Hardmax")
def hardmax(info: KernelInfo, xp: Any) -> Compute:
    """One at the first maximum along the axis, else zero."""
    element_type = info.output_element_type(0)

    def function(x: Array, axis: int) -> Array:
        if 0 in x.shape:
            return xp.asarray(x, copy=True)
        first = xp.argmax(x, axis=axis, keepdims=True)
        positions = xp.arange(x.shape[axis], dtype=first.dtype)
        return xp.astype(first == xp.reshape(positions, (-1,) + (1,) * (len(x.shape) - 1 - axis)), element_type)

    return _along_axis(info, xp, function)
