"""Resize that takes the nearest pixel, by a compiled task."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, Slot
from ort_sdk_cpu.jit.arguments import Operand
from ort_sdk_cpu.kernel.task_writer import TaskWriter, is_worth_a_task, threads_for
from ort_sdk_cpu.kernel.writer import Writer

from .arguments.nearest import MODULE, Nearest

__all__ = ["nearest_writer"]

NHWC = "nearest_nhwc"
NCHW = {1: "nearest_nchw_8", 4: "nearest_nchw_32"}
"""Bytes of an element → the task for NCHW."""
COPIED_AT_ONCE = 2
"""Elements that take as long as a few instructions."""


def nearest_writer(
    sources: HostArray, x: HostArray, out: HostArray, given: int, otherwise: Writer, *, is_last: bool
) -> Writer | None:
    """A writer of NCHW, also of channels last in memory; None where no task computes it.

    Args:
        sources: which pixel of a plane each pixel of the output is, both counted row by row.
        x: an input of the shape and type of those it will get.
        out: an output.
        given: how many inputs there are.
        otherwise: writes arrays of other layouts.
        is_last: whether channels are last in memory.
    """
    width = x.shape[3]
    table = sources.reshape(out.shape[2:])
    rows, columns = table[:, 0] // width, table[0] % width
    is_separable = np.array_equal(rows[:, None] * width + columns, table)
    name = NHWC if is_last else NCHW.get(x.itemsize)
    if not is_separable or name is None or not is_worth_a_task(out.size, MODULE, name):
        return None
    return _NearestWriter(name, (rows, columns), (x, out), given, otherwise)


class _NearestWriter(TaskWriter):
    """Keeps what row and column each is. Arguments as above, with the task's name first."""

    def __init__(
        self, name: str, tables: tuple[HostArray, HostArray], arrays: tuple[HostArray, HostArray], given: int, otherwise: Writer
    ) -> None:
        (samples, channels, *_), self._is_last = arrays[0].shape, name == NHWC
        rows, columns = self._tables = tuple(np.ascontiguousarray(table, np.int32) for table in tables)
        images, pixel = (samples, channels) if self._is_last else (samples * channels, 1)
        (*_, height, width), (*_, out_height, out_width) = arrays[0].shape, arrays[1].shape
        pixel_bytes, repeats = pixel * arrays[0].itemsize, self._repeats(width)
        sizes = (images, height, width, out_height, out_width, pixel_bytes, repeats)
        threads = threads_for(math.prod(arrays[1].shape) // COPIED_AT_ONCE)
        arguments = Nearest(Operand(0), Operand(given), rows, columns, *sizes)
        super().__init__(MODULE, name, arguments, otherwise, threads)

    def _repeats(self, width: int) -> int:
        """How often each column follows; 0 if not equally often."""
        count = len(self._tables[1]) // width
        return count if np.array_equal(np.arange(width).repeat(count), self._tables[1]) else 0

    def _in_memory_order(self, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        """Arrays with their axes from the outermost in memory to the innermost."""
        if not self._is_last:
            return arrays
        return (np.moveaxis(arrays[0], 1, -1), *arrays[1:-1], np.moveaxis(arrays[-1], 1, -1))

    def __call__(self, *arrays: Any) -> None:
        """Write the output."""
        ordered = self._in_memory_order(arrays)
        if ordered[0].flags.c_contiguous and ordered[-1].flags.c_contiguous:
            super().__call__(*ordered)
        else:
            self._otherwise(*arrays)

    def bind_arrays(self, *arrays: HostArray | None) -> Callable[[], Any] | None:
        """The call on arrays that stay the same; None for another layout."""
        return super().bind_arrays(*self._in_memory_order(arrays))

    def bind_slots(self, slots: tuple[Slot, ...]) -> Callable[[], Any] | None:  # type: ignore[override]
        """None with channels last: the writer looks at each array."""
        return None if self._is_last else super().bind_slots(slots)
