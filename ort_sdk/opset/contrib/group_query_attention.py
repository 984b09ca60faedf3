"""GroupQueryAttention: attention with fewer key heads than query heads, a key-value cache and rotary embedding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, KernelInfo, TensorElementType
from ort_sdk.opset.definition import operator
from ort_sdk.opset.llm.rotary import rotate

from .attention_core import attend, merge_heads, put_behind, split_heads
from .cache_codec import CacheCodec
from .normalization import root_mean_square_normalized

__all__ = ["group_query_attention"]


def _supported(info: KernelInfo) -> str | None:
    if info.attribute("sliding_window_cache", 0):
        return "a key-value cache as short as the window (attribute sliding_window_cache) is not supported"
    if info.input_element_type(3) is TensorElementType.FLOAT8E4M3FN:
        return "a key-value cache of float8e4m3fn is not supported"
    return None


@dataclass(frozen=True, slots=True)
class _Lengths:
    """How many tokens each sequence of a batch has. Host arrays of (batch,) int64."""

    past: HostArray
    total: HostArray
    new: int
    longest: int

    @classmethod
    def of(cls, seqlens_k: HostArray, total_sequence_length: HostArray, new: int) -> _Lengths:
        total = seqlens_k.reshape(-1).astype(np.int64) + 1
        longest = int(total_sequence_length.reshape(-1)[0])
        past = np.zeros_like(total) if new == longest else total - new
        return cls(past, total, new, longest)

    def positions(self) -> HostArray:
        """Position of each new token, (batch, new)."""
        return self.past[:, None] + np.arange(self.new)

    def hidden(self, *, causal: bool, window: int) -> HostArray | None:
        """True where a query may not see a key, (batch, 1, new, keys); None if it may see all."""
        keys, queries = np.arange(self.longest), self.positions()[:, :, None]
        hidden = np.broadcast_to(keys >= self.total[:, None, None], (len(self.total), self.new, self.longest))
        if causal:
            hidden = keys > queries
        if window >= 0:
            hidden = hidden | (keys <= queries - window)
        return hidden[:, None] if hidden.any() else None


@operator("GroupQueryAttention", domain="com.microsoft", host_inputs=(5, 6), shape_inputs=(6,), when=_supported)
def group_query_attention(info: KernelInfo, xp: Any) -> Compute:
    """Attention over a key-value cache; (output, present_key, present_value, scores or weights).

    The present cache is as long as the past one, or as the longest sequence if that is more; each sequence's new keys are
    put behind its own past ones.
    """
    settings = _Settings.of(info)
    outputs, qk_output = len(info.outputs), info.attribute("qk_output", 0)
    project = _Projection(info, xp, settings)
    key_codec, value_codec = CacheCodec(info, xp, "k_quant_type"), CacheCodec(info, xp, "v_quant_type")

    def compute(
        query: Array,
        key: Array | None,
        value: Array | None,
        past_key: Array | None,
        past_value: Array | None,
        seqlens_k: HostArray,
        total_sequence_length: HostArray,
        cos_cache: Array | None = None,
        sin_cache: Array | None = None,
        position_ids: Array | None = None,
        attention_bias: Array | None = None,
        head_sink: Array | None = None,
        k_scale: Array | None = None,
        v_scale: Array | None = None,
        q_norm: Array | None = None,
        k_norm: Array | None = None,
    ) -> Any:
        lengths = _Lengths.of(seqlens_k, total_sequence_length, query.shape[1])
        q, k, v = project.split(query, key, value, q_norm, k_norm)
        if settings.do_rotary:
            q, k = project.rotated(q, k, cos_cache, sin_cache, position_ids, lengths)
        present_key = _appended(xp, past_key, key_codec.encode(k, k_scale), lengths)
        present_value = _appended(xp, past_value, value_codec.encode(v, v_scale), lengths)
        hidden = lengths.hidden(causal=settings.causal, window=settings.window)
        attended = attend(
            xp,
            q,
            key_codec.decode(present_key[:, :, : lengths.longest, :], k_scale),
            value_codec.decode(present_value[:, :, : lengths.longest, :], v_scale),
            (attention_bias, None if hidden is None else _lowest(xp, hidden, q.dtype)),
            scale=settings.scale,
            softcap=settings.softcap,
            sink=xp.zeros(settings.heads, dtype=q.dtype) if settings.smooth and head_sink is None else head_sink,
        )
        output = merge_heads(xp, attended.output)
        if outputs < 4:
            return output if outputs < 2 else (output, present_key, present_value)[:outputs]
        qk = _shown(xp, attended.scores, hidden) if qk_output == 1 else attended.weights
        return output, present_key, present_value, qk

    return compute


@dataclass(frozen=True, slots=True)
class _Settings:
    heads: int
    key_heads: int
    scale: float | None
    softcap: float
    window: int
    causal: bool
    do_rotary: bool
    interleaved: bool
    smooth: bool
    norm_epsilon: float

    @classmethod
    def of(cls, info: KernelInfo) -> _Settings:
        return cls(
            heads=info.attribute("num_heads"),
            key_heads=info.attribute("kv_num_heads"),
            scale=info.attribute("scale", 0.0) or None,
            softcap=info.attribute("softcap", 0.0),
            window=info.attribute("local_window_size", -1),
            causal=bool(info.attribute("causal", 1)),
            do_rotary=bool(info.attribute("do_rotary", 0)),
            interleaved=bool(info.attribute("rotary_interleaved", 0)),
            smooth=info.attribute("smooth_softmax", -1) == 1,
            norm_epsilon=info.attribute("qk_norm_epsilon", 1e-6),
        )


class _Projection:
    """Brings query, key and value to (batch, heads, sequence, size), normalised and rotated as the node asks."""

    def __init__(self, info: KernelInfo, xp: Any, settings: _Settings) -> None:
        self._info = info
        self._xp = xp
        self._settings = settings

    def split(
        self, query: Array, key: Array | None, value: Array | None, q_norm: Array | None, k_norm: Array | None
    ) -> tuple[Array, Array, Array]:
        """Heads of the three; a query without a key holds all three, query heads first."""
        xp, heads, key_heads = self._xp, self._settings.heads, self._settings.key_heads
        if key is None or value is None:
            both = split_heads(xp, query, heads + 2 * key_heads)
            q, k, v = both[:, :heads, ...], both[:, heads : heads + key_heads, ...], both[:, heads + key_heads :, ...]
        else:
            q, k, v = split_heads(xp, query, heads), split_heads(xp, key, key_heads), split_heads(xp, value, key_heads)
        return self._normalized(q, q_norm), self._normalized(k, k_norm), v

    def _normalized(self, x: Array, weight: Array | None) -> Array:
        if weight is None:
            return x
        return root_mean_square_normalized(self._xp, x, self._settings.norm_epsilon)[0] * weight

    def rotated(
        self, q: Array, k: Array, cos_cache: Array, sin_cache: Array, position_ids: Array | None, lengths: _Lengths
    ) -> tuple[Array, Array]:
        """Queries and keys rotated by their positions."""
        xp = self._xp
        positions = position_ids
        if positions is None:
            positions = xp.from_host(np.minimum(lengths.positions(), cos_cache.shape[0] - 1))
        cos, sin = (xp.expand_dims(xp.gather(cache, positions, 0), axis=1) for cache in (cos_cache, sin_cache))
        interleaved = self._settings.interleaved
        return rotate(xp, q, cos, sin, interleaved=interleaved), rotate(xp, k, cos, sin, interleaved=interleaved)


def _appended(xp: Any, past: Array | None, new: Array, lengths: _Lengths) -> Array:
    """The cache with each sequence's new entries behind its past ones."""
    return put_behind(xp, past, new, lengths.past.tolist(), max(lengths.longest, 0 if past is None else past.shape[2]))


def _shown(xp: Any, scores: Array, hidden: HostArray | None) -> Array:
    """Scores with zeros where a key is hidden."""
    if hidden is None:
        return scores
    return xp.where(xp.from_host(np.ascontiguousarray(hidden)), xp.zeros_like(scores), scores)


def _lowest(xp: Any, hidden: HostArray, dtype: Any) -> Array:
    lowest = xp.asarray(xp.finfo(dtype).min, dtype=dtype)
    return xp.where(xp.from_host(np.ascontiguousarray(hidden)), lowest, xp.zeros_like(lowest))
