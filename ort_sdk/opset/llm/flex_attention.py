"""FlexAttention of ai.onnx.preview: attention whose scores and probabilities go through bodies of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ort_sdk.api import Array, Compute, InvalidArgument, KernelInfo, TensorElementType
from ort_sdk.opset.definition import operator

Modifier = Callable[[Array, Sequence[Array]], Array]
"""Maps scores (B, Hq, L, S) and the captured values to scores of the same shape."""


@operator("FlexAttention", domain="ai.onnx.preview", deterministic=False, host_only=True)
def flex_attention(info: KernelInfo, xp: Any) -> Compute:
    """prob_mod(softmax(score_mod(Q·Kᵀ·scale)))·V, with K and V heads shared by groups of Q heads.

    (B, Hq, L, E), (B, Hkv, S, E), (B, Hkv, S, Ev) → (B, Hq, L, Ev).
    """
    element_type = info.input_element_type(0) or TensorElementType.FLOAT
    default = TensorElementType.DOUBLE if element_type is TensorElementType.DOUBLE else TensorElementType.FLOAT
    precision = TensorElementType(info.attribute("softmax_precision", default))
    score_mod, prob_mod = (_modifier(info, xp, name, precision) for name in ("score_mod", "prob_mod"))
    scale_attribute = info.attribute("scale", None)
    to_type, matmul, exp = xp.astype, xp.matmul, xp.exp

    def compute(q: Array, k: Array, v: Array, *captured: Array) -> Array:
        _check(info, q, k, v)
        scale = q.shape[-1] ** -0.5 if scale_attribute is None else scale_attribute
        batch, heads, length, size = q.shape
        shared = k.shape[1]
        grouped = xp.reshape(q * scale, (batch, shared, heads // shared, length, size))
        scores = matmul(grouped, xp.matrix_transpose(k)[:, :, None, :, :])
        scores = score_mod(to_type(xp.reshape(scores, (batch, heads, length, k.shape[2])), precision), captured)
        weights = exp(scores - xp.max(scores, axis=-1, keepdims=True))
        probabilities = prob_mod(weights / xp.sum(weights, axis=-1, keepdims=True), captured)
        grouped = xp.reshape(to_type(probabilities, element_type), (batch, shared, heads // shared, length, k.shape[2]))
        return xp.reshape(matmul(grouped, v[:, :, None, :, :]), (batch, heads, length, v.shape[-1]))

    return compute


def _modifier(info: KernelInfo, xp: Any, name: str, precision: TensorElementType) -> Modifier:
    """The body held by an attribute, or what changes nothing without one.

    The body sees the softmax precision; arithmetic around it is done in a type the library computes in.
    """
    wide = xp.compute_type(precision)
    if name not in info.subgraphs:
        return lambda values, _: xp.astype(values, wide)
    body = info.subgraph(name)

    def modify(values: Array, captured: Sequence[Array]) -> Array:
        (result,) = body([xp.astype(values, precision)], captured)
        if tuple(result.shape) != tuple(values.shape):
            raise InvalidArgument(
                f"{info.describe()}: {name} made shape {tuple(result.shape)} of {tuple(values.shape)}; it must keep the shape"
            )
        return xp.astype(result, wide)

    return modify


def _check(info: KernelInfo, q: Array, k: Array, v: Array) -> None:
    shapes = [tuple(x.shape) for x in (q, k, v)]
    is_valid = (
        all(len(shape) == 4 for shape in shapes)
        and q.shape[0] == k.shape[0] == v.shape[0]
        and k.shape[1:3] == v.shape[1:3]
        and q.shape[3] == k.shape[3]
        and k.shape[1] > 0
        and q.shape[1] % k.shape[1] == 0
    )
    if not is_valid:
        raise InvalidArgument(
            f"{info.describe()}: Q, K and V of shapes {shapes} must be [B, Hq, L, E], [B, Hkv, S, E] and [B, Hkv, S, Ev] "
            "with Hq a multiple of Hkv"
        )
