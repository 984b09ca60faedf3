"""MultiHeadAttention in programs: by compiled tasks, or by two GEMMs and a softmax for blocks of scores (``select``)."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, Slot
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.contrib.attention import MASK_FILTER_VALUE
from ort_sdk.opset.contrib.attention_core import causal_bias, mask_bias
from ort_sdk.opset.numpy_namespace import NumpyNamespace
from ort_sdk_cpu.jit.native_call import in_sequence
from ort_sdk_cpu.kernel.bindable import BindableKernel, bindable, kernel_maker
from ort_sdk_cpu.kernel.eager import declare_eager_calls, direct_call, with_fallback
from ort_sdk_cpu.kernel.layouts.any_layout import FixedSlot
from ort_sdk_cpu.kernel.task_writer import are_floats, is_worth_a_task
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer, copying_writer
from ort_sdk_cpu.memory.workspace import Workspace, workspace_of
from ort_sdk_cpu.normalization.operators import softmax_last
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.threads import blas_matmul

from .arguments.flash import MODULE as FLASH
from .operators import SPLIT_RANK, MultiHead, multi_head, multi_head_over_cache
from .select import AttentionAlgorithm, AttentionProblem, is_for_cached_tasks, select_fixed

if TYPE_CHECKING:
    from ort_sdk_cpu.jit.task import TaskCall

    from .flash import AttentionTask

__all__: list[str] = []

declare_eager_calls("attention.flash_eager", "MultiHeadAttention", domain="com.microsoft")

BLOCK = 1 << 16
"""Scores computed at a time: 256 KiB, which stay in the second-level cache between GEMMs and softmax."""

_NAMESPACE = NumpyNamespace()
_UNSUPPORTED_INPUTS = (6, 7, 8, 9)
"""Past keys and values, their length, and beams."""


direct_call("MultiHeadAttention", domain="com.microsoft")(multi_head_over_cache)


@bindable("MultiHeadAttention", domain="com.microsoft")
def multi_head_attention(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Attention of separate queries, keys and values, with bias and masks; without past and further outputs."""
    if any(info.wants_output(index) for index in range(1, 4)) or any(map(info.has_input, _UNSUPPORTED_INPUTS)):
        return None
    return _Writers(info, compute)


class _Writers:
    """Makes a node's writers.

    Args:
        info: the node.
        compute: the shared set's function.
    """

    def __init__(self, info: KernelInfo, compute: Any) -> None:
        self._compute, self._workspace, self._heads = compute, workspace_of(info), int(info.attribute("num_heads"))
        self._filter_value = info.attribute("mask_filter_value", MASK_FILTER_VALUE)
        self._is_causal, self._scale = bool(info.attribute("unidirectional", 0)), info.attribute("scale", 0.0)
        self._over_cache = multi_head(info)
        self.algorithm: str | None = None
        """Of the writer made last."""

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        """A writer for arrays of these shapes and types."""
        query, key, value = (*inputs, None, None)[:3]
        if key is None or value is None or key.ndim == 5 or not query.size or not key.size:
            self.algorithm = AttentionAlgorithm.OPSET
            return copying_writer(self._compute)
        core = _Attention.of(query, key, self._heads, self._scale, self._workspace)
        problem = _problem(core, query, value, outputs[0])
        self.algorithm = select_fixed(problem, lambda: is_worth_a_task(query.size, FLASH, "flash_attention"))
        if self._over_cache is not None and is_for_cached_tasks(problem):
            return _CachedWriter(self._over_cache, self._compute)
        dtype = outputs[0].dtype
        causal = causal_bias(np, core.length, core.keys, 0, dtype) if self._is_causal else None
        task = core.compiled(query, value) if self.algorithm == AttentionAlgorithm.FLASH else None
        return _Writer(core, self._filter_value, causal, dtype, task)


def _problem(core: _Attention, query: HostArray, value: HostArray, out: HostArray) -> AttentionProblem:
    is_compiled = are_floats((query, out)) and libraries.compiled_kernels().is_usable
    sizes = (core.batch, core.heads, core.length, core.keys, query.shape[2] // core.heads, core.value_size(value))
    return AttentionProblem(*sizes, is_compiled=is_compiled)


@kernel_maker("MultiHeadAttention", domain="com.microsoft")
def _attention_kernel(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> BindableKernel | None:
    """One whose keys may be a feed, as those of an encoder are."""
    moving = multi_head(info) if info.input_rank(1) == SPLIT_RANK else None
    return None if moving is None else _OverFeeds(kernel, make_writer, moving)


class _OverFeeds(BindableKernel):
    """Reads keys and values where they are in each run.

    Args:
        kernel: see ``BindableKernel``, like the next.
        make_writer: see there.
        moving: binds the node to slots that get other arrays.
    """

    binds_moving_slots = True

    def __init__(self, kernel: Any, make_writer: MakeWriter, moving: MultiHead) -> None:
        super().__init__(kernel, make_writer)
        self._moving, self._selectors = moving, (moving, *self._selectors)

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """As for its base."""
        fallback = super().bind(inputs, outputs)
        if all(slot.is_fixed for slot in (*inputs, *outputs)) or any(slot.shape is None for slot in inputs if not slot.is_fixed):
            return fallback
        call: Callable[[], Any] | None = self._moving.bind(inputs, outputs, fallback)
        return call or fallback


class _CachedWriter:
    """Writes the attention of few queries, whose keys threads share.

    Args:
        over_cache: computes it, but for some arrays.
        compute: computes any.
    """

    def __init__(self, over_cache: MultiHead, compute: Any) -> None:
        self._over_cache, self._write = over_cache, copying_writer(with_fallback(over_cache.call, compute))

    def __call__(self, *arrays: Any) -> None:
        """Compute."""
        self._write(*arrays)

    def bind_arrays(self, *arrays: Any) -> Callable[[], Any] | None:
        """The call on arrays that stay the same."""
        slots = [FixedSlot(array) for array in arrays]
        call: Callable[[], Any] | None = self._over_cache.bind(slots[:-1], slots[-1:], functools.partial(self._write, *arrays))
        return call


class _Writer:
    """Writes the attention of (query, key, value, bias, mask, attention bias)."""

    def __init__(
        self, core: _Attention, filter_value: float, causal: HostArray | None, dtype: np.dtype[Any], task: AttentionTask | None
    ) -> None:
        self._core, self._filter_value, self._causal, self._dtype, self._task = core, filter_value, causal, dtype, task

    def __call__(self, *arrays: Any) -> None:
        """Compute."""
        core, task = self._core, self._task
        bias, mask, given = (*arrays[3:-1], None, None, None)[:3]
        shape = (core.batch, core.length, core.keys)
        hidden = mask_bias(_NAMESPACE, mask, shape, self._filter_value, self._dtype)
        added = [number for number in (given, hidden, self._causal) if number is not None]
        if task is not None:
            total = added[0] if len(added) == 1 else None if not added else core.sum_of(added)
            if task.prepare(arrays[:3], bias, total, arrays[-1]):
                task.call.run()
                return
        core.attend(core.projected(arrays[:3], bias), added, arrays[-1])

    def bind_arrays(self, *arrays: Any) -> Callable[[], Any] | None:
        """The work on arrays that stay the same, if a single array has to be added to the scores."""
        bias, mask, given = (*arrays[3:-1], None, None, None)[:3]
        if self._task is None or sum(array is not None for array in (mask, given, self._causal)) > 1:
            return None
        made = None if mask is None else self._hidden(mask)
        if mask is not None and made is None:
            return None
        number = next((array for array in (given, self._causal, None if made is None else made[0]) if array is not None), None)
        if not self._task.prepare(arrays[:3], bias, number, arrays[-1]):
            return None
        attend = self._task.bound_call(*arrays, number)
        return attend if made is None else in_sequence([made[1].bound_call(*arrays, number), attend])

    def _hidden(self, mask: HostArray) -> tuple[HostArray, TaskCall] | None:
        """The score bias of a mask, and the task that writes it."""
        from .masks import mask_bias_of

        core = self._core
        return mask_bias_of(mask, (core.batch, core.length, core.keys), self._filter_value) if self._dtype == np.float32 else None


@dataclass(frozen=True, slots=True)
class _Attention:
    """Attention for one set of shapes."""

    batch: int
    heads: int
    length: int
    keys: int
    scale: float
    workspace: Workspace

    @classmethod
    def of(cls, query: HostArray, key: HostArray, heads: int, scale: float, workspace: Workspace) -> _Attention:
        """For query (batch, sequence, heads * size), and keys of that form or (batch, heads, keys, size)."""
        batch, length, width = query.shape
        keys = key.shape[1 if key.ndim == 3 else 2]
        return cls(batch, heads, length, keys, scale or 1 / math.sqrt(width // heads), workspace)

    def value_size(self, value: HostArray) -> int:
        """Size of a head's values."""
        return int(value.shape[3] if value.ndim == 4 else value.shape[2] // self.heads)

    def compiled(self, query: HostArray, value: HostArray) -> AttentionTask:
        """The same as a compiled task."""
        from .flash import AttentionShape, AttentionTask

        size = query.shape[2] // self.heads
        sizes = (self.batch, self.heads, self.length, self.keys, size, self.value_size(value))
        return AttentionTask(AttentionShape(*sizes, float(self.scale)))

    def sum_of(self, numbers: Sequence[HostArray]) -> HostArray:
        """Sum of arrays that broadcast against the scores, in workspace."""
        shape = np.broadcast_shapes(*(array.shape for array in numbers))
        total = self.workspace.array("mask", shape, numbers[0].dtype)
        np.add(numbers[0], numbers[1], out=total)
        for array in numbers[2:]:
            np.add(total, array, out=total)
        return total

    def projected(self, operands: Sequence[HostArray], bias: HostArray | None) -> list[HostArray]:
        """Query, keys and values as (batch, heads, sequence, size): views, or with their bias in workspace.

        What is split into heads already has no bias.
        """
        found, start = [], 0
        for name, part in zip(("query", "key", "value"), operands, strict=True):
            by_head = part if part.ndim == 4 else part.reshape(*part.shape[:2], self.heads, -1).transpose(0, 2, 1, 3)
            if bias is not None and part.ndim == 3:
                size = by_head.shape[3]
                own = bias[start : start + self.heads * size].reshape(1, self.heads, 1, size)
                by_head = np.add(by_head, own, out=self.workspace.array(name, by_head.shape, by_head.dtype))
                start += self.heads * size
            found.append(by_head)
        return found

    def attend(self, operands: Sequence[HostArray], biases: Sequence[HostArray], out: HostArray) -> None:
        """softmax(scale * q k^T + biases) v, into (batch, sequence, heads * size)."""
        query, key, value = operands
        target = out.reshape(self.batch, self.length, self.heads, -1).transpose(0, 2, 1, 3)
        shape = (self.batch, self.heads, self.length, self.keys)
        added = [np.broadcast_to(bias, shape) for bias in biases]
        for sample, heads, rows in self._blocks():
            block = query[sample, heads, rows]
            scores = self.workspace.array("scores", (*block.shape[:2], self.keys), out.dtype)
            blas_matmul(block, key[sample, heads].swapaxes(1, 2), out=scores)
            np.multiply(scores, self.scale, out=scores)
            for bias in added:
                np.add(scores, bias[sample, heads, rows], out=scores)
            weights = self.workspace.array("weights", scores.shape, out.dtype)
            softmax_last(scores, weights)
            blas_matmul(weights, value[sample, heads], out=target[sample, heads, rows])

    def _blocks(self) -> itertools.product[tuple[int, slice, slice]]:
        row_step = max(1, min(self.length, BLOCK // max(1, self.keys)))
        head_step = max(1, BLOCK // max(1, row_step * self.keys)) if row_step == self.length else 1
        heads = [slice(start, start + head_step) for start in range(0, self.heads, head_step)]
        rows = [slice(start, start + row_step) for start in range(0, self.length, row_step)]
        return itertools.product(range(self.batch), heads, rows)
