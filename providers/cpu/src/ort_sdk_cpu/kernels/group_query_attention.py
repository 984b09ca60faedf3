"""GroupQueryAttention in float32 by compiled tasks: nothing is copied between rotation, cache and attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, may_overwrite
from ort_sdk.opset.contrib.query_groups import GroupSettings

from .cached_attention import CachedAttention, Rotary, is_readable, takes
from .direct_kernel import computed_by
from .recycled import ResultMemory

__all__: list[str] = []

UNSUPPORTED_INPUTS = range(12, 16)
"""Scales of a quantised cache, and weights of normalizations."""
INTEGER_INPUTS = (5, 6, 9)
PARTS = 3


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
        settings = self._settings
        parts = self._parts(query, key, value)
        if parts is None or not _is_cache(past_key, past_value, query.shape[0], settings.key_heads, parts):
            return NotImplemented
        past_rows = 0 if past_key is None else past_key.shape[2]
        counts = _counts(seqlens_k, int(total_sequence_length.flat[0]), query.shape[:2], past_rows, settings.causal)
        rotary = self._rotary(cos_cache, sin_cache, position_ids, query.shape[:2], parts[0].shape[2] // settings.heads)
        if counts is None or rotary is NotImplemented:
            return NotImplemented
        sinks = np.zeros(settings.heads, np.float32) if settings.smooth and head_sink is None else head_sink
        capacity = max(past_rows, int(total_sequence_length.flat[0]))
        is_in_place = capacity == past_rows and may_overwrite(past_key) and may_overwrite(past_value)
        cached = self._cached(parts, past_key, past_value, counts, capacity, is_in_place=is_in_place)
        scores = (query.shape[0], settings.heads, query.shape[1], cached.most_keys)
        if not _is_bias(attention_bias, scores) or not is_readable(sinks):
            return NotImplemented
        cached.mask, cached.sinks, cached.rotary = attention_bias, sinks, rotary
        cached.run()
        return cached.out if self._outputs < 2 else (cached.out, cached.keys, cached.values)[: self._outputs]

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

    def _rotary(
        self, cos: HostArray | None, sin: HostArray | None, rows: HostArray | None, tokens: tuple[int, ...], size: int
    ) -> Any:
        """How to rotate; None for not at all."""
        if not self._settings.do_rotary or cos is None or sin is None:
            return None
        return Rotary.of(cos, sin, rows, tokens, size, is_interleaved=self._settings.interleaved)

    def _cached(
        self,
        parts: Sequence[HostArray],
        past_key: HostArray | None,
        past_value: HostArray | None,
        counts: list[tuple[int, int, int]],
        capacity: int,
        *,
        is_in_place: bool,
    ) -> CachedAttention:
        settings, (q, k, v) = self._settings, parts
        batch, length, width = q.shape
        size = width // settings.heads
        cache = (batch, settings.key_heads, capacity, size)
        return CachedAttention(
            heads=settings.heads,
            key_heads=settings.key_heads,
            scale=settings.scale or 1 / math.sqrt(size),
            q=q,
            keys=past_key if is_in_place and past_key is not None else self._results.empty(cache),
            values=past_value if is_in_place and past_value is not None else self._results.empty(cache),
            out=self._results.empty((batch, length, width)),
            counts=np.array(counts, np.int64),
            most_keys=max(count[2] for count in counts),
            k=k,
            v=v,
            past_key=past_key,
            past_value=past_value,
            left=settings.window - 1 if settings.window >= 0 else -1,
            right=0 if settings.causal else -1,
            softcap=settings.softcap,
            is_in_place=is_in_place,
        )


def _is_cache(
    past_key: HostArray | None, past_value: HostArray | None, batch: int, heads: int, parts: Sequence[HostArray]
) -> bool:
    if past_key is None or past_value is None:
        return past_key is past_value
    size = parts[1].shape[2] // heads
    is_shaped = past_key.ndim == 4 and past_key.shape == past_value.shape == (batch, heads, past_key.shape[2], size)
    return is_shaped and past_key.flags.c_contiguous and past_value.flags.c_contiguous


def _counts(
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
    return bias is None or (bias.ndim == 4 and all(own in {1, whole} for own, whole in zip(bias.shape, scores, strict=True)))
