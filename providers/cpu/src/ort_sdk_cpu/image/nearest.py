"""Resize that takes the nearest pixel, by a compiled task."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, Slot
from ort_sdk_cpu.jit.arguments import raw_arguments
from ort_sdk_cpu.kernel.bound import Writer
from ort_sdk_cpu.kernel.task_writer import TaskWriter, is_worth_a_task, threads_for

__all__ = ["nearest_writer"]

MODULE, PIXELS = "nearest", "nearest_pixels"
TASKS = {1: "nearest_bytes", 4: "nearest_words"}
"""Bytes of an element → the task of pictures in the order of their axes."""
COPIED_AT_ONCE = 2
"""Elements that take as long as a few instructions."""


def nearest_writer(
    sources: HostArray, x: HostArray, out: HostArray, given: int, otherwise: Writer, *, is_last: bool
) -> Writer | None:
    """A writer of pictures (samples, channels, rows, columns); None where the task does not go over them.

    Args:
        sources: which pixel of a plane each pixel of the output is, both counted row by row.
        x: an input of the shape and type of those it will get.
        out: an output.
        given: how many inputs there are.
        otherwise: writes arrays that lie in another way.
        is_last: whether channels are last in memory.
    """
    width = x.shape[3]
    places = sources.reshape(out.shape[2:])
    rows, columns = places[:, 0] // width, places[0] % width
    is_separable = np.array_equal(rows[:, None] * width + columns, places)
    name = PIXELS if is_last else TASKS.get(x.itemsize)
    if not is_separable or name is None or not is_worth_a_task(out.size, MODULE, name):
        return None
    return _NearestWriter(name, (rows, columns), (x, out), given, otherwise)


class _NearestWriter(TaskWriter):
    """Keeps what row and column each is. Arguments as above, with the task's name first."""

    def __init__(
        self, name: str, tables: tuple[HostArray, HostArray], arrays: tuple[HostArray, HostArray], given: int, otherwise: Writer
    ) -> None:
        (samples, channels, *_), self._is_last = arrays[0].shape, name == PIXELS
        self._tables = [np.ascontiguousarray(table, np.int32) for table in tables]
        pictures, pixel = (samples, channels) if self._is_last else (samples * channels, 1)
        sizes = (
            pictures,
            *arrays[0].shape[2:],
            *arrays[1].shape[2:],
            pixel * arrays[0].itemsize,
            self._repeats(arrays[0].shape[3]),
        )
        threads = threads_for(math.prod(arrays[1].shape) // COPIED_AT_ONCE)
        super().__init__(MODULE, name, raw_arguments((0, given), (*self._tables, *sizes)), otherwise, threads)

    def _repeats(self, width: int) -> int:
        """How often each column follows; 0 if not equally often."""
        count = len(self._tables[1]) // width
        return count if np.array_equal(np.arange(width).repeat(count), self._tables[1]) else 0

    def _lying(self, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        """Arrays as they lie in memory."""
        if not self._is_last:
            return arrays
        return (np.moveaxis(arrays[0], 1, -1), *arrays[1:-1], np.moveaxis(arrays[-1], 1, -1))

    def __call__(self, *arrays: Any) -> None:
        """Write the output."""
        lying = self._lying(arrays)
        if lying[0].flags.c_contiguous and lying[-1].flags.c_contiguous:
            super().__call__(*lying)
        else:
            self._otherwise(*arrays)

    def fixed(self, *arrays: HostArray | None) -> Callable[[], Any] | None:
        """The call on arrays that stay the same; None if they lie in another way."""
        return super().fixed(*self._lying(arrays))

    def on_slots(self, slots: tuple[Slot, ...]) -> Callable[[], Any] | None:  # type: ignore[override]
        """None with channels last: the writer looks at each array."""
        return None if self._is_last else super().on_slots(slots)
