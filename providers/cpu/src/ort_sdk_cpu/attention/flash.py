"""Attention in one pass over the keys as a compiled task: queries, keys and values are read in place, by their strides."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.addresses import address_of

from .arguments.flash import MODULE, FlashAttention, thread_workspace_bytes
from .arguments.operands import ABSENT, strided_heads

if TYPE_CHECKING:
    from ort_sdk_cpu.jit.task import TaskFunction

__all__ = ["AttentionShape", "AttentionTask", "flash_task"]

ALIGNMENT_BYTES = 64
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
        """Threads worth waking up, of so many; heads are shared, so no more than those."""
        work = self.batch * self.heads * self.length * self.keys * (self.size + self.value_size)
        return max(1, min(most, work // WORK_PER_THREAD, self.batch * self.heads))

    @property
    def thread_bytes(self) -> int:
        """Workspace of a thread."""
        return thread_workspace_bytes(self.size, self.value_size)

    @property
    def words(self) -> tuple[int | float, ...]:
        """``FlashAttention.batch`` to ``scale``."""
        return self.batch, self.heads, self.length, self.keys, self.size, self.value_size, self.scale


class AttentionTask:
    """softmax(scale * (q + bias) k' + mask) v + bias, for one set of sizes. For one thread at a time.

    Args:
        shape: the sizes.
    """

    def __init__(self, shape: AttentionShape) -> None:
        self._shape = shape
        threads, thread_bytes = shape.threads(libraries.thread_count()), shape.thread_bytes
        self._memory = np.empty(thread_bytes * threads + ALIGNMENT_BYTES, np.uint8)
        workspace = self._memory[-address_of(self._memory) % ALIGNMENT_BYTES :]
        arguments = FlashAttention.of([ABSENT] * 4, shape.words, (workspace, thread_bytes))
        self.call = TaskCall(MODULE, "flash_attention", arguments, threads)

    def prepare(self, operands: Sequence[HostArray], bias: HostArray | None, mask: HostArray | None, out: HostArray) -> bool:
        """Point at arrays, which are not kept.

        Args:
            operands: query, key and value: (batch, sequence, heads * size), or (batch, heads, sequence, size).
            bias: what is added to those that are not split into heads, one after the other; that of keys changes nothing and is
                left out.
            mask: numbers added to the scores, which it broadcasts against.
            out: (batch, sequence, heads * value size).

        Returns:
            False if the elements of some array's rows do not follow each other.
        """
        if any(array.strides[-1] != array.itemsize and array.shape[-1] > 1 for array in (*operands, out)):
            return False
        heads, call = self._shape.heads, self.call
        fields = (FlashAttention.q, FlashAttention.k, FlashAttention.v, FlashAttention.out)
        for field, array in zip(fields, (*operands, out), strict=True):
            _, *strides = strided_heads(array, heads)
            for position, stride in zip((field.batch_stride, field.head_stride, field.row_stride), strides, strict=True):
                call.set(position, stride)
            call.point(field.base, array)
        self._prepare_mask(mask)
        call.point(FlashAttention.q_bias, bias)
        is_split = operands[2].ndim == 4
        call.point(FlashAttention.v_bias, None if bias is None or is_split else bias[2 * heads * self._shape.size :])
        return True

    def _prepare_mask(self, mask: HostArray | None) -> None:
        field = FlashAttention.mask
        if mask is not None:
            positions = (field.batch_stride, field.head_stride, field.query_stride, field.key_stride)
            for position, stride in zip(positions, np.broadcast_to(mask, self._shape.scores).strides, strict=True):
                self.call.set(position, stride)
        self.call.point(field.base, mask)

    def bound_call(self, *arrays: Any) -> Callable[[], Any]:
        """The prepared work as a call that keeps the arrays."""
        return self.call.bound_call(self, *arrays)


@functools.cache
def flash_task() -> TaskFunction:
    """The task as a function of its arguments."""
    from ort_sdk_cpu.jit.task import task_function

    return task_function(MODULE, "flash_attention")
