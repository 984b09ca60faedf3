"""Quantization of float32 to uint8 by its own range: compiled tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.jit.native_call import in_turn
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.kernel.task_writer import threads_for

__all__ = ["MODULE", "TASK", "RangeQuantization"]

MODULE, TASK = "dynamic_quantization", "quantize_by_range"
_RANGE_FLOATS = 32
"""Of a span's range: two vectors."""


class RangeQuantization:
    """The tasks for so many elements, in one piece of memory. For one thread at a time.

    Args:
        size: elements, at least one.
    """

    def __init__(self, size: int) -> None:
        spans = threads_for(2 * size)
        if spans == 1:
            self._calls = [TaskCall(MODULE, TASK, (0, 0, 0, 0, size))]
            return
        self._ranges = np.empty(spans * _RANGE_FLOATS, np.float32)
        first = TaskCall(MODULE, "ranges_of_spans", (0, 0, size, spans), spans)
        second = TaskCall(MODULE, "quantize_by_ranges", (0, 0, 0, 0, 0, size, spans), spans)
        first.point(1, self._ranges)
        second.point(4, self._ranges)
        self._calls = [first, second]

    def run(self, *arrays: HostArray) -> None:
        """Quantize: from x to the result, its scale (float32) and its zero point (uint8)."""
        self._aim(arrays)
        for call in self._calls:
            call.run()

    def fixed(self, *arrays: HostArray) -> Callable[[], Any]:
        """The call on arrays that stay the same; it keeps them."""
        self._aim(arrays)
        return in_turn([call.kept(self, *arrays) for call in self._calls])

    def _aim(self, arrays: Sequence[HostArray]) -> None:
        self._calls[0].point(0, arrays[0])
        for place, array in enumerate(arrays):
            self._calls[-1].point(place, array)
