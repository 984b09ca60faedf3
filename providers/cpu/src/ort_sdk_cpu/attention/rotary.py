"""RotaryEmbedding in float32 by the compiled task that rotates queries and keys of attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, Slot
from ort_sdk_cpu.kernel.eager import direct_call
from ort_sdk_cpu.kernel.task_writer import MIN_ELEMENTS
from ort_sdk_cpu.memory.result_pool import ResultAllocator

from .arguments.lengths import MODULE as LENGTHS
from .arguments.lengths import CachePositionsFrom, IndexCheck
from .arguments.operands import strided_heads
from .decode import Launch, Rotary, has_contiguous_rows, rotation, takes_float32

__all__: list[str] = []

INT = np.dtype(np.int64)
OPERANDS = 4
Caches = tuple[HostArray, HostArray, HostArray | None]
"""Cosines and sines (row, pair), and rows of tokens; none where they follow each other from one on."""


@direct_call("RotaryEmbedding", domain="com.microsoft")
def contrib_rotary_embedding(info: KernelInfo) -> Callable[..., Any] | None:
    """Any node of float32: positions are given for each token, or for the first."""
    return _made(_ContribRotaryEmbedding, info)


@direct_call("RotaryEmbedding")
def rotary_embedding(info: KernelInfo) -> Callable[..., Any] | None:
    """Any node of float32: rows of the caches are those of positions, or of tokens."""
    return _made(_RotaryEmbedding, info)


def _made(kind: type[_Node], info: KernelInfo) -> Callable[..., Any] | None:
    floats = [argument for index, argument in enumerate(info.inputs) if index != kind.positions_at]
    return kind(info).call if takes_float32([*floats, *info.outputs]) else None


class _Node:
    """A node of one of the operators."""

    positions_at = 0
    """Which input the positions are."""

    def __init__(self, info: KernelInfo) -> None:
        self.heads, self.width = int(info.attribute("num_heads", 0)), int(info.attribute("rotary_embedding_dim", 0))
        self._is_interleaved, self._results = bool(info.attribute("interleaved", 0)), ResultAllocator()

    def own_heads(self, x: HostArray, cos: HostArray) -> int:
        """Heads of ``x``; 0 for arrays that the node cannot have."""
        raise NotImplementedError

    def caches(self, cos: HostArray, sin: HostArray, positions: HostArray | None, tokens: tuple[int, int]) -> Any:
        """``Caches``; ``NotImplemented`` for arrays that the node cannot have."""
        raise NotImplementedError

    def call(self, *arrays: HostArray) -> Any:
        """The node's output."""
        x, cos, sin, positions = self._named(arrays)
        if x.ndim not in {3, 4} or x.size < MIN_ELEMENTS:
            return NotImplemented
        tokens = _tokens(x)
        caches = self.caches(cos, sin, positions, tokens)
        if caches is NotImplemented:
            return NotImplemented
        if caches[2] is None and positions is not None:
            rows = positions.reshape(1, 1) + np.zeros((tokens[0], 1), np.int64) + np.arange(tokens[1])
            caches = (*caches[:2], rows)
        return _rotated(x, self.own_heads(x, cos), caches, self._results, is_interleaved=self._is_interleaved)

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot], fallback: Callable[[], Any]) -> Any:
        """A call of tasks on slots; None for what they do not take."""
        from ort_sdk_cpu.jit.task import TaskCall

        from .decode_bound import BoundTasks, NodeTasks, Placeholders

        placeholders = Placeholders()
        types = {self.positions_at: INT}
        given = [placeholders.array(slot, *([types[index]] if index in types else [])) for index, slot in enumerate(inputs)]
        out = placeholders.array(outputs[0])
        x, cos, sin, positions = self._named(given)
        if x is None or x.ndim not in {3, 4} or not x.size or out is None:
            return None
        tokens, cache_positions, checks = _tokens(x), placeholders.own((len(x), 3), INT), []
        caches = self.caches(cos, sin, positions, tokens)
        if caches is NotImplemented or (positions is not None and (positions.dtype != INT or not positions.flags.c_contiguous)):
            return None
        launch = _launch(x, out, self.own_heads(x, cos), caches, (self._is_interleaved, cache_positions))
        if launch is None:
            return None
        rows = len(caches[0])
        if caches[2] is positions and positions is not None:
            checks = [TaskCall(LENGTHS, "check_indices", IndexCheck(0, positions, positions.size, rows))]
        elif positions is not None:
            arguments = CachePositionsFrom(0, positions, *tokens, rows, cache_positions)
            checks = [TaskCall(LENGTHS, "cache_positions_from", arguments)]
        placeholders.kept.extend(array for array in caches if array is not None)
        return BoundTasks(NodeTasks(checks, launches=[launch]), placeholders, fallback)

    def _named(self, arrays: Sequence[Any]) -> tuple[Any, Any, Any, Any]:
        """Input, cosines, sines and positions."""
        padded = [*arrays, *[None] * (OPERANDS - len(arrays))]
        positions = padded.pop(self.positions_at)
        return padded[0], padded[1], padded[2], positions


class _ContribRotaryEmbedding(_Node):
    positions_at = 1

    def own_heads(self, x: HostArray, cos: HostArray) -> int:
        if x.ndim == 4:
            own, size = int(x.shape[1]), int(x.shape[3])
        else:
            own = self.heads if self.heads and self.width else x.shape[-1] // (2 * cos.shape[1] or 1)
            size = x.shape[-1] // (own or 1)
        return own if 2 * cos.shape[1] == (self.width or size) else 0

    def caches(self, cos: HostArray, sin: HostArray, positions: HostArray | None, tokens: tuple[int, int]) -> Any:
        if cos.ndim != 2 or positions is None:
            return NotImplemented
        if positions.shape == tokens:
            return cos, sin, positions
        return (cos, sin, None) if positions.shape == (1,) else NotImplemented


class _RotaryEmbedding(_Node):
    positions_at = 3

    def own_heads(self, x: HostArray, cos: HostArray) -> int:
        own = x.shape[1] if x.ndim == 4 else self.heads
        size = x.shape[3] if x.ndim == 4 else x.shape[2] // (own or 1)
        is_wrong = cos.shape[-1] != self.width // 2 if self.width else 2 * cos.shape[-1] != size
        return 0 if is_wrong else own

    def caches(self, cos: HostArray, sin: HostArray, positions: HostArray | None, tokens: tuple[int, int]) -> Any:
        if positions is not None:
            return (cos, sin, positions) if positions.shape == tokens else NotImplemented
        if cos.shape[:2] != tokens or cos.ndim != 3 or cos.shape != sin.shape or not cos.flags.c_contiguous:
            return NotImplemented
        if not sin.flags.c_contiguous:
            return NotImplemented
        cos, sin = (cache.reshape(-1, cache.shape[2]) for cache in (cos, sin))
        return cos, sin, np.arange(tokens[0] * tokens[1]).reshape(tokens)


def _tokens(x: HostArray) -> tuple[int, int]:
    """Batch and tokens of each sequence."""
    return x.shape[0], x.shape[2 if x.ndim == 4 else 1]


def _rotated(x: HostArray, heads: int, caches: Caches, results: ResultAllocator, *, is_interleaved: bool) -> Any:
    """The heads of ``x`` rotated; ``NotImplemented`` if the arrays do not belong together."""
    rows = caches[2]
    if rows is None or rows.min() < 0 or rows.max() >= len(caches[0]):
        return NotImplemented
    out = results.empty(x.shape)
    launch = _launch(x, out, heads, (*caches[:2], np.ascontiguousarray(rows)), (is_interleaved, None))
    if launch is None:
        return NotImplemented
    launch.run()
    return out


def _launch(x: HostArray, out: HostArray, heads: int, caches: Caches, how: tuple[bool, HostArray | None]) -> Launch | None:
    """The task; None if the arrays do not belong together.

    Args:
        x: (batch, tokens, heads * size), or (batch, heads, tokens, size).
        out: where it goes, which is like it.
        heads: of it.
        caches: the numbers to rotate by, with rows that are known or looked at elsewhere.
        how: whether pairs are neighbours, and ``CachedAttention.cache_positions`` for no rows.
    """
    if not heads or (x.ndim == 3 and x.shape[2] % heads) or not has_contiguous_rows(x):
        return None
    size = x.shape[3] if x.ndim == 4 else x.shape[2] // heads
    rotary = Rotary.of(*caches, _tokens(x), size, is_interleaved=how[0], are_known=False)
    if rotary is NotImplemented:
        return None
    return rotation(strided_heads(x, heads), strided_heads(out, heads), rotary, (*_tokens(x), heads, size), how[1])
