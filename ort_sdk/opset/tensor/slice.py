"""Slice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator

from .common import normalize_axes

__all__ = ["slice_1", "slice_inputs"]

_VIEW = ((0, 0),)
_WHOLE = slice(None)


def _bounds(start: int, end: int, step: int, dim: int) -> slice:
    """A slice within the dimension, by ONNX's clamping: a backward one starts at 0 at least, where Python's is empty."""
    first, last = (bound + dim if bound < 0 else bound for bound in (start, end))
    if step > 0:
        first, last = min(max(first, 0), dim), min(max(last, 0), dim)
        return slice(first, max(first, last), step)
    first, last = min(max(first, 0), dim - 1), min(max(last, -1), dim - 1)
    if first <= last:
        return slice(0, 0)
    return slice(first, None if last < 0 else last, step)


def _sliced(
    info: KernelInfo,
    xp: Any,
    x: Array,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> Array:
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise InvalidArgument(
            f"{info.describe()}: starts {starts}, ends {ends}, axes {list(axes)} and steps {steps} must have one length, "
            "and steps must not be 0"
        )
    shape = x.shape
    index, backward = [_WHOLE] * len(shape), []
    for axis, start, end, step in zip(normalize_axes(info, axes, len(shape)), starts, ends, steps, strict=True):
        # Forward, NumPy clamps as ONNX does.
        is_clamped = step > 0 and xp.is_host
        index[axis] = slice(start, end, step) if is_clamped else _bounds(start, end, step, shape[axis])
        if step < 0 and not xp.is_host:
            # Not every library takes negative steps.
            index[axis] = _forward(index[axis], shape[axis])
            backward.append(axis)
    part = x[tuple(index)]
    return xp.flip(part, axis=tuple(backward)) if backward else part


def _forward(part: slice, dim: int) -> slice:
    """The elements of a slice with a negative step, from the front."""
    positions = range(*part.indices(dim))
    return slice(positions[-1], positions[0] + 1, -part.step) if positions else slice(0, 0)


@operator("Slice", until=1, moves=True, alias=_VIEW)
def slice_1(info: KernelInfo, xp: Any) -> Compute:
    """A part of the input along the axes the attributes name; a view."""
    starts, ends, axes = info.attribute("starts"), info.attribute("ends"), info.attribute("axes", None)
    return lambda x: _sliced(info, xp, x, starts, ends, axes, None)


@operator("Slice", since=10, moves=True, shape_inputs=(1, 2, 3, 4), host_inputs=(1, 2, 3, 4), alias=_VIEW)
def slice_inputs(info: KernelInfo, xp: Any) -> Compute:
    """A part of the input along the axes the inputs name, backwards where the step is negative; a view."""

    def compute(
        x: Array, starts: HostArray, ends: HostArray, axes: HostArray | None = None, steps: HostArray | None = None
    ) -> Array:
        return _sliced(
            info,
            xp,
            x,
            starts.tolist(),
            ends.tolist(),
            None if axes is None else axes.tolist(),
            None if steps is None else steps.tolist(),
        )

    return compute
