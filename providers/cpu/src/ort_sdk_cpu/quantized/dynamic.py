"""DynamicQuantizeLinear by compiled tasks: quantization of float32 to uint8 by its own range."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.jit.native_call import in_sequence
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.kernel.task_writer import threads_for

from .arguments.dynamic import MODULE, DynamicQuantize, DynamicQuantizeByRanges, Ranges

__all__ = ["TASK", "RangeQuantization"]

TASK = "dynamic_quantize"
"""The task of one thread."""
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
            self._calls = [TaskCall(MODULE, TASK, DynamicQuantize(0, 0, 0, 0, size))]
            return
        self._ranges = np.empty(spans * _RANGE_FLOATS, np.float32)
        first = TaskCall(MODULE, "ranges", Ranges(0, self._ranges, size, spans), spans)
        arguments = DynamicQuantizeByRanges(0, 0, 0, 0, self._ranges, size, spans)
        second = TaskCall(MODULE, "dynamic_quantize_by_ranges", arguments, spans)
        self._calls = [first, second]

    def run(self, *arrays: HostArray) -> None:
        """Quantize: from x to the result, its scale (float32) and its zero point (uint8)."""
        self._aim(arrays)
        for call in self._calls:
            call.run()

    def bind_arrays(self, *arrays: HostArray) -> Callable[[], Any]:
        """The call on arrays that stay the same; it keeps them."""
        self._aim(arrays)
        return in_sequence([call.bound_call(self, *arrays) for call in self._calls])

    def _aim(self, arrays: Sequence[HostArray]) -> None:
        self._calls[0].point(Ranges.x, arrays[0])
        fields = DynamicQuantize.x, DynamicQuantize.out, DynamicQuantize.scale, DynamicQuantize.zero_point
        for field, array in zip(fields, arrays, strict=True):
            self._calls[-1].point(field, array)
