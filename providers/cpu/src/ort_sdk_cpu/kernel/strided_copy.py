"""Copies between layouts as a compiled task, which goes over the axes as they lie."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ort_sdk.api import HostArray
from ort_sdk_cpu.memory.strides import Loops

if TYPE_CHECKING:
    from ort_sdk_cpu.jit.task import TaskCall

__all__ = ["copy_at_once", "strided_copy"]

MODULE = "copying"
AXES = 5
WORD = 4
"""Bytes that are copied at a time, but of smaller elements."""
_TRANSPOSITIONS = {1: "transpose_bytes", 2: "transpose_pairs", WORD: "copy_transposed"}
"""Bytes of an element → the task."""
_APART = {(1, 3): "three_bytes", (1, 4): "four_bytes", (WORD, 3): "three_words", (WORD, 4): "four_words"}
"""Bytes of an element and channels of pixels → the task that takes those apart."""
LONG_ROW = 64
"""Pixels from which on that is faster than elements in turn."""
SHORTEST_ROW = 8
"""Elements next to each other, and apart from each other, from which on transposing tiles is faster than elements in turn."""


def strided_copy(
    shape: Sequence[int], target: Sequence[int], source: Sequence[int], itemsize: int, threads: int = 1
) -> TaskCall | None:
    """A task that copies, to be pointed at the target (0) and the source (1); None where it cannot.

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
    return TaskCall(MODULE, task, (0, 0, *sizes), threads)


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
    task_function(MODULE, name, "q" * (2 + len(sizes)))(threads, target, source, *sizes)
    return True


@functools.lru_cache(maxsize=1024)
def _layout(
    shape: tuple[int, ...], target: tuple[int, ...], source: tuple[int, ...], itemsize: int
) -> tuple[str, tuple[int, ...]] | None:
    """Which task, and sizes and distances as it takes them."""
    if not math.prod(shape):
        return None
    unit = min(itemsize, WORD)
    order = sorted((axis for axis, size in enumerate(shape) if size > 1), key=lambda axis: -abs(target[axis]))
    rows = [[values[axis] for axis in order] for values in (shape, target, source)]
    if itemsize > unit:
        rows = [[*row, last] for row, last in zip(rows, (itemsize // unit, unit, unit), strict=True)]
    loops = Loops.over(rows[0], rows[1:])
    if len(loops.sizes) > AXES:
        return None
    sizes, (to, from_) = loops.sizes, loops.strides
    if to[-1] == unit == from_[-1] or sizes[-1] == 1:
        if unit == WORD:
            return "copy_rows", (*sizes, *to, *from_)
        return "copy_byte_rows", (*sizes[:-1], sizes[-1] * unit, *to, *from_)
    axis = next((axis for axis in range(AXES) if from_[axis] == unit), None)
    apart = None if axis is None else _APART.get((unit, sizes[axis]))
    if axis is not None and apart is not None and to[-1] == unit and from_[-1] == unit * sizes[axis] and sizes[-1] >= LONG_ROW:
        return apart, _turned(axis, sizes, to, from_)
    if axis is None or to[-1] != unit or min(sizes[axis], sizes[-1]) < SHORTEST_ROW:
        return ("copy_elements", (*sizes, *to, *from_)) if unit == WORD else None
    return _TRANSPOSITIONS[unit], _turned(axis, sizes, to, from_)


def _turned(axis: int, *rows: Sequence[int]) -> tuple[int, ...]:
    """What belongs to axes, with one of them last but one."""
    places = [*(other for other in range(AXES - 1) if other != axis), axis, AXES - 1]
    return tuple(values[place] for values in rows for place in places)
