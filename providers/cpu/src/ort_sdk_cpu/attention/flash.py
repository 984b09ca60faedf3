"""Attention over heads as a compiled task: queries, keys and values are read where they lie, by their strides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.platform import libraries

__all__ = ["KINDS", "UNLIMITED", "AttentionShape", "AttentionTask", "part_bytes", "places"]

ROW_BYTES = 128
BLOCK, SPARE_BYTES = 128, 2048
"""As in ``compiled.flash``."""
MASK, QUERY_BIAS, VALUE_BIAS = 16, 21, 22
KINDS = "q" * 28 + "f" + "q" * 8 + "f"
"""Of the task's arguments."""
UNLIMITED = (1, 0, -1, -1, 0, 0.0)
"""The last of them, where all queries see all keys, and no heads share any."""
WORK_PER_THREAD = 1 << 17
"""Multiplications that take as long as waking a thread up."""


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Sizes of an attention over heads."""

    batch: int
    heads: int
    length: int
    keys: int
    size: int
    value_size: int
    scale: float

    @property
    def scores(self) -> tuple[int, int, int, int]:
        """Shape of the scores."""
        return self.batch, self.heads, self.length, self.keys

    def threads(self, most: int) -> int:
        """Threads worth waking up, of so many."""
        work = self.batch * self.heads * self.length * self.keys * (self.size + self.value_size)
        return max(1, min(most, work // WORK_PER_THREAD, self.batch * self.heads))

    @property
    def part_bytes(self) -> int:
        """Working memory of a thread."""
        return part_bytes(self.size, self.value_size)

    @property
    def arguments(self) -> tuple[int | float, ...]:
        """Sizes and scale as the task takes them."""
        return self.heads, self.length, self.keys, self.size, self.value_size, self.scale


class AttentionTask:
    """softmax(scale * (q + bias) k' + mask) v + bias, for one set of sizes. For one thread at a time.

    Args:
        shape: the sizes.
    """

    def __init__(self, shape: AttentionShape) -> None:
        self._shape = shape
        threads, part_bytes = shape.threads(libraries.thread_count()), shape.part_bytes
        self._spare = np.empty(part_bytes * threads + 64, np.uint8)
        lying = self._spare[-self._spare.ctypes.data % 64 :]
        arguments = (*[0] * (VALUE_BIAS + 1), *shape.arguments, shape.batch, lying, part_bytes, *UNLIMITED)
        self.call = TaskCall("attention", "attention", arguments, threads)

    def prepare(self, parts: Sequence[HostArray], bias: HostArray | None, mask: HostArray | None, out: HostArray) -> bool:
        """Point at arrays, which are not kept.

        Args:
            parts: query, key and value: (batch, sequence, heads * size), or (batch, heads, sequence, size).
            bias: what is added to those that are not split into heads, one after the other; that of keys changes nothing and is
                left out.
            mask: numbers added to the scores, which it broadcasts against.
            out: (batch, sequence, heads * value size).

        Returns:
            False if one of them lies so that the task cannot read it.
        """
        if any(array.strides[-1] != array.itemsize and array.shape[-1] > 1 for array in (*parts, out)):
            return False
        heads, call = self._shape.heads, self.call
        for position, array in enumerate((*parts, out)):
            for offset, step in enumerate(places(array, heads)[1:], 1):
                call.set(4 * position + offset, step)
            call.point(4 * position, array)
        self._prepare_mask(mask)
        call.point(QUERY_BIAS, bias)
        call.point(VALUE_BIAS, None if bias is None or parts[2].ndim == 4 else bias[2 * heads * self._shape.size :])
        return True

    def _prepare_mask(self, mask: HostArray | None) -> None:
        if mask is not None:
            seen = np.broadcast_to(mask, self._shape.scores)
            for axis, step in enumerate(seen.strides):
                self.call.set(MASK + 1 + axis, step)
        self.call.point(MASK, mask)

    def kept(self, *arrays: Any) -> Callable[[], Any]:
        """The prepared work as a call that keeps the arrays."""
        return self.call.kept(self, *arrays)


def part_bytes(size: int, value_size: int) -> int:
    """Working memory of a thread, for heads of these sizes."""
    return (size + value_size + BLOCK + 2) * ROW_BYTES + SPARE_BYTES


def places(array: HostArray, heads: int) -> tuple[HostArray, int, int, int]:
    """An array, and the bytes from one to the next of batch, heads and rows."""
    strides = array.strides
    if array.ndim == 4:
        return array, strides[0], strides[1], strides[2]
    return array, strides[0], array.shape[2] // heads * array.itemsize, strides[1]
