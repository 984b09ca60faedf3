"""Shapes that the inputs of ONNX's Attention may have together."""

from __future__ import annotations

from ort_sdk.api import KernelInfo
from ort_sdk.opset.input_shapes import ABSENT, InputShapes

__all__ = ["attention_shapes"]


def attention_shapes(info: KernelInfo, shapes: InputShapes) -> None:
    """Queries, keys and values of heads, or with the heads of a token in one row; a cache, and what is added to the scores."""
    if shapes.match(0, "Q", ("batch", "heads", "length", "size"), ("batch", "length", "width")):
        _match_rows(info, shapes)
    else:
        shapes.match(1, "K", ("batch", "key heads", "new", "size"))
        shapes.match(2, "V", ("batch", "key heads", "new", "value size"))
    if not shapes["key heads"] or shapes["heads"] % shapes["key heads"]:
        raise shapes.refused(f"{shapes['heads']} heads of queries cannot share {shapes['key heads']} heads of keys")
    found = shapes.match(4, "past_key", ("batch", "key heads", "past", "size"))
    if (found == ABSENT) != (shapes.match(5, "past_value", ("batch", "key heads", "past", "value size")) == ABSENT):
        raise shapes.refused("one of past_key and past_value is absent; both or none must be given")
    _match_mask(shapes, shapes["new"] + (0 if found == ABSENT else shapes["past"]))
    shapes.match(6, "nonpad_kv_seqlen", ("batch",))


def _match_rows(info: KernelInfo, shapes: InputShapes) -> None:
    """Those with all heads in one row."""
    for name, attribute in (("heads", "q_num_heads"), ("key heads", "kv_num_heads")):
        shapes[name] = int(info.attribute(attribute, 0))
        if shapes[name] < 1:
            raise shapes.refused(f"Q has 3 axes and {attribute} is {shapes[name]}; it must be set, and positive")
    shapes.match(1, "K", ("batch", "new", "key width"))
    shapes.match(2, "V", ("batch", "new", "value width"))
    heads, key_heads = shapes["heads"], shapes["key heads"]
    shapes["size"], rest = divmod(shapes["width"], heads)
    shapes["value size"], value_rest = divmod(shapes["value width"], key_heads)
    if rest or value_rest or shapes["key width"] != key_heads * shapes["size"]:
        raise shapes.refused(f"rows of Q, K and V are not {heads}, {key_heads} and {key_heads} heads, the first two of one size")


def _match_mask(shapes: InputShapes, total: int) -> None:
    """What is broadcast to the scores; its last axis may be shorter, which hides the other keys."""
    shape = shapes.of(3)
    if shape:
        total = min(shape[-1], total)
    shapes.spread(3, "attn_mask", (shapes["batch"], shapes["heads"], shapes["length"], total))
