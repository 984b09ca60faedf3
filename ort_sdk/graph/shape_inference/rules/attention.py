"""Attention of ONNX and of ``com.microsoft``."""

from __future__ import annotations

from ort_sdk.api import Dimension, Shape
from ort_sdk.graph.shape_inference.dimensions import product, total
from ort_sdk.graph.shape_inference.node_call import NodeCall, shape_rule


def _divided(size: Dimension, count: int) -> Dimension:
    return size // count if isinstance(size, int) and count else None


@shape_rule("Attention")
def attention(call: NodeCall) -> list[Shape | None]:
    """The result in the query's layout, and the extended caches (batch, heads, sequence, size)."""
    q, k, v = (call.shape(index) for index in range(3))
    if q is None or k is None or v is None:
        return [None]
    past = call.shape(4) if call.has(4) else (0, 0, 0, 0)
    if len(q) == 4:
        y: Shape = (*q[:3], v[-1])
        heads, key_size, value_size, length = k[1], k[3], v[3], k[2]
    else:
        kv_heads = call.attribute("kv_num_heads")
        size = _divided(v[2], kv_heads)
        y = (*q[:2], product((size, call.attribute("q_num_heads"))))
        heads, key_size, value_size, length = kv_heads, _divided(k[2], kv_heads), size, k[1]
    whole = None if past is None else total((past[2], length))
    return [y, (k[0], heads, whole, key_size), (k[0], heads, whole, value_size)]


@shape_rule("RotaryEmbedding")
@shape_rule("RotaryEmbedding", domain="com.microsoft")
def rotary_embedding(call: NodeCall) -> list[Shape | None]:
    """Shape of the input."""
    return [call.shape(0)]


@shape_rule("Attention", "QAttention", domain="com.microsoft")
def packed_attention(call: NodeCall) -> list[Shape | None]:
    """(batch, sequence, hidden size of values)."""
    x = call.shape(0)
    if x is None or len(x) != 3:
        return [None]
    sizes = call.attribute("qkv_hidden_sizes")
    if sizes:
        return [(*x[:2], sizes[2])]
    weight = call.shape(1)
    return [(*x[:2], _divided(weight[1], 3) if weight is not None else None)]


@shape_rule("MultiHeadAttention", domain="com.microsoft")
def multi_head_attention(call: NodeCall) -> list[Shape | None]:
    """(batch, sequence, hidden size of values), for queries that are not packed with keys and values."""
    q, v = call.shape(0), call.shape(2)
    if q is None or v is None or len(q) != 3:
        return [None]
    hidden = v[2] if len(v) == 3 else product((v[1], v[3]))
    return [(*q[:2], hidden)]


@shape_rule("GroupQueryAttention", domain="com.microsoft")
def group_query_attention(call: NodeCall) -> list[Shape | None]:
    """(batch, sequence, hidden); queries may be packed with keys and values."""
    q = call.shape(0)
    if q is None or len(q) != 3:
        return [None]
    if call.has(1):
        return [q]
    heads, kv_heads = call.attribute("num_heads"), call.attribute("kv_num_heads")
    return [(*q[:2], product((_divided(q[2], heads + 2 * kv_heads), heads)))]
