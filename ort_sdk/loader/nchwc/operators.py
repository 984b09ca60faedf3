"""The operators on blocks of channels, other than Conv, as nodes on NCHW."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import InvalidGraph, Shape
from ort_sdk.graph import Node
from ort_sdk.graph.tensor import ArrayTensor

from .domain import NCHWC
from .values import RestoredGraph, RestoredValue

__all__ = ["OPERATORS"]

_TO_NHWC, _TO_NCHW = [0, 2, 3, 1], [0, 3, 1, 2]
_NO_EFFECT: dict[str, Any] = {"ceil_mode": 0, "storage_order": 0, "dilations": [1, 1]}
"""Attributes that older versions of the operators do not have, with the values that change nothing."""


def _reorder_input(node: Node, graph: RestoredGraph) -> None:
    source, shape = node.inputs[0], graph.graph.node_arg(node.inputs[0]).shape
    graph.want_as_in_file([source])
    if node.attributes.get("channels_last", 0):
        shape = None if shape is None else (shape[0], shape[3], *shape[1:3])
        source = graph.add("Transpose", [source], graph.new_value(f"{source}_nchw", shape), {"perm": _TO_NCHW}, like=node)
    channels = shape[1] if shape is not None else None
    if isinstance(channels, int):
        padded = -(-channels // graph.block) * graph.block
    else:
        channels = padded = _channels_wanted(node, graph)
        source = _padded_in_run(source, padded, shape, graph)
    graph.set_restored(node.outputs[0], RestoredValue(source, channels, padded))


def _channels_wanted(node: Node, graph: RestoredGraph) -> int:
    """Channels of the blocks by what is known of them, or by a convolution that reads them."""
    shape = graph.graph.node_arg(node.outputs[0]).shape
    if shape is not None and isinstance(shape[1], int):
        return shape[1]
    for reader in graph.graph.consumers(node.outputs[0]):
        weight = graph.graph.node_arg(reader.inputs[1]).shape if reader.op_type == "Conv" and reader.domain == NCHWC else None
        if weight is not None and isinstance(weight[1], int):
            return weight[1] * int(reader.attributes.get("group", 1))
    raise InvalidGraph(f"{node.describe()}: it is not known how many channels the input '{node.inputs[0]}' has")


def _padded_in_run(source: str, padded: int, shape: Shape | None, graph: RestoredGraph) -> str:
    """The input with zeros for the channels that are missing, which is known when the model runs."""

    def vector(op_type: str, *inputs: str, **attributes: Any) -> str:
        return graph.add(op_type, inputs, graph.new_value(f"{source}_sizes", None, "tensor(int64)"), attributes)

    sizes = vector("Shape", source)
    missing = vector("Sub", graph.integers(padded), vector("Gather", sizes, graph.integers(1)))
    batch, plane = (vector("Gather", sizes, graph.integers(*axes)) for axes in ((0,), (2, 3)))
    target = vector("Concat", batch, missing, plane, axis=0)
    zero = ArrayTensor(np.zeros(1, np.float32))
    zeros = graph.add("ConstantOfShape", [target], graph.new_value(f"{source}_zeros", None), {"value": zero})
    known = None if shape is None else (shape[0], padded, *shape[2:])
    return graph.add("Concat", [source, zeros], graph.new_value(f"{source}_padded", known), {"axis": 1})


def _reorder_output(node: Node, graph: RestoredGraph) -> None:
    value, output = graph.restored(node.inputs[0], node), node.outputs[0]
    if value.name == output:
        return
    channels = int(node.attributes.get("channels", 0)) or value.padded
    if channels > value.padded:
        raise InvalidGraph(f"{node.describe()}: {channels} channels are wanted of '{node.inputs[0]}', which has {value.padded}")
    name = graph.with_channels(value, channels).name
    is_last = node.attributes.get("channels_last", 0)
    if channels < value.channels:
        shape = graph.shape_of(node.inputs[0], channels)
        target = graph.new_value(f"{output}_nchw", shape) if is_last else output
        name = _first_channels(graph, name, channels, target)
    if is_last:
        graph.add("Transpose", [name], output, {"perm": _TO_NHWC}, like=node)
    elif name != output:
        graph.add("Identity", [name], output, like=node)


def _first_channels(graph: RestoredGraph, name: str, channels: int, output: str) -> str:
    if graph.version() < 10:
        return graph.add("Slice", [name], output, {"starts": [0], "ends": [channels], "axes": [1]})
    return graph.add("Slice", [name, graph.integers(0), graph.integers(channels), graph.integers(1)], output)


def _pool(node: Node, graph: RestoredGraph) -> None:
    value = graph.restored(node.inputs[0], node)
    if "Average" in node.op_type and value.fill:
        # A window that has padding in it gives another number.
        value = graph.padded(value)
    attributes = {name: given for name, given in node.attributes.items() if given != _NO_EFFECT.get(name)}
    _replace(node, graph, value, node.op_type, [value.name], attributes)


def _upsample(node: Node, graph: RestoredGraph) -> None:
    """Resize; by whole numbers, ``nearest`` repeats elements."""
    value = graph.restored(node.inputs[0], node)
    scales = [float(scale) for scale in node.attributes["scales"]]
    mode = str(node.attributes.get("mode", "nearest"))
    coordinates = str(node.attributes.get("coordinate_transformation_mode", "asymmetric"))
    version = graph.version()
    if version < 11 and coordinates != "asymmetric":
        raise InvalidGraph(f"{node.describe()}: coordinate_transformation_mode '{coordinates}' needs opset 11; it is {version}")
    if version < 9:
        _replace(node, graph, value, "Upsample", [value.name], {"mode": mode, "scales": scales})
        return
    given = graph.constant(ArrayTensor(np.array(scales, np.float32)), "nchw_scales", "scales", *scales)
    attributes = {"mode": mode}
    if version >= 11:
        attributes["coordinate_transformation_mode"] = coordinates
        attributes |= {"nearest_mode": "floor"} if mode == "nearest" else {}
    # Before opset 13 the region is no optional input, and not looked at.
    region = graph.constant(ArrayTensor(np.zeros(0, np.float32)), "nchw_roi", "roi") if version in (11, 12) else ""
    inputs = [value.name, region, given] if version >= 11 else [value.name, given]
    _replace(node, graph, value, "Resize" if version >= 10 else "Upsample", inputs, attributes)


def _replace(
    node: Node, graph: RestoredGraph, value: RestoredValue, op_type: str, inputs: list[str], attributes: dict[str, Any]
) -> None:
    """Replace a node by one that treats every channel alike."""
    output = node.outputs[0]
    name = graph.add(op_type, inputs, graph.name_for(output, value.channels), attributes, like=node)
    graph.set_restored(output, RestoredValue(name, value.channels, value.padded, value.fill))


OPERATORS: dict[str, Callable[[Node, RestoredGraph], None]] = {
    "AveragePool": _pool,
    "GlobalAveragePool": _pool,
    "GlobalMaxPool": _pool,
    "MaxPool": _pool,
    "ReorderInput": _reorder_input,
    "ReorderOutput": _reorder_output,
    "Upsample": _upsample,
}
"""Operator → what replaces a node of it."""
