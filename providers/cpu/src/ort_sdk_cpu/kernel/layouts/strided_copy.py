"""Copies between layouts as a compiled task, chosen by which axes are contiguous."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ort_sdk.api import HostArray
from ort_sdk_cpu.kernel.arguments.copy import MODULE, StridedCopy
from ort_sdk_cpu.memory.strides import LoopNest

if TYPE_CHECKING:
    from ort_sdk_cpu.jit.task import TaskCall

__all__ = ["copy_at_once", "strided_copy"]

AXES = 5
"""Axes that tasks go over, after those that are contiguous with each other in both layouts are made one."""
WORD = 4
"""Bytes of the elements that tasks copy; wider ones are several."""
_TRANSPOSES = {1: "transpose_x8", 2: "transpose_x16", WORD: "transpose_x32"}
"""Bytes of an element → the task."""
_DEINTERLEAVES = {
    (1, 3): "deinterleave_3_x8",
    (1, 4): "deinterleave_4_x8",
    (WORD, 3): "deinterleave_3_x32",
    (WORD, 4): "deinterleave_4_x32",
}
"""Bytes of an element and channels of pixels → the task."""
MIN_DEINTERLEAVED = 64
"""Pixels of a row from which on that is faster than elements in turn: fewer do not fill the vectors of bytes that it works on."""
MIN_TRANSPOSED = 8
"""Size of both axes from which on tiles are faster than elements in turn: below, more than half of each vector is empty."""


def strided_copy(
    shape: Sequence[int], target: Sequence[int], source: Sequence[int], itemsize: int, threads: int = 1
) -> TaskCall | None:
    """A task that copies, to be pointed at the target and the source (see ``StridedCopy``); None where there is none for these.

    Args:
        shape: of both.
        target: bytes between elements along its axes.
        source: the same.
        itemsize: bytes of an element.
        threads: how many it may use.
    """
    layout = _layout(tuple(shape), tuple(target), tuple(source), itemsize)
    if layout is None:
        return None
    from ort_sdk_cpu.jit.task import TaskCall

    task, sizes = layout
    return TaskCall(MODULE, task, StridedCopy.of_words((0, 0, *sizes)), threads)


def copy_at_once(target: HostArray, source: HostArray, threads: int) -> bool:
    """Copy between arrays of one shape and type by a task; False where there is none, and nothing is copied.

    Args:
        target: what is written; it does not overlap the source.
        source: what is read.
        threads: how many the task may use.
    """
    layout = _layout(target.shape, target.strides, source.strides, target.itemsize)
    if layout is None:
        return False
    from ort_sdk_cpu.jit.task import task_function

    name, sizes = layout
    task_function(MODULE, name)(threads, StridedCopy.of_words((target, source, *sizes)))
    return True


@functools.lru_cache(maxsize=1024)
def _layout(
    shape: tuple[int, ...], target: tuple[int, ...], source: tuple[int, ...], itemsize: int
) -> tuple[str, tuple[int, ...]] | None:
    """Which task, and sizes and strides in the order of its arguments; None for too many axes."""
    if not math.prod(shape):
        return None
    unit = min(itemsize, WORD)
    # In the order of the target, whose cache lines are then written one after another, each as a whole.
    order = sorted((axis for axis, size in enumerate(shape) if size > 1), key=lambda axis: -abs(target[axis]))
    rows = [[values[axis] for axis in order] for values in (shape, target, source)]
    if itemsize > unit:
        rows = [[*row, last] for row, last in zip(rows, (itemsize // unit, unit, unit), strict=True)]
    loops = LoopNest.over(rows[0], rows[1:])
    if len(loops.sizes) > AXES:
        return None
    sizes, (to, from_) = loops.sizes, loops.strides
    if to[-1] == unit == from_[-1] or sizes[-1] == 1:
        if unit == WORD:
            return "copy_rows_x32", (*sizes, *to, *from_)
        return "copy_rows_x8", (*sizes[:-1], sizes[-1] * unit, *to, *from_)
    axis = next((axis for axis in range(AXES) if from_[axis] == unit), None)
    task = None if axis is None or to[-1] != unit else _tile_task(unit, sizes[axis], sizes[-1], from_[-1])
    if axis is None or task is None:
        return ("copy_elements_x32", (*sizes, *to, *from_)) if unit == WORD else None
    return task, _with_rows(axis, sizes, to, from_)


def _tile_task(itemsize: int, rows: int, columns: int, source_stride: int) -> str | None:
    """The task for rows that are contiguous in the source, and columns in the target; None for tiles that are too small."""
    deinterleave = _DEINTERLEAVES.get((itemsize, rows))
    if deinterleave is not None and source_stride == itemsize * rows and columns >= MIN_DEINTERLEAVED:
        return deinterleave
    return _TRANSPOSES[itemsize] if min(rows, columns) >= MIN_TRANSPOSED else None


def _with_rows(axis: int, *values: Sequence[int]) -> tuple[int, ...]:
    """A number for each axis, with those of one axis moved to the last but one."""
    order = [*(other for other in range(AXES - 1) if other != axis), axis, AXES - 1]
    return tuple(each[position] for each in values for position in order)
