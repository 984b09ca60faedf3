"""AveragePool, MaxPool and LpPool: windows are reduced one axis after the other, tap by tap on strided views."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo, TensorElementType
from ort_sdk.opset.definition import operator

from .windows import WindowAttributes, Windows, padded

__all__ = ["along_axis", "average_pool", "lp_pool", "max_pool", "window_counts"]

Combine = Callable[[Array, Array], Array]


@operator("AveragePool")
def average_pool(info: KernelInfo, xp: Any) -> Compute:
    """Mean of each window; padding counts only if ``count_include_pad`` is set."""
    attributes = WindowAttributes.of(info)
    include_pad = bool(info.attribute("count_include_pad", 0))
    dtype = (info.input_element_type(0) or TensorElementType.FLOAT).numpy_dtype

    def compute(x: Array) -> Array:
        windows = _windows(info, attributes, x)
        if 0 in windows.output_shape:
            return _nothing(xp, x, windows)
        total = _reduce(xp, x, windows.trimmed(), xp.add, 0.0)
        counts = window_counts(windows, include_pad, dtype)
        for axis, count in enumerate(counts):
            total = total / xp.reshape(xp.from_host(count), (-1, *(1 for _ in counts[axis + 1 :])))
        return total

    return compute


@functools.lru_cache(maxsize=1024)
def window_counts(windows: Windows, include_pad: bool, dtype: np.dtype[Any]) -> list[HostArray]:
    """Per axis, how many positions of each window count. A window of padding alone counts one, so that its mean is zero."""
    counts = []
    for axis, size in enumerate(windows.input_shape):
        positions = windows.tap_positions(axis)
        low, high = (-windows.pads_begin[axis], size + windows.pads_end[axis]) if include_pad else (0, size)
        counts.append(np.maximum(np.sum((positions >= low) & (positions < high), axis=0), 1).astype(dtype))
    return counts


@operator("LpPool")
def lp_pool(info: KernelInfo, xp: Any) -> Compute:
    """p-norm of each window."""
    attributes = WindowAttributes.of(info)
    p = float(info.attribute("p", 2))

    def compute(x: Array) -> Array:
        windows = _windows(info, attributes, x).trimmed()
        if 0 in windows.output_shape:
            return _nothing(xp, x, windows)
        return root(xp, _reduce(xp, power(xp, x, p), windows, xp.add, 0.0), p)

    return compute


def power(xp: Any, x: Array, p: float) -> Array:
    """|x| ** p."""
    if p == 2:
        return x * x
    return xp.abs(x) if p == 1 else xp.abs(x) ** p


def root(xp: Any, total: Array, p: float) -> Array:
    """Total ** (1 / p)."""
    if p == 2:
        return xp.sqrt(total)
    return total if p == 1 else total ** (1 / p)


@operator("MaxPool")
def max_pool(info: KernelInfo, xp: Any) -> Compute:
    """Maximum of each window, and where it was found if the node asks for ``Indices``."""
    attributes = WindowAttributes.of(info)
    column_major = bool(info.attribute("storage_order", 0))
    wants_indices = info.wants_output(1)

    def compute(x: Array) -> Any:
        windows = _windows(info, attributes, x).trimmed()
        if 0 in windows.output_shape:
            nothing = _nothing(xp, x, windows)
            return (nothing, xp.astype(nothing, TensorElementType.INT64)) if wants_indices else nothing
        lowest = -xp.inf if xp.isdtype(x.dtype, "real floating") else xp.iinfo(x.dtype).min
        if not wants_indices:
            return _reduce(xp, x, windows, xp.maximum, lowest)
        return _max_with_indices(xp, x, windows, lowest, column_major)

    return compute


def _windows(info: KernelInfo, attributes: WindowAttributes, x: Array) -> Windows:
    if x.ndim < 3:
        raise InvalidArgument(f"{info.describe()}: input X has shape {list(x.shape)}; it must be (N, C, *spatial)")
    return attributes.windows(tuple(x.shape[2:]))


def _nothing(xp: Any, x: Array, windows: Windows) -> Array:
    """The result without windows, as ONNX Runtime gives it where a kernel reaches over the input's end by its stride."""
    return xp.zeros((*x.shape[:2], *windows.output_shape), dtype=x.dtype)


def along_axis(windows: Windows, axis: int, shape: tuple[int, ...]) -> Windows:
    """The same windows along one axis only; others pass whole. ``shape`` is the spatial shape of what is to be reduced."""
    rank = len(shape)

    def only(values: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(values[index] if index == axis else others[index] for index in range(rank))

    ones, zeros = (1,) * rank, (0,) * rank
    return replace(
        windows,
        input_shape=shape,
        kernel_shape=only(windows.kernel_shape, ones),
        strides=only(windows.strides, ones),
        dilations=only(windows.dilations, ones),
        pads_begin=only(windows.pads_begin, zeros),
        pads_end=only(windows.pads_end, zeros),
        output_shape=only(windows.output_shape, shape),
    )


def _taps(xp: Any, x: Array, windows: Windows, axis: int, value: float) -> list[Array]:
    """What each tap along one axis reads, for all windows: strided views of the padded input."""
    lead = x.ndim - len(windows.kernel_shape)
    source = padded(xp, x, along_axis(windows, axis, tuple(x.shape[lead:])), value)
    before = (slice(None),) * (lead + axis)
    step, dilation = windows.strides[axis], windows.dilations[axis]
    length = (windows.output_shape[axis] - 1) * step + 1
    return [
        source[(*before, slice(tap * dilation, tap * dilation + length, step), ...)] for tap in range(windows.kernel_shape[axis])
    ]


def _reduce(xp: Any, x: Array, windows: Windows, combine: Combine, value: float) -> Array:
    """Combine the elements of each window; padding holds ``value``, which must be neutral. A new array."""
    result = x
    for axis in range(len(windows.kernel_shape)):
        result = functools.reduce(combine, _taps(xp, result, windows, axis, value))
    return xp.asarray(result, copy=True) if all(size == 1 for size in windows.kernel_shape) else result


def _max_with_indices(xp: Any, x: Array, windows: Windows, lowest: float, column_major: bool) -> tuple[Array, Array]:
    """Maxima and their positions in the flattened input; among equal ones the first in row-major order. NaN is passed over.

    Going from the last axis to the first and replacing only by something greater keeps that order.
    """
    best, spatial = x, windows.input_shape
    is_nan = xp.isnan if xp.isdtype(x.dtype, "real floating") else lambda _integers: False
    index = _plane_offsets(xp, x)
    order = range(len(spatial)) if column_major else reversed(range(len(spatial)))
    pitch, pitches = 1, [0] * len(spatial)
    for axis in order:
        pitches[axis], pitch = pitch, pitch * spatial[axis]
    for axis in reversed(range(len(spatial))):
        values = _taps(xp, best, windows, axis, lowest)
        indices = _taps(xp, xp.broadcast_to(index, best.shape), windows, axis, 0)
        # A window of padding alone points at the nearest element of the input.
        taps = windows.tap_positions(axis)
        positions = np.clip(taps, 0, spatial[axis] - 1) * pitches[axis]
        shape = (-1, *(1 for _ in spatial[axis + 1 :]))
        offsets = [xp.reshape(xp.from_host(row), shape) for row in positions]
        are_inside = (taps >= 0) & (taps < spatial[axis])
        insides = [xp.reshape(xp.from_host(row), shape) for row in are_inside]
        firsts = [xp.reshape(xp.from_host(row), shape) for row in _are_first(are_inside)]
        best, index = values[0], indices[0] + offsets[0]
        for value, origin, offset, is_first, is_inside in zip(
            values[1:], indices[1:], offsets[1:], firsts[1:], insides[1:], strict=True
        ):
            greater = (value > best) | is_first | (is_inside & is_nan(best))
            best = xp.where(greater, value, best)
            index = xp.where(greater, origin + offset, index)
    if all(size == 1 for size in windows.kernel_shape):
        best = xp.asarray(best, copy=True)
    return best, index


def _are_first(are_inside: HostArray) -> HostArray:
    """Which tap of each window is its first in the input, which counts more than padding whatever it is: as the taps."""
    are_first: HostArray = are_inside & (np.cumsum(are_inside, axis=0) == 1)
    return are_first


def _plane_offsets(xp: Any, x: Array) -> Array:
    """Position of the first element of each (sample, channel) in the flattened input: int64, (N, C, 1, ...)."""
    batch, channels = x.shape[:2]
    plane = int(np.prod(x.shape[2:], dtype=np.int64))
    return xp.reshape(xp.arange(batch * channels, dtype=xp.int64) * plane, (batch, channels, *(1 for _ in x.shape[2:])))
