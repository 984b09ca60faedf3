"""Attention: scaled dot products, masks, softmax, with an optional key/value cache."""

from __future__ import annotations

import math
from typing import Any

from ort_sdk.api import Array, Compute, KernelInfo, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.definition import operator

from .attention_mask import AllowedKeys, attention_bias
from .attention_shapes import attention_shapes

__all__ = ["attention"]


@dataclass(frozen=True, slots=True)
class Scores:
    """What is made of the products of queries and keys."""

    softcap: float
    output_mode: int | None
    """Which stage the fourth output shows (0 product, 1 capped, 2 with masks, 3 probabilities); None if it is not asked for."""
    precision: TensorElementType | None
    """Element type that softmax is computed in; None for that of the inputs."""

    def is_plain(self, xp: Any, query: Array) -> bool:
        """Whether it is softmax of the products alone, in the type of the queries."""
        is_own = self.precision is None or self.precision is xp.element_type(query)
        return is_own and not self.softcap and self.output_mode is None


@operator("Attention", shapes=attention_shapes)
def attention(info: KernelInfo, xp: Any) -> Compute:
    """Attention of (batch, heads, sequence, size) or (batch, sequence, heads * size) queries, keys and values."""
    q_heads, kv_heads = int(info.attribute("q_num_heads", 0)), int(info.attribute("kv_num_heads", 0))
    scale = info.attribute("scale", None)
    precision = info.attribute("softmax_precision", None)
    scores = Scores(
        float(info.attribute("softcap", 0.0)),
        int(info.attribute("qk_matmul_output_mode", 0)) if info.wants_output(3) else None,
        xp.compute_type(TensorElementType(precision)) if precision else None,
    )
    allowed = AllowedKeys(
        causal=bool(info.attribute("is_causal", 0)),
        left=int(info.attribute("left_window_size", -1)),
        right=int(info.attribute("right_window_size", -1)),
    )
    wants_present = info.wants_output(1) or info.wants_output(2)

    def compute(
        q: Array,
        k: Array,
        v: Array,
        attn_mask: Array | None = None,
        past_key: Array | None = None,
        past_value: Array | None = None,
        nonpad_kv_seqlen: Array | None = None,
    ) -> Any:
        packed = q.ndim == 3
        query, key, value = (_heads(xp, array, heads) for array, heads in ((q, q_heads), (k, kv_heads), (v, kv_heads)))
        past = 0 if past_key is None else past_key.shape[2]
        if past_key is not None:
            key, value = xp.concat([past_key, key], axis=2), xp.concat([past_value, value], axis=2)
        bias = attention_bias(xp, allowed, attn_mask, nonpad_kv_seqlen, query, key.shape[2], past)
        factor = 1 / math.sqrt(query.shape[3]) if scale is None else float(scale)
        at_once = None
        if scores.is_plain(xp, query):
            at_once = xp.attention(query, key, value, [] if bias is None else [bias], factor)
        y, shown = _attend(xp, query * factor, key, value, bias, scores) if at_once is None else (at_once, None)
        if packed:
            y = xp.reshape(xp.permute_dims(y, (0, 2, 1, 3)), (y.shape[0], y.shape[2], y.shape[1] * y.shape[3]))
        if not wants_present and shown is None:
            return y
        if past_key is None and wants_present:
            key, value = xp.asarray(key, copy=True), xp.asarray(value, copy=True)
        return y, key, value, shown

    return compute


def _heads(xp: Any, array: Array, heads: int) -> Array:
    """(batch, sequence, heads * size) as (batch, heads, sequence, size); 4-D as it is."""
    if array.ndim == 4:
        return array
    split = xp.reshape(array, (*array.shape[:2], heads, array.shape[2] // heads))
    return xp.permute_dims(split, (0, 2, 1, 3))


def _attend(xp: Any, query: Array, key: Array, value: Array, bias: Array | None, scores: Scores) -> tuple[Array, Array | None]:
    """The result (batch, query heads, sequence, value size), and the scores to show if a stage is asked for.

    Queries that share a key head are stacked along the sequence, so that each key head is one matrix product.
    """
    batch, heads, length, size = query.shape
    kv_heads, total = key.shape[1], key.shape[2]
    stacked = xp.reshape(query, (batch, kv_heads, heads // kv_heads * length, size))
    product = xp.matmul(stacked, xp.matrix_transpose(key))
    stages = [xp.reshape(product, (batch, heads, length, total))]
    if scores.softcap:
        stages.append(xp.tanh(stages[-1] / scores.softcap) * scores.softcap)
    capped = stages[-1]
    masked = capped if bias is None else capped + bias
    weights, sums = _exponentials(xp, masked, scores.precision)
    shown = None
    if scores.output_mode is not None:
        shown = (stages[0], capped, masked, weights / sums)[scores.output_mode]
    mixed = xp.matmul(xp.reshape(weights, (*stacked.shape[:3], total)), value)
    return xp.reshape(mixed, (batch, heads, length, value.shape[3])) / sums, shown


def _exponentials(xp: Any, masked: Array, precision: TensorElementType | None) -> tuple[Array, Array]:
    """Numerators and denominators of softmax over the last axis; a row in which every key is masked has zeros over one."""
    dtype = masked.dtype
    if precision is not None:
        masked = xp.astype(masked, precision)
    top = xp.max(masked, axis=-1, keepdims=True)
    weights = xp.exp(masked - xp.where(xp.isinf(top), xp.zeros_like(top), top))
    sums = xp.sum(weights, axis=-1, keepdims=True)
    sums = xp.where(sums == 0, xp.ones_like(sums), sums)
    return xp.module.astype(weights, dtype, copy=False), xp.module.astype(sums, dtype, copy=False)
