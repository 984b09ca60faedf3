"""Shapes that the inputs of ONNX Runtime's attention operators may have together."""

from __future__ import annotations

from ort_sdk.api import KernelInfo
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.input_shapes import ABSENT, InputShapes

__all__ = [
    "attention_shapes",
    "cached_multi_head_shapes",
    "group_query_shapes",
    "multi_head_shapes",
    "qattention_shapes",
    "sparse_attention_shapes",
]

_PACKED_QUERY = 1
_OF_HEADS, _PACKED_KEY = 1, 2
"""Which of the forms that a key may have: (batch, heads, keys, size), and with its value behind it."""


@dataclass(frozen=True, slots=True)
class _InputPositions:
    """Which inputs of a node are what, but for its mask, whose forms are known where it is read."""

    bias: int
    added: int
    past_key: int
    past_length: int
    indirection: int

    @property
    def past_value(self) -> int:
        """The one behind the past keys."""
        return self.past_key + 1


_MULTI_HEAD = _InputPositions(bias=3, added=5, past_key=6, past_length=8, indirection=9)
_CACHED_MULTI_HEAD = _InputPositions(bias=10, added=4, past_key=5, past_length=7, indirection=9)


def multi_head_shapes(info: KernelInfo, shapes: InputShapes) -> None:
    """Those of MultiHeadAttention."""
    _match_multi_head(info, shapes, _MULTI_HEAD)


def cached_multi_head_shapes(info: KernelInfo, shapes: InputShapes) -> None:
    """Those of DecoderMaskedMultiHeadAttention."""
    _match_multi_head(info, shapes, _CACHED_MULTI_HEAD)


def _match_multi_head(info: KernelInfo, shapes: InputShapes, positions: _InputPositions) -> None:
    heads = int(info.attribute("num_heads"))
    _match_projections(shapes, heads)
    shapes.match(positions.bias, "bias", (2 * heads * shapes["size"] + heads * shapes["value size"],))
    _match_past(shapes, heads, positions.past_key, positions.past_value)
    total = None if shapes.of(positions.past_length) is not None else shapes["past"] + shapes["keys"]
    _match_added(shapes, positions.added, heads, total)
    shapes.match(positions.indirection, "cache_indirection", ("sequences", "beams", None))
    if shapes.of(positions.indirection) is not None and shapes["sequences"] * shapes["beams"] != shapes["batch"]:
        raise shapes.refused(f"cache_indirection is of {shapes['sequences']} x {shapes['beams']} beams, not of the batch")


def _match_projections(shapes: InputShapes, heads: int) -> None:
    """Queries, keys and values, the first three inputs: separate, or two or three of them packed."""
    if shapes.match(0, "query", ("batch", "length", "width"), ("batch", "length", heads, 3, "size")) == _PACKED_QUERY:
        _refuse_beside(shapes, "query", 1, 2)
        shapes["value size"], shapes["keys"] = shapes["size"], shapes["length"]
        return
    shapes["size"] = _divided(shapes, "query", shapes["width"], heads)
    form = shapes.match(
        1, "key", ("batch", "keys", "width"), ("batch", heads, "keys", "size"), ("batch", "keys", heads, 2, "size")
    )
    if form == ABSENT or (form != _PACKED_KEY and shapes.of(2) is None):
        raise shapes.refused(
            f"key or value is absent; without them the query must be packed as (batch, sequence, {heads}, 3, head size), or the"
            f" key as (batch, sequence, {heads}, 2, head size)"
        )
    if form == _PACKED_KEY:
        _refuse_beside(shapes, "key", 2)
        shapes["value size"] = shapes["size"]
    elif form == _OF_HEADS:
        shapes.match(2, "value", ("batch", heads, "keys", "size"))
        shapes["value size"] = shapes["size"]
    else:
        shapes.match(2, "value", ("batch", "keys", "value width"))
        shapes["value size"] = _divided(shapes, "value", shapes["value width"], heads)


def _refuse_beside(shapes: InputShapes, packed: str, *indices: int) -> None:
    if any(shapes.of(index) is not None for index in indices):
        raise shapes.refused(f"{packed} is packed with what follows it; inputs {indices} must be absent then")


def _divided(shapes: InputShapes, name: str, width: int, heads: int) -> int:
    """Size of a head."""
    if heads < 1 or width % heads:
        raise shapes.refused(f"{name} has {width} elements per token, which cannot be divided into {heads} heads")
    return width // heads


def _match_past(shapes: InputShapes, heads: int, key: int, value: int) -> None:
    """A cache of keys and values, and how many there are."""
    found = shapes.match(key, "past_key", ("batch", heads, "past", "size"))
    if (found == ABSENT) != (shapes.match(value, "past_value", ("batch", heads, "past", "value size")) == ABSENT):
        raise shapes.refused("one of past_key and past_value is absent; both or none must be given")
    if found == ABSENT:
        shapes["past"] = 0


def _match_added(shapes: InputShapes, index: int, heads: int, total: int | None) -> None:
    """Numbers added to the scores, with an axis for each of theirs; one of size 1 is the same for all."""
    shape = shapes.of(index)
    if shape is None:
        return
    shapes.match(index, "attention_bias", (None, None, None, None))
    shapes.spread(index, "attention_bias", (shapes["batch"], heads, shapes["length"], shape[3] if total is None else total))


def attention_shapes(info: KernelInfo, shapes: InputShapes) -> None:
    """Those of Attention of com.microsoft, whose queries, keys and values are projections of one input."""
    shapes.match(0, "input", ("batch", "length", "inputs"))
    _match_projection(info, shapes)
    _match_stacked_past(info, shapes, 4)
    _match_added(shapes, 5, int(info.attribute("num_heads")), shapes["past"] + shapes["length"])


def qattention_shapes(info: KernelInfo, shapes: InputShapes) -> None:
    """Those of QAttention: the same, with scales and zero points."""
    shapes.match(0, "input", ("batch", "length", "inputs"))
    _match_projection(info, shapes)
    columns = shapes["columns"]
    shapes.count(3, "input_scale", 1)
    shapes.match(4, "weight_scale", (), (1,), (columns,))
    shapes.count(6, "input_zero_point", 1)
    shapes.match(7, "weight_zero_point", (), (1,), (columns,))
    _match_stacked_past(info, shapes, 8)


def _match_projection(info: KernelInfo, shapes: InputShapes) -> None:
    """Weights and bias, inputs 1 and 2, whose columns are those of queries, keys and values."""
    heads = int(info.attribute("num_heads"))
    shapes.match(1, "weights", ("inputs", "columns"))
    shapes.match(2, "bias", ("columns",))
    columns = shapes["columns"]
    widths = tuple(info.attribute("qkv_hidden_sizes", None) or ()) or (columns // 3,) * 3
    if len(widths) != 3 or sum(widths) != columns or widths[0] != widths[1]:
        raise shapes.refused(
            f"weights have {columns} columns; those of queries, keys and values are {widths}, whose sum must be that, and the"
            " first two equal"
        )
    shapes["size"], shapes["value size"] = (_divided(shapes, "projection", width, heads) for width in widths[1:])


def _match_stacked_past(info: KernelInfo, shapes: InputShapes, index: int) -> None:
    """A cache of keys and values in one array."""
    shapes["past"] = 0
    shape = shapes.of(index)
    if shape is not None:
        shapes["past"] = shape[3] if len(shape) == 5 else 0
        shapes.match(index, "past", (2, "batch", int(info.attribute("num_heads")), "past", "size"))
        if shapes["size"] != shapes["value size"]:
            raise shapes.refused("keys and values of different sizes cannot be in one cache")


def group_query_shapes(info: KernelInfo, shapes: InputShapes) -> None:
    """Those of GroupQueryAttention."""
    heads, key_heads = int(info.attribute("num_heads")), int(info.attribute("kv_num_heads"))
    _match_groups(shapes, heads, key_heads)
    is_coded = [shapes.of(index) is not None for index in (12, 13)]
    sizes = [None if coded else "size" for coded in is_coded]
    found = shapes.match(3, "past_key", ("batch", key_heads, "past", sizes[0]))
    if (found == ABSENT) != (shapes.match(4, "past_value", ("batch", key_heads, "past", sizes[1])) == ABSENT):
        raise shapes.refused("one of past_key and past_value is absent; both or none must be given")
    shapes.count(5, "seqlens_k", shapes["batch"])
    shapes.count(6, "total_sequence_length", 1)
    if info.attribute("do_rotary", 0):
        _match_rotation(shapes, 7, 8)
        shapes.match(9, "position_ids", ("batch", "length"))
    _match_added(shapes, 10, heads, None)
    shapes.match(11, "head_sink", (heads,))
    shapes.match(14, "q_norm_weight", ("size",))
    shapes.match(15, "k_norm_weight", ("size",))


def _match_groups(shapes: InputShapes, heads: int, key_heads: int) -> None:
    """Queries, keys and values, the first three inputs, of which groups of queries share one key."""
    if key_heads < 1 or heads % key_heads:
        raise shapes.refused(f"{heads} heads of queries cannot share {key_heads} heads of keys")
    shapes.match(0, "query", ("batch", "length", "width"))
    is_packed = shapes.of(1) is None
    if is_packed != (shapes.of(2) is None):
        raise shapes.refused("one of key and value is absent; both or none, then packed into the query, must be given")
    shapes["size"] = _divided(shapes, "query", shapes["width"], heads + 2 * key_heads if is_packed else heads)
    for index, name in ((1, "key"), (2, "value")):
        shapes.match(index, name, ("batch", "length", key_heads * shapes["size"]))


def _match_rotation(shapes: InputShapes, cos: int, sin: int) -> None:
    """Cosines and sines, a row for each position."""
    found = shapes.match(cos, "cos_cache", ("positions", "pairs"))
    if (found == ABSENT) != (shapes.match(sin, "sin_cache", ("positions", "pairs")) == ABSENT):
        raise shapes.refused("one of cos_cache and sin_cache is absent; both or none must be given")
    if found != ABSENT and 2 * shapes["pairs"] > shapes["size"]:
        raise shapes.refused(f"heads of size {shapes['size']} have no {shapes['pairs']} pairs to rotate")


def sparse_attention_shapes(info: KernelInfo, shapes: InputShapes) -> None:
    """Those of SparseAttention."""
    heads, key_heads = int(info.attribute("num_heads")), int(info.attribute("kv_num_heads"))
    _match_groups(shapes, heads, key_heads)
    shapes.match(3, "past_key", ("batch", key_heads, "capacity", "size"))
    shapes.match(4, "past_value", ("batch", key_heads, "capacity", "size"))
    shapes.match(5, "block_row_indices", ("layouts", "rows"))
    shapes.match(6, "block_col_indices", ("layouts", None))
    shapes.count(7, "total_sequence_length", 1)
    shapes.count(8, "key_total_sequence_lengths", shapes["batch"])
    _match_rotation(shapes, 9, 10)
