"""com.microsoft MultiHeadAttention and DecoderMaskedMultiHeadAttention: attention of projected queries, keys and values."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator

from .attention import MASK_FILTER_VALUE
from .attention_core import attend, causal_bias, mask_bias, merge_heads, split_heads

__all__ = ["multi_head_attention"]

MICROSOFT = "com.microsoft"


def _no_shared_buffer(info: KernelInfo) -> str | None:
    if info.has_input(8) or info.has_input(9):
        return "past_sequence_length and cache_indirection (key and value buffers shared by beams) are not supported"
    return None


@operator("MultiHeadAttention", domain=MICROSOFT, when=_no_shared_buffer)
def multi_head_attention(info: KernelInfo, xp: Any) -> Compute:
    """Attention with packed or separate inputs, projection bias, masks and past state; (output, keys, values, weights)."""
    heads, scale = info.attribute("num_heads"), info.attribute("scale", 0.0) or None
    causal = bool(info.attribute("unidirectional", 0))
    filter_value = info.attribute("mask_filter_value", MASK_FILTER_VALUE)
    outputs = len(info.outputs)
    inputs = _HeadInputs(info, xp, heads)

    def compute(
        query: Array,
        key: Array | None = None,
        value: Array | None = None,
        bias: Array | None = None,
        mask: Array | None = None,
        attention_bias: Array | None = None,
        past_key: Array | None = None,
        past_value: Array | None = None,
    ) -> Any:
        q, k, v = inputs.split(query, key, value, bias)
        if past_key is not None and past_value is not None:
            k, v = xp.concat([past_key, k], axis=2), xp.concat([past_value, v], axis=2)
        shape = (q.shape[0], q.shape[2], k.shape[2])
        hidden = mask_bias(xp, mask, shape, filter_value, q.dtype)
        ahead = causal_bias(xp, shape[1], shape[2], q.dtype) if causal else None
        attended = attend(xp, q, k, v, (attention_bias, hidden, ahead), scale=scale)
        output = merge_heads(xp, attended.output)
        return output if outputs < 2 else (output, k, v, attended.scores)[:outputs]

    return compute


class _HeadInputs:
    """Brings query, key and value, in whichever layout a node gives them, to (batch, heads, sequence, size)."""

    def __init__(self, info: KernelInfo, xp: Any, heads: int) -> None:
        self._info = info
        self._xp = xp
        self._heads = heads

    def split(self, query: Array, key: Array | None, value: Array | None, bias: Array | None) -> tuple[Array, Array, Array]:
        """Heads of the three, with the projection bias added."""
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
        return (q, k, v) if bias is None else self._biased(q, k, v, bias)

    def _packed(self, packed: Array, part: int) -> Array:
        return self._xp.permute_dims(packed[:, :, :, part, :], (0, 2, 1, 3))

    def _biased(self, q: Array, k: Array, v: Array, bias: Array) -> tuple[Array, Array, Array]:
        results, start = [], 0
        for heads in (q, k, v):
            stop = start + heads.shape[1] * heads.shape[3]
            results.append(heads + self._xp.reshape(bias[start:stop], (1, heads.shape[1], 1, heads.shape[3])))
            start = stop
        return results[0], results[1], results[2]
