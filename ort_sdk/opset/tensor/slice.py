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


def _backward(start: int, end: int, step: int, dim: int) -> slice:
    """A slice within the dimension, by ONNX's clamping: it starts at 0 at least, where Python's is empty."""
    first, last = (bound + dim if bound < 0 else bound for bound in (start, end))
    first, last = min(max(first, 0), dim - 1), min(max(last, -1), dim - 1)
    if first <= last:
        return slice(0, 0)
    return slice(first, None if last < 0 else last, step)


def _sliced(
    info: KernelInfo,
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
    index = [_WHOLE] * len(shape)
    for axis, start, end, step in zip(normalize_axes(info, axes, len(shape)), starts, ends, steps, strict=True):
        # Forward, Python clamps as ONNX does.
        index[axis] = slice(start, end, step) if step > 0 else _backward(start, end, step, shape[axis])
    return x[tuple(index)]


@operator("Slice", until=1, moves=True, alias=_VIEW)
def slice_1(info: KernelInfo, _xp: Any) -> Compute:
    """A part of the input along the axes the attributes name; a view."""
    starts, ends, axes = info.attribute("starts"), info.attribute("ends"), info.attribute("axes", None)
    return lambda x: _sliced(info, x, starts, ends, axes, None)


@operator("Slice", since=10, moves=True, shape_inputs=(1, 2, 3, 4), host_inputs=(1, 2, 3, 4), alias=_VIEW)
def slice_inputs(info: KernelInfo, _xp: Any) -> Compute:
    """A part of the input along the axes the inputs name, backwards where the step is negative; a view."""

    def compute(
        x: Array, starts: HostArray, ends: HostArray, axes: HostArray | None = None, steps: HostArray | None = None
    ) -> Array:
        return _sliced(
            info,
            x,
            starts.tolist(),
            ends.tolist(),
            None if axes is None else axes.tolist(),
            None if steps is None else steps.tolist(),
        )

    return compute
