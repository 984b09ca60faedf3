"""Other operators of ``com.microsoft`` that real models carry."""

from __future__ import annotations

from ort_sdk.api import Shape
from ort_sdk.graph.shape_inference.dimensions import normalized_axis, product
from ort_sdk.graph.shape_inference.node_call import NodeCall, shape_rule


@shape_rule("GatherBlockQuantized", domain="com.microsoft")
def gather_block_quantized(call: NodeCall) -> list[Shape | None]:
    """As Gather; bytes hold several elements of the last axis."""
    data, indices = call.shape(0), call.shape(1)
    if data is None or indices is None:
        return [None]
    bits = call.attribute("bits", 4)
    is_packed = call.scope.graph.node_arg(call.node.inputs[0]).type == "tensor(uint8)" and bits < 8
    if is_packed:
        data = (*data[:-1], product((data[-1], 8 // bits)))
    axis = normalized_axis(call.attribute("gather_axis", 0), len(data))
    return [(*data[:axis], *indices, *data[axis + 1 :])]


@shape_rule("MurmurHash3", domain="com.microsoft")
def like_first(call: NodeCall) -> list[Shape | None]:
    """Shape of the first input."""
    return [call.shape(0)]


@shape_rule("CDist", domain="com.microsoft")
def distances(call: NodeCall) -> list[Shape | None]:
    """(rows of the first, rows of the second)."""
    left, right = call.shape(0), call.shape(1)
    return [(None if left is None else left[0], None if right is None else right[0])]
