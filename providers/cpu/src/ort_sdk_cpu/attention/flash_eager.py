"""Attention on a run's arrays by compiled tasks, without a program: for lengths that were never seen before."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.kernel.eager_tasks import eager_call
from ort_sdk_cpu.kernel.writer import MakeWriter
from ort_sdk_cpu.memory.result_pool import ResultAllocator
from ort_sdk_cpu.memory.strides import broadcast_strides
from ort_sdk_cpu.memory.workspace import workspace_of
from ort_sdk_cpu.platform import libraries

from .arguments.flash import FlashAttention
from .arguments.operands import NO_BIAS, strided_heads
from .flash import AttentionShape, flash_task
from .operators import MultiHead, is_score_bias, multi_head
from .select import AttentionAlgorithm, AttentionProblem, goes_over_cache_eagerly, select_eager

__all__: list[str] = []

FLOAT = np.dtype(np.float32)


@eager_call("MultiHeadAttention", domain="com.microsoft", integer_inputs=(4, 8, 9))
def eager_attention(info: KernelInfo, _make_writer: MakeWriter) -> Callable[..., Any] | None:
    """Attention of queries, keys and values with a bias and a score bias; ``NotImplemented`` for any other."""
    over_cache = multi_head(info)
    if any(info.wants_output(index) for index in range(1, len(info.outputs))) or info.attribute("unidirectional", 0):
        return None if over_cache is None else over_cache.call
    return _EagerAttention(info, over_cache).call


class _EagerAttention:
    """A node.

    Args:
        info: the node.
        over_cache: computes it with a past, or of few queries; None for nodes that it is not for.
    """

    def __init__(self, info: KernelInfo, over_cache: MultiHead | None) -> None:
        self._over_cache, self._results, self._workspace = over_cache, ResultAllocator(), workspace_of(info)
        self._heads, self._scale = int(info.attribute("num_heads")), float(info.attribute("scale", 0.0))
        self.algorithm: str | None = None
        """The one used last."""

    def call(
        self,
        query: HostArray,
        key: HostArray | None = None,
        value: HostArray | None = None,
        bias: HostArray | None = None,
        mask: HostArray | None = None,
        added: HostArray | None = None,
        *past: Any,
    ) -> Any:
        """The node's output."""
        over_cache, is_plain = self._over_cache, mask is None and all(array is None for array in past)
        key_shape = None if key is None else key.shape
        if over_cache is not None and (not is_plain or _goes_over_cache(query.shape, key_shape, self._heads)):
            result = over_cache.call(query, key, value, bias, mask, added, *past)
            self.algorithm = over_cache.algorithm
            return result
        if key is None or value is None or not is_plain:
            return NotImplemented
        return self._attended(query, key, value, bias, added)

    def _attended(
        self, query: HostArray, key: HostArray, value: HostArray, bias: HostArray | None, added: HostArray | None
    ) -> Any:
        heads = self._heads
        given = (query.shape, key.shape, value.shape, None if bias is None else bias.shape)
        plan = _planned(*given, None if added is None else added.shape, heads, self._scale, libraries.thread_count())
        if plan is None or not _is_readable(query, key, value, bias):
            self.algorithm = AttentionAlgorithm.OPSET
            return NotImplemented
        out = self._results.empty(plan.out_shape)
        operands = [strided_heads(array, heads) for array in (query, key, value, out)]
        workspace = (self._workspace.buffer("attention", plan.work_bytes), plan.thread_bytes)
        biases = _biases(bias, plan.value_bias)
        flash_task()(plan.threads, FlashAttention.of(operands, plan.sizes, workspace, _added(added, plan.scores), biases))
        self.algorithm = AttentionAlgorithm.FLASH
        return out


@functools.lru_cache(maxsize=256)
def _goes_over_cache(query: Shape, key: Shape | None, heads: int) -> bool:
    """Whether there are few queries, and much work for them."""
    if len(query) != 3 or key is None or len(key) not in {3, 4} or query[2] % heads:
        return False
    batch, length, width = query
    size = width // heads
    return goes_over_cache_eagerly(AttentionProblem(batch, heads, length, key[len(key) - 2], size, size))


Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    """How flash attention over arrays of some shapes is launched."""

    out_shape: tuple[int, ...]
    scores: tuple[int, ...]
    sizes: tuple[int | float, ...]
    """``FlashAttention.batch`` to ``scale``."""
    value_bias: int | None
    """Elements of the bias before that of values; None if values have no bias, as those that are split into heads already."""
    threads: int
    thread_bytes: int
    """Workspace of a thread."""

    @property
    def work_bytes(self) -> int:
        """Workspace of all threads."""
        return self.threads * self.thread_bytes


@functools.lru_cache(maxsize=256)
def _planned(
    query: Shape, key: Shape, value: Shape, bias: Shape | None, added: Shape | None, heads: int, scale: float, most_threads: int
) -> _Plan | None:
    """The plan for arrays of these shapes; None if they do not fit together, or the task does not pay."""
    shape = _shape(query, key, value, heads, scale)
    if (
        shape is None
        or select_eager(_problem(shape)) is AttentionAlgorithm.OPSET
        or bias not in {None, (heads * (2 * shape.size + shape.value_size),)}
    ):
        return None
    if added is not None and not is_score_bias(added, shape.scores):
        return None
    out_shape = (shape.batch, shape.length, heads * shape.value_size)
    value_bias = None if len(value) == 4 else 2 * heads * shape.size
    threads = shape.threads(most_threads)
    return _Plan(out_shape, shape.scores, shape.words, value_bias, threads, shape.thread_bytes)


def _shape(query: Shape, key: Shape, value: Shape, heads: int, scale: float) -> AttentionShape | None:
    if len(query) != 3 or len(key) != len(value) or len(key) not in {3, 4} or query[2] % heads:
        return None
    batch, length, width = query
    size = width // heads
    if len(key) == 4:
        keys, value_size = key[2], value[3]
        are_alike = key == value == (batch, heads, keys, size)
    else:
        keys, value_size = key[1], value[2] // heads
        are_alike = key == (batch, keys, width) and value == (batch, keys, heads * value_size)
    if not are_alike:
        return None
    return AttentionShape(batch, heads, length, keys, size, value_size, scale or 1 / math.sqrt(size))


def _problem(shape: AttentionShape) -> AttentionProblem:
    return AttentionProblem(shape.batch, shape.heads, shape.length, shape.keys, shape.size, shape.value_size)


def _is_readable(query: HostArray, key: HostArray, value: HostArray, bias: HostArray | None) -> bool:
    """Whether the elements of rows follow each other, as the task reads them."""
    itemsize = FLOAT.itemsize
    are_rows = query.strides[-1] == itemsize and key.strides[-1] == itemsize and value.strides[-1] == itemsize
    return are_rows and (bias is None or bias.strides[0] == itemsize)


def _added(added: HostArray | None, scores: Shape) -> Sequence[Any]:
    """Words of ``ScoreBias``."""
    return NO_BIAS if added is None else (added, *broadcast_strides(scores, added.shape, added.strides))


def _biases(bias: HostArray | None, value_bias: int | None) -> tuple[HostArray | None, HostArray | None]:
    """Of queries and values; that of keys adds the same to all scores of a query, and changes nothing."""
    return bias, None if bias is None or value_bias is None else bias[value_bias:]
