"""GroupQueryAttention in float32 by compiled tasks: nothing is copied between rotation, cache and attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, Slot, may_overwrite
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.contrib.query_groups import GroupSettings

from .attention_over_cache import is_added
from .cached_attention import CachedAttention, Rotary, is_readable, takes
from .direct_kernel import computed_by
from .recycled import ResultMemory

__all__ = ["counts_of"]

UNSUPPORTED_INPUTS = range(12, 16)
"""Scales of a quantised cache, and weights of normalizations."""
LASTS, LONGEST, ROWS = 5, 6, 9
INTEGER_INPUTS = (LASTS, LONGEST, ROWS)
MOST_INPUTS = 12
PARTS = 3
CACHE_AXES = 4

_FLOAT = np.dtype(np.float32)
_TYPES: dict[int, np.dtype[Any]] = {LASTS: np.dtype(np.int32), LONGEST: np.dtype(np.int32), ROWS: np.dtype(np.int64)}


@computed_by("GroupQueryAttention", domain="com.microsoft")
def group_query_attention(info: KernelInfo) -> Callable[..., Any] | None:
    """Any float32 node that keeps all tokens in its cache and asks for no scores."""
    floats = [argument for index, argument in enumerate(info.inputs) if index not in INTEGER_INPUTS]
    has_more = len(info.outputs) > PARTS or any(map(info.has_input, UNSUPPORTED_INPUTS))
    if has_more or info.attribute("sliding_window_cache", 0) or not takes((*floats, *info.outputs)):
        return None
    return _GroupQueryAttention(GroupSettings.of(info), len(info.outputs)).call


class _GroupQueryAttention:
    """One node."""

    in_place = ((3, 1), (4, 2))
    """Past keys and values, and what becomes of them."""

    def __init__(self, settings: GroupSettings, outputs: int) -> None:
        self._settings, self._outputs, self._results = settings, outputs, ResultMemory()

    def call(
        self,
        query: HostArray,
        key: HostArray | None,
        value: HostArray | None,
        past_key: HostArray | None,
        past_value: HostArray | None,
        seqlens_k: HostArray,
        total_sequence_length: HostArray,
        cos_cache: HostArray | None = None,
        sin_cache: HostArray | None = None,
        position_ids: HostArray | None = None,
        attention_bias: HostArray | None = None,
        head_sink: HostArray | None = None,
    ) -> Any:
        """The node's outputs."""
        if total_sequence_length.size != 1 or (past_key is not None and past_key.ndim != CACHE_AXES):
            return NotImplemented
        past_rows, longest = 0 if past_key is None else past_key.shape[2], int(total_sequence_length.flat[0])
        counts = counts_of(seqlens_k, longest, query.shape[:2], past_rows, self._settings.causal)
        if counts is None:
            return NotImplemented
        is_in_place = past_rows >= longest and may_overwrite(past_key) and may_overwrite(past_value)
        state = _State(past_key, past_value, np.array(counts, np.int64), max(count[2] for count in counts), longest)
        if is_in_place:
            state.keys, state.values = past_key, past_value
        rotation = (cos_cache, sin_cache, position_ids)
        cached = self._cached((query, key, value), state, rotation, (attention_bias, head_sink))
        if cached is None:
            return NotImplemented
        cached.is_in_place = is_in_place
        cached.run()
        return cached.out if self._outputs < 2 else (cached.out, cached.keys, cached.values)[: self._outputs]

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot], otherwise: Callable[[], Any]) -> Any:
        """A call of tasks on slots, for a longest sequence that is known; None for what tasks do not take."""
        from ort_sdk_cpu.machine_code import TaskCall

        from .bound_attention import BoundTasks, Standing, Tasks, places_of_caches

        if not inputs[LONGEST].is_constant:
            return None
        standing, longest = Standing(), int(inputs[LONGEST].array.flat[0])
        given = [standing.array(slot, _TYPES.get(index, _FLOAT)) for index, slot in enumerate(inputs)]
        padded: list[Any] = [*given, *[None] * (MOST_INPUTS - len(given))]
        query, key, value, past_key, past_value, lasts, _, *more = padded
        if query is None or lasts is None or lasts.size != len(query) or not longest or not lasts.flags.c_contiguous:
            return None
        past_rows = 0 if past_key is None else past_key.shape[2]
        state = _State(past_key, past_value, standing.own((len(query), 3), np.dtype(np.int64)), longest, longest)
        state.out, state.keys, state.values = [standing.array(slot) for slot in (*outputs, None, None)[:PARTS]]
        cached = self._cached((query, key, value), state, more[:3], more[3:], are_known=False)
        if cached is None or not query.shape[1]:
            return None
        sizes = (len(query), query.shape[1], longest, past_rows, int(self._settings.causal))
        arguments = (0, lasts, *sizes, state.counts)
        checks = [TaskCall("attention_inputs", "count_tokens", arguments)]
        if cached.rotary is not None and cached.rotary.rows is not None:
            rows = cached.rotary.rows
            table = (0, rows, rows.size, cached.rotary.cos.shape[0])
            checks.append(TaskCall("attention_inputs", "check_rows", table))
        return BoundTasks(Tasks(checks, attention=cached), standing, otherwise, places_of_caches(inputs, outputs, self.in_place))

    def _parts(self, query: HostArray, key: HostArray | None, value: HostArray | None) -> tuple[HostArray, ...] | None:
        """Queries, keys and values; None if they do not belong together."""
        heads, key_heads = self._settings.heads, self._settings.key_heads
        if query.ndim != 3 or heads % key_heads:
            return None
        if key is None or value is None:
            size, rest = divmod(query.shape[2], heads + 2 * key_heads)
            first, second = heads * size, (heads + key_heads) * size
            return None if rest else (query[..., :first], query[..., first:second], query[..., second:])
        size, rest = divmod(query.shape[2], heads)
        is_alike = key.shape == value.shape == (*query.shape[:2], key_heads * size)
        return (query, key, value) if is_alike and not rest and is_readable(query, key, value) else None

    def _rotary(self, arrays: Sequence[HostArray | None], tokens: tuple[int, ...], size: int, *, are_known: bool) -> Any:
        """How to rotate; None for not at all."""
        cos, sin, rows = arrays
        if not self._settings.do_rotary:
            return None
        if cos is None or sin is None:
            return None if cos is sin else NotImplemented
        return Rotary.of(cos, sin, rows, tokens, size, is_interleaved=self._settings.interleaved, are_known=are_known)

    def _cached(
        self,
        given: Sequence[HostArray | None],
        state: _State,
        rotation: Sequence[HostArray | None],
        added: Sequence[HostArray | None],
        *,
        are_known: bool = True,
    ) -> CachedAttention | None:
        """What is to be computed; None for arrays that tasks do not take.

        Args:
            given: query, key and value.
            state: the cache.
            rotation: cosines, sines and their rows of tokens.
            added: numbers added to scores, and those that take part in their softmaxes.
            are_known: whether the rows are known.
        """
        settings, query = self._settings, given[0]
        parts = None if query is None else self._parts(query, given[1], given[2])
        if query is None or parts is None or not _is_cache(state, query.shape[0], settings.key_heads, parts):
            return None
        (batch, length, width), (bias, sinks) = parts[0].shape, added
        size = width // settings.heads
        rotary = self._rotary(rotation, (batch, length), size, are_known=are_known)
        if settings.smooth and sinks is None:
            sinks = np.zeros(settings.heads, np.float32)
        scores = (batch, settings.heads, length, state.most_keys)
        are_sinks = sinks is None or (sinks.shape == (settings.heads,) and is_readable(sinks))
        if rotary is NotImplemented or not _is_bias(bias, scores) or not are_sinks:
            return None
        cache, empty = (batch, settings.key_heads, state.capacity, size), self._results.empty
        return CachedAttention(
            heads=settings.heads,
            key_heads=settings.key_heads,
            scale=settings.scale or 1 / math.sqrt(size),
            q=parts[0],
            keys=empty(cache) if state.keys is None else state.keys,
            values=empty(cache) if state.values is None else state.values,
            out=empty((batch, length, width)) if state.out is None else state.out,
            counts=state.counts,
            most_keys=state.most_keys,
            k=parts[1],
            v=parts[2],
            past_key=state.past_key,
            past_value=state.past_value,
            mask=bias,
            rotary=rotary,
            sinks=sinks,
            left=settings.window - 1 if settings.window >= 0 else -1,
            right=0 if settings.causal else -1,
            softcap=settings.softcap,
        )


@dataclass(slots=True)
class _State:
    """The cache of a call."""

    past_key: HostArray | None
    past_value: HostArray | None
    counts: HostArray
    """As ``CachedAttention`` takes them."""
    most_keys: int
    longest: int
    """Tokens that a sequence may have."""
    keys: HostArray | None = None
    """Where the present goes; None for new memory, like the next."""
    values: HostArray | None = None
    out: HostArray | None = None
    """Where the result goes."""

    @property
    def capacity(self) -> int:
        """Rows of the present."""
        return max(0 if self.past_key is None else self.past_key.shape[2], self.longest)


def _is_cache(state: _State, batch: int, heads: int, parts: Sequence[HostArray]) -> bool:
    past_key, past_value = state.past_key, state.past_value
    if past_key is None or past_value is None:
        return past_key is past_value
    size = parts[1].shape[2] // heads
    is_shaped = past_key.ndim == 4 and past_key.shape == past_value.shape == (batch, heads, past_key.shape[2], size)
    return is_shaped and past_key.flags.c_contiguous and past_value.flags.c_contiguous


def counts_of(
    seqlens_k: HostArray, longest: int, tokens: tuple[int, ...], past_rows: int, is_causal: bool
) -> list[tuple[int, int, int]] | None:
    """Row of the first new key, position of the first query, and keys, of each sample; None if they contradict each other."""
    found, (batch, new) = [], tokens
    for last in seqlens_k.ravel().tolist():
        past = 0 if new == longest else last + 1 - new
        if not 0 <= past <= min(past_rows, longest - new) or last >= longest:
            return None
        found.append((past, past, longest if is_causal else last + 1))
    return found if len(found) == batch and new else None


def _is_bias(bias: HostArray | None, scores: tuple[int, ...]) -> bool:
    return bias is None or is_added(bias.shape, scores)
