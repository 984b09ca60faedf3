"""LinearAttention: attention with a recurrent state instead of a growing cache."""

from __future__ import annotations

import math
from typing import Any

from ort_sdk.api import Array, Compute, InvalidArgument, InvalidGraph, KernelInfo
from ort_sdk.opset.definition import operator

__all__ = ["linear_attention"]

UPDATE_RULES = ("linear", "gated", "delta", "gated_delta")


@operator("LinearAttention")
def linear_attention(info: KernelInfo, xp: Any) -> Compute:
    """The recurrence that ``update_rule`` names, vectorised over batch and heads, with a loop over tokens only."""
    rule = info.attribute("update_rule", "gated_delta")
    if rule not in UPDATE_RULES:
        raise InvalidGraph(f"{info.describe()}: update_rule is '{rule}'; it must be one of {', '.join(UPDATE_RULES)}")
    gated, delta = rule.startswith("gated"), rule.endswith("delta")
    q_heads, kv_heads = int(info.attribute("q_num_heads")), int(info.attribute("kv_num_heads"))
    scale = float(info.attribute("scale", 0.0))

    def compute(
        query: Array,
        key: Array,
        value: Array,
        past_state: Array | None = None,
        decay: Array | None = None,
        beta: Array | None = None,
    ) -> tuple[Array, Array]:
        _check(info, query, key, value, decay if gated else query, beta if delta else query, q_heads, kv_heads)
        batch, length = query.shape[:2]
        keys, values = _heads(xp, key, kv_heads), _heads(xp, value, kv_heads)
        # The query heads of one key/value head are adjacent: (batch, time, kv heads, shared, d_k).
        factor = scale or 1 / math.sqrt(query.shape[2] // q_heads)
        queries = xp.reshape(query, (batch, length, kv_heads, q_heads // kv_heads, -1)) * factor
        keep = xp.exp(_per_head(xp, decay, kv_heads)) if gated else None
        rates = _per_head(xp, beta, kv_heads) if delta else None
        state = past_state
        if state is None:
            state = xp.zeros((batch, kv_heads, keys.shape[3], values.shape[3]), dtype=query.dtype)
        outputs = []
        for time in range(length):
            if keep is not None:
                state = state * keep[:, time, :, :, None]
            k, v = keys[:, time, :, :, None], values[:, time, :, None, :]
            if rates is not None:
                v = (v - xp.matmul(xp.matrix_transpose(k), state)) * rates[:, time, :, :, None]
            state = state + k * v
            outputs.append(xp.matmul(queries[:, time, ...], state))
        if not outputs:
            return xp.zeros((batch, 0, q_heads * values.shape[3]), dtype=query.dtype), xp.asarray(state, copy=True)
        return xp.reshape(xp.stack(outputs, axis=1), (batch, length, q_heads * values.shape[3])), state

    return compute


def _heads(xp: Any, packed: Array, heads: int) -> Array:
    """(batch, time, heads * size) as (batch, time, heads, size)."""
    return xp.reshape(packed, (*packed.shape[:2], heads, packed.shape[2] // heads))


def _per_head(xp: Any, packed: Array, heads: int) -> Array:
    """Like ``_heads``; (batch, time, 1), shared by all heads, becomes (batch, time, 1, 1) and broadcasts."""
    return _heads(xp, packed, heads if packed.shape[2] % heads == 0 else 1)


def _check(
    info: KernelInfo,
    query: Array,
    key: Array,
    value: Array,
    decay: Array | None,
    beta: Array | None,
    q_heads: int,
    kv_heads: int,
) -> None:
    if decay is None or beta is None:
        missing = "decay" if decay is None else "beta"
        raise InvalidArgument(f"{info.describe()}: its update_rule needs the input '{missing}', which is absent")
    fits = q_heads > 0 and kv_heads > 0 and q_heads % kv_heads == 0
    if not fits or query.shape[2] * kv_heads != key.shape[2] * q_heads or value.shape[2] % kv_heads:
        raise InvalidArgument(
            f"{info.describe()}: query, key and value have shapes {list(query.shape)}, {list(key.shape)} and {list(value.shape)}"
            f" with q_num_heads {q_heads} and kv_num_heads {kv_heads}; they must be (batch, time, heads * size) with"
            " q_num_heads a multiple of kv_num_heads and one head size for query and key"
        )
