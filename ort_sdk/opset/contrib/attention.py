"""com.microsoft Attention and QAttention: attention with the projection of its input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ort_sdk.api import Array, Compute, KernelInfo, TensorElementType
from ort_sdk.opset.definition import operator
from ort_sdk.opset.quantization.matmul import integer_matmul, per_column

from .attention_core import attended_values, causal_bias, mask_bias, merge_heads, split_heads
from .attention_shapes import attention_shapes, qattention_shapes

__all__ = ["attention", "qattention"]

MICROSOFT = "com.microsoft"
FLOAT = TensorElementType.FLOAT
MASK_FILTER_VALUE = -10000.0


def _supported(info: KernelInfo) -> str | None:
    if info.attribute("do_rotary", 0):
        return "the attribute do_rotary is not supported"
    if info.attribute("past_present_share_buffer", 0):
        return "the attribute past_present_share_buffer is not supported"
    return None


@operator("Attention", domain=MICROSOFT, when=_supported, shapes=attention_shapes)
def attention(info: KernelInfo, xp: Any) -> Compute:
    """Self-attention of input @ weights + bias, with an optional mask and past state; (output, present)."""
    finish = _projected_attention(info, xp)

    def compute(
        x: Array,
        weights: Array,
        bias: Array | None = None,
        mask: Array | None = None,
        past: Array | None = None,
        attention_bias: Array | None = None,
        _past_length: Array | None = None,
    ) -> Any:
        projected = xp.matmul(x, weights)
        return finish(projected if bias is None else projected + bias, mask, past, attention_bias)

    return compute


@operator("QAttention", domain=MICROSOFT, when=_supported, shapes=qattention_shapes)
def qattention(info: KernelInfo, xp: Any) -> Compute:
    """Attention whose input and weights are 8-bit integers; the projection is exact, the rest in floating point."""
    multiply = integer_matmul(info, xp, (0, 6), (1, 7))
    finish = _projected_attention(info, xp)

    def compute(
        x: Array,
        weights: Array,
        bias: Array,
        x_scale: Array,
        weight_scale: Array,
        mask: Array | None = None,
        x_zero_point: Array | None = None,
        weight_zero_point: Array | None = None,
        past: Array | None = None,
    ) -> Any:
        sums = xp.astype(multiply(x, x_zero_point, weights, weight_zero_point), FLOAT)
        projected = sums * (xp.reshape(x_scale, ()) * per_column(xp, weight_scale)) + bias
        return finish(projected, mask, past, None)

    return compute


def _projected_attention(info: KernelInfo, xp: Any) -> Callable[[Array, Array | None, Array | None, Array | None], Any]:
    """A function ``(projected, mask, past, attention bias)`` that does what follows the projection to Q, K and V."""
    heads, scale = info.attribute("num_heads"), info.attribute("scale", 0.0) or None
    causal = bool(info.attribute("unidirectional", 0))
    filter_value = info.attribute("mask_filter_value", MASK_FILTER_VALUE)
    widths = tuple(info.attribute("qkv_hidden_sizes", None) or ())
    wants_present = info.wants_output(1)

    def finish(projected: Array, mask: Array | None, past: Array | None, attention_bias: Array | None) -> Any:
        q_width, k_width, _ = widths or (projected.shape[-1] // 3,) * 3
        bounds = (slice(0, q_width), slice(q_width, q_width + k_width), slice(q_width + k_width, projected.shape[-1]))
        q, k, v = (split_heads(xp, projected[..., bound], heads) for bound in bounds)
        if past is not None:
            k, v = xp.concat([past[0, ...], k], axis=2), xp.concat([past[1, ...], v], axis=2)
        shape = (q.shape[0], q.shape[2], k.shape[2])
        hidden = mask_bias(xp, mask, shape, filter_value, projected.dtype)
        ahead = causal_bias(xp, shape[1], shape[2], shape[2] - shape[1], projected.dtype) if causal else None
        output = merge_heads(xp, attended_values(xp, q, k, v, (attention_bias, hidden, ahead), scale=scale))
        return (output, xp.stack([k, v], axis=0)) if wants_present else output

    return finish
