"""GroupQueryAttention: attention with fewer key heads than query heads, a key-value cache and rotary embedding."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo, TensorElementType
from ort_sdk.opset.definition import operator

from .attention_core import attend, attended_values, check_columns, merge_heads, put_behind
from .attention_shapes import group_query_shapes
from .cache_codec import CacheCodec
from .query_groups import GroupSettings, Projection, TokenLayout, hidden_bias, resident

__all__ = ["group_query_attention"]


def _supported(info: KernelInfo) -> str | None:
    if info.input_element_type(3) is TensorElementType.FLOAT8E4M3FN:
        return "a key-value cache of float8e4m3fn is not supported"
    return None


@operator(
    "GroupQueryAttention",
    domain="com.microsoft",
    host_inputs=(5, 6),
    shape_inputs=(6,),
    when=_supported,
    shapes=group_query_shapes,
)
def group_query_attention(info: KernelInfo, xp: Any) -> Compute:
    """Attention over a key-value cache; (output, present_key, present_value, scores or weights).

    The present cache is as long as the past one, or as the longest sequence if that is more; each sequence's new keys are
    put behind its own past ones. With ``sliding_window_cache`` it keeps its length and old keys are dropped.
    """
    settings = GroupSettings.of(info)
    outputs, qk_output = len(info.outputs), info.attribute("qk_output", 0)
    project, cache = Projection(xp, settings), _Cache(info, xp, settings)

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
        layout = cache.layout(seqlens_k, total_sequence_length, query.shape[1], past_key)
        q, k, v = project.split(query, key, value, q_norm, k_norm)
        q, k = project.rotated(q, k, cos_cache, sin_cache, layout, position_ids)
        keys, present_key = cache.extended(cache.key_codec, past_key, k, k_scale, layout)
        values, present_value = cache.extended(cache.value_codec, past_value, v, v_scale, layout)
        hidden = layout.hidden(causal=settings.causal, window=settings.window)
        biases = (cache.resident_columns(attention_bias, layout), hidden_bias(xp, hidden, q.dtype))
        sink = xp.zeros(settings.heads, dtype=q.dtype) if settings.smooth and head_sink is None else head_sink
        factors: dict[str, Any] = {"scale": settings.scale, "softcap": settings.softcap, "sink": sink}
        if outputs < 4:
            output = merge_heads(xp, attended_values(xp, q, keys, values, biases, **factors))
            return output if outputs < 2 else (output, present_key, present_value)[:outputs]
        attended = attend(xp, q, keys, values, biases, **factors)
        qk = _shown(xp, attended.scores, hidden) if qk_output == 1 else attended.weights
        return merge_heads(xp, attended.output), present_key, present_value, qk

    return compute


class _Cache:
    """The key-value cache of a node: how long it is, how it is stored, what of it is kept."""

    def __init__(self, info: KernelInfo, xp: Any, settings: GroupSettings) -> None:
        self._info = info
        self._xp = xp
        self._window = settings.window
        self._drops = bool(info.attribute("sliding_window_cache", 0))
        self.key_codec = CacheCodec(info, xp, "k_quant_type")
        self.value_codec = CacheCodec(info, xp, "v_quant_type")

    def layout(self, seqlens_k: HostArray, total_sequence_length: HostArray, new: int, past_key: Array | None) -> TokenLayout:
        """Positions of the tokens of this call."""
        totals, longest = seqlens_k.reshape(-1).astype(np.int64) + 1, int(total_sequence_length.reshape(-1)[0])
        if not self._drops:
            layout = TokenLayout.of(totals, longest, new)
            self._check(layout)
            return layout
        capacity = 0 if past_key is None else past_key.shape[2]
        if not 0 < self._window <= capacity:
            raise InvalidArgument(
                f"{self._info.describe()}: with sliding_window_cache, local_window_size ({self._window}) must be positive and"
                f" at most the length of past_key ({capacity})"
            )
        return TokenLayout.windowed(totals, longest, new, self._window, capacity)

    def _check(self, layout: TokenLayout) -> None:
        """Refuse lengths that contradict each other."""
        if (layout.past < 0).any() or (layout.total > layout.rows).any():
            raise InvalidArgument(
                f"{self._info.describe()}: seqlens_k are {(layout.total - 1).tolist()}; with {layout.new} new tokens and a"
                f" total_sequence_length of {layout.rows} they must be within [{layout.new - 1}, {layout.rows - 1}]"
            )

    def extended(
        self, codec: CacheCodec, past: Array | None, new: Array, scale: Array | None, layout: TokenLayout
    ) -> tuple[Array, Array]:
        """What attention reads (decoded, past and new), and the present cache (as it is stored)."""
        capacity = max(layout.rows, 0 if past is None else past.shape[2])
        stored = put_behind(self._xp, past, codec.encode(new, scale), layout.starts, capacity)
        read = codec.decode(stored[:, :, : layout.rows, :], scale)
        return read, self._kept(stored, past, layout) if self._drops and past is not None else stored

    def _kept(self, stored: Array, past: Array, layout: TokenLayout) -> Array:
        """The rows that stay, moved to the front of an array like the past one."""
        counts = resident(layout.total, self._window, past.shape[2])
        present = self._xp.zeros_like(past)
        for index, (count, first) in enumerate(zip(counts.tolist(), (layout.total - counts - layout.base).tolist(), strict=True)):
            present[index, :, :count, :] = stored[index, :, first : first + count, :]
        return present

    def resident_columns(self, bias: Array | None, layout: TokenLayout) -> Array | None:
        """Columns of an attention bias, which count tokens from the first, for the rows of the cache."""
        if bias is None or not self._drops:
            check_columns(self._info, bias, layout.rows)
            return bias
        xp, batch = self._xp, len(layout.base)
        columns = np.clip(layout.base[:, None] + np.arange(layout.rows), 0, bias.shape[-1] - 1)
        parts = [xp.take(bias[index % bias.shape[0], ...], xp.from_host(columns[index]), axis=-1) for index in range(batch)]
        return xp.stack(parts, axis=0)


def _shown(xp: Any, scores: Array, hidden: HostArray | None) -> Array:
    """Scores with zeros where a key is hidden."""
    if hidden is None:
        return scores
    return xp.where(xp.from_host(np.ascontiguousarray(hidden)), xp.zeros_like(scores), scores)
