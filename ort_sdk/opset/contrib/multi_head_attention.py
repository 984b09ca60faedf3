"""com.microsoft MultiHeadAttention and DecoderMaskedMultiHeadAttention: attention of projected queries, keys and values."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.definition import operator

from .attention import MASK_FILTER_VALUE
from .attention_core import (
    attend,
    attended_values,
    causal_bias,
    check_columns,
    follow_beams,
    mask_bias,
    merge_heads,
    put_behind,
    split_heads,
)
from .attention_shapes import cached_multi_head_shapes, multi_head_shapes

__all__ = ["multi_head_attention"]

MICROSOFT = "com.microsoft"


@operator("MultiHeadAttention", domain=MICROSOFT, host_inputs=(8,), shapes=multi_head_shapes)
def multi_head_attention(info: KernelInfo, xp: Any) -> Compute:
    """Attention with packed or separate inputs, projection bias, masks and past state; (output, keys, values, scores)."""
    attention = _CachedAttention(info, xp)

    def compute(
        query: Array,
        key: Array | None = None,
        value: Array | None = None,
        bias: Array | None = None,
        mask: Array | None = None,
        attention_bias: Array | None = None,
        past_key: Array | None = None,
        past_value: Array | None = None,
        past_length: HostArray | None = None,
        indirection: Array | None = None,
    ) -> Any:
        cache = _Cache(past_key, past_value, past_length, indirection)
        return attention.run((query, key, value, bias), mask, attention_bias, cache)

    return compute


@operator("DecoderMaskedMultiHeadAttention", domain=MICROSOFT, host_inputs=(7, 8), shapes=cached_multi_head_shapes)
def decoder_masked_multi_head_attention(info: KernelInfo, xp: Any) -> Compute:
    """MultiHeadAttention of one new token per sequence, whose past may be shared by beams."""
    attention = _CachedAttention(info, xp)

    def compute(
        query: Array,
        key: Array | None = None,
        value: Array | None = None,
        mask: Array | None = None,
        attention_bias: Array | None = None,
        past_key: Array | None = None,
        past_value: Array | None = None,
        past_length: HostArray | None = None,
        _beam_width: HostArray | None = None,
        indirection: Array | None = None,
        bias: Array | None = None,
    ) -> Any:
        cache = _Cache(past_key, past_value, past_length, indirection)
        return attention.run((query, key, value, bias), mask, attention_bias, cache)

    return compute


@dataclass(frozen=True, slots=True)
class _Cache:
    """Past keys and values, each (batch, heads, entries, size)."""

    keys: Array | None
    values: Array | None
    length: HostArray | None
    """How many entries are used, if the arrays are longer; one number."""
    indirection: Array | None
    """(batch, beams, entries): beam that each entry came from."""


class _CachedAttention:
    """What the attention operators with a cache do: (output, keys, values, scores), as many as the node asks for."""

    def __init__(self, info: KernelInfo, xp: Any) -> None:
        self._info, self._xp = info, xp
        self._scale = info.attribute("scale", 0.0) or None
        self._causal = bool(info.attribute("unidirectional", 0))
        self._filter_value = info.attribute("mask_filter_value", MASK_FILTER_VALUE)
        self._outputs = len(info.outputs)
        self._inputs = _HeadInputs(info, xp, info.attribute("num_heads"))

    def run(
        self,
        projections: tuple[Array, Array | None, Array | None, Array | None],
        mask: Array | None,
        attention_bias: Array | None,
        cache: _Cache,
    ) -> Any:
        """Attend over the cache and the new entries; ``projections`` are query, key, value and bias."""
        xp = self._xp
        q, k, v = self._inputs.split(*projections)
        new = k.shape[2]
        k, v, total = self._extended(k, v, cache)
        check_columns(self._info, attention_bias, total)
        keys, values = k[:, :, :total, :], v[:, :, :total, :]
        if cache.indirection is not None:
            past = total - q.shape[2]
            keys, values = (follow_beams(xp, part, cache.indirection, past) for part in (keys, values))
        shape = (q.shape[0], q.shape[2], total)
        hidden = mask_bias(xp, mask, shape, self._filter_value, q.dtype)
        ahead = causal_bias(xp, shape[1], total, total - new, q.dtype) if self._causal else None
        biases = (attention_bias, hidden, ahead)
        if self._outputs > 3:
            attended = attend(xp, q, keys, values, biases, scale=self._scale)
            return merge_heads(xp, attended.output), k, v, attended.scores
        output = merge_heads(xp, attended_values(xp, q, keys, values, biases, scale=self._scale))
        return output if self._outputs < 2 else (output, k, v)[: self._outputs]

    def _extended(self, k: Array, v: Array, cache: _Cache) -> tuple[Array, Array, int]:
        """Keys and values with the new ones behind the past ones, and how many entries count."""
        if cache.keys is None or cache.values is None:
            if self._outputs > 1:
                k, v = self._xp.asarray(k, copy=True), self._xp.asarray(v, copy=True)
            return k, v, k.shape[2]
        if cache.length is None:
            k, v = self._xp.concat([cache.keys, k], axis=2), self._xp.concat([cache.values, v], axis=2)
            return k, v, k.shape[2]
        start = int(cache.length.reshape(-1)[0])
        starts, capacity = [start] * k.shape[0], cache.keys.shape[2]
        total = start + k.shape[2]
        if start < 0 or total > capacity:
            raise InvalidArgument(
                f"{self._info.describe()}: past_sequence_length is {start}; with {k.shape[2]} new tokens it must be within"
                f" [0, {capacity - k.shape[2]}], since the cache has {capacity} rows"
            )
        return (
            put_behind(self._xp, cache.keys, k, starts, capacity),
            put_behind(self._xp, cache.values, v, starts, capacity),
            total,
        )


class _HeadInputs:
    """Brings query, key and value, in whichever layout a node gives them, to (batch, heads, sequence, size)."""

    def __init__(self, info: KernelInfo, xp: Any, heads: int) -> None:
        self._info = info
        self._xp = xp
        self._heads = heads

    def split(self, query: Array, key: Array | None, value: Array | None, bias: Array | None) -> tuple[Array, Array, Array]:
        """Heads of the three, with the projection bias added to those that are not split into heads already, as ORT does."""
        if query.ndim == 5:
            q, k, v = (self._packed(query, part) for part in range(3))
        elif key is not None and key.ndim == 5:
            q, k, v = split_heads(self._xp, query, self._heads), self._packed(key, 0), self._packed(key, 1)
        elif key is None or value is None:
            raise InvalidArgument(
                f"{self._info.describe()}: query has shape {tuple(query.shape)} and key or value is absent; without them "
                "the query must be packed as (batch, sequence, heads, 3, head size), or the key as (batch, sequence, heads, 2, "
                "head size)"
            )
        else:
            q = split_heads(self._xp, query, self._heads)
            k, v = (part if part.ndim == 4 else split_heads(self._xp, part, self._heads) for part in (key, value))
        if bias is None:
            return q, k, v
        is_of_heads = key is not None and key.ndim == 4
        return (self._biased(bias, q)[0], k, v) if is_of_heads else self._biased(bias, q, k, v)

    def _packed(self, packed: Array, part: int) -> Array:
        return self._xp.permute_dims(packed[:, :, :, part, :], (0, 2, 1, 3))

    def _biased(self, bias: Array, *parts: Array) -> tuple[Array, ...]:
        results, start = [], 0
        for heads in parts:
            stop = start + heads.shape[1] * heads.shape[3]
            results.append(heads + self._xp.reshape(bias[start:stop], (1, heads.shape[1], 1, heads.shape[3])))
            start = stop
        return tuple(results)
