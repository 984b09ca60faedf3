"""Views: other orders, shapes and parts of the same elements, without a kernel."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from ort_sdk.api import InvalidArgument

from .nodes import Strided

__all__ = ["broadcast", "flipped", "permuted", "reshaped", "sliced", "windowed"]


def permuted(array: Strided, axes: Sequence[int]) -> Strided:
    """The axes in another order."""
    return array.view(tuple(array.shape[axis] for axis in axes), tuple(array.strides[axis] for axis in axes), array.offset)


def broadcast(array: Strided, shape: tuple[int, ...]) -> Strided:
    """Axes of one element repeated, and new ones in front.

    Raises:
        InvalidArgument: the shapes do not fit.
    """
    missing = len(shape) - len(array.shape)
    if missing < 0 or any(own not in (1, size) for own, size in zip(array.shape, shape[missing:], strict=True)):
        raise InvalidArgument(f"broadcasting shape {list(array.shape)} to {list(shape)}: sizes other than 1 must be the same")
    own = zip(array.shape, array.strides, shape[missing:], strict=True)
    strides = [0] * missing + [0 if size == 1 and target != 1 else stride for size, stride, target in own]
    return array.view(shape, tuple(strides), array.offset)


def sliced(array: Strided, axis: int, start: int, count: int, step: int) -> Strided:
    """``count`` elements along an axis, ``step`` apart, from ``start`` on; all of them within the axis."""
    size, stride = array.shape[axis], array.strides[axis]
    last = start + (count - 1) * step
    if count and not (0 <= start < size and 0 <= last < size):
        raise InvalidArgument(f"taking elements {start} to {last} of axis {axis} of shape {list(array.shape)}: out of bounds")
    shape, strides = list(array.shape), list(array.strides)
    shape[axis], strides[axis] = count, stride * step
    return array.view(tuple(shape), tuple(strides), array.offset + (start * stride if count else 0))


def flipped(array: Strided, axes: Sequence[int]) -> Strided:
    """The order along some axes reversed."""
    for axis in axes:
        if array.shape[axis]:
            array = sliced(array, axis, array.shape[axis] - 1, array.shape[axis], -1)
    return array


def windowed(array: Strided, kernel: Sequence[int], steps: Sequence[int], dilations: Sequence[int]) -> Strided:
    """All windows over the trailing axes of (N, C, *spatial), as (N, C, *kernel, *output)."""
    spatial, inner = array.shape[2:], array.strides[2:]
    output = [
        max(0, (size - (taps - 1) * dilation - 1) // step + 1)
        for size, taps, dilation, step in zip(spatial, kernel, dilations, steps, strict=True)
    ]
    strides = (
        *array.strides[:2],
        *(stride * dilation for stride, dilation in zip(inner, dilations, strict=True)),
        *(stride * step for stride, step in zip(inner, steps, strict=True)),
    )
    return array.view((*array.shape[:2], *kernel, *output), strides, array.offset)


def reshaped(array: Strided, shape: tuple[int, ...]) -> Strided | None:
    """The same elements in the same order under another shape of as many; None where no strides describe it."""
    if 0 in shape:
        return array.view(shape, tuple(0 for _ in shape), array.offset)
    old = [(size, stride) for size, stride in zip(array.shape, array.strides, strict=True) if size != 1]
    strides: list[int] = []
    position, target = 0, 0
    while target < len(shape):
        if position == len(old):
            # what remains are axes of one element
            strides.append(1)
            target += 1
            continue
        taken, wanted = [old[position]], [shape[target]]
        while math.prod(size for size, _ in taken) != math.prod(wanted):
            if math.prod(size for size, _ in taken) < math.prod(wanted):
                position += 1
                taken.append(old[position])
            else:
                target += 1
                wanted.append(shape[target])
        if any(outer[1] != inner[0] * inner[1] for outer, inner in itertools.pairwise(taken)):
            return None
        step, own = taken[-1][1], []
        for size in reversed(wanted):
            own.append(step)
            step *= size
        strides += reversed(own)
        position, target = position + 1, target + 1
    return array.view(shape, tuple(strides), array.offset)
