"""Control flow: bodies are inferred from the shapes of their inputs, and give those of their outputs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ort_sdk.api import Dimension, Shape
from ort_sdk.graph.shape_inference.dimensions import merge_shapes, normalized_axis, same_or_unknown
from ort_sdk.graph.shape_inference.node_call import NodeCall, shape_rule

if TYPE_CHECKING:
    from ort_sdk.graph import Graph


def _output_shapes(call: NodeCall, body: Graph) -> list[Shape | None]:
    call.scope.infer_body(body, call.scope)
    return [body.node_arg(argument.name).shape for argument in body.outputs]


@shape_rule("If")
def conditional(call: NodeCall) -> list[Shape | None]:
    """What both branches have in common."""
    branches = [_output_shapes(call, body) for body in call.node.subgraphs.values()]
    return [same_or_unknown(pair) for pair in zip(*branches, strict=True)]


@shape_rule("Loop")
def loop(call: NodeCall) -> list[Shape | None]:
    """State as it is given or as the body gives it; scan outputs with an axis of unknown length in front."""
    shapes = _output_shapes(call, call.attribute("body"))[1:]
    states = len(call.node.inputs) - 2
    final = [same_or_unknown((call.shape(index + 2), shapes[index])) for index in range(states)]
    return [*final, *(None if shape is None else (None, *shape) for shape in shapes[states:])]


@shape_rule("Scan")
def scan(call: NodeCall) -> list[Shape | None]:
    """State keeps its shape; scan inputs lose an axis in the body, scan outputs gain one."""
    body = call.attribute("body")
    if call.node.since_version < 9:
        _output_shapes(call, body)
        return []
    states = len(call.node.inputs) - call.attribute("num_scan_inputs")
    scanned = [_without_axis(call, states, index) for index in range(call.attribute("num_scan_inputs"))]
    given = [*call.shapes[:states], *(shape for shape, _ in scanned)]
    _seed(body, given)
    shapes = _output_shapes(call, body)
    length = next((size for _, size in scanned if size is not None), None)
    axes = call.attribute("scan_output_axes") or [0] * (len(shapes) - states)
    final = [same_or_unknown((call.shape(index), shapes[index])) for index in range(states)]
    return [*final, *(_with_axis(shape, length, axis) for shape, axis in zip(shapes[states:], axes, strict=True))]


def _without_axis(call: NodeCall, states: int, index: int) -> tuple[Shape | None, Dimension]:
    shape = call.shape(states + index)
    if shape is None:
        return None, None
    axes = call.attribute("scan_input_axes") or [0] * (index + 1)
    axis = normalized_axis(axes[index], len(shape))
    return (*shape[:axis], *shape[axis + 1 :]), shape[axis]


def _with_axis(shape: Shape | None, length: Dimension, axis: int) -> Shape | None:
    if shape is None:
        return None
    axis = normalized_axis(axis, len(shape) + 1)
    return (*shape[:axis], length, *shape[axis:])


def _seed(body: Graph, given: list[Shape | None]) -> None:
    """Give formal inputs of a body the shapes that are passed to it."""
    for index, (argument, shape) in enumerate(zip(body.inputs, given, strict=False)):
        merged = merge_shapes(argument.shape, shape)
        if merged != argument.shape:
            body.inputs[index] = replace(argument, shape=merged)
            body.set_value(body.inputs[index])


@shape_rule("SequenceMap")
def sequence_map(call: NodeCall) -> list[Shape | None]:
    """Sequences have no shape."""
    _output_shapes(call, call.attribute("body"))
    return []
