"""Casts around nodes that run in float only, where the model has float16 or bfloat16 (ORT's ``InsertCastTransformer``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ort_sdk.api import NodeArg, TensorElementType, find_schema
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.editing import unused_name

__all__ = ["NARROW", "WIDE", "cast_name", "cast_node", "insert_casts"]

NARROW = {"tensor(float16)": TensorElementType.FLOAT16, "tensor(bfloat16)": TensorElementType.BFLOAT16}
WIDE = "tensor(float)"


def _is_unplaced(node: Node, _graph: Graph) -> bool:
    return not node.execution_provider and not node.subgraphs


def insert_casts(
    graph: Graph,
    opset_imports: Mapping[str, int],
    has_kernel: Callable[[Node, Graph], bool],
    is_float_only: Callable[[Node, Graph], bool] = _is_unplaced,
) -> bool:
    """Let nodes compute in float, where a kernel for that exists.

    Args:
        graph: changed in place, its bodies too. New nodes are not placed yet.
        opset_imports: domain → version of the model.
        has_kernel: whether some provider has a kernel for a node of a graph.
        is_float_only: which nodes are meant, of those without bodies; those not placed by default.

    Returns:
        Whether anything changed.
    """
    changed = False
    for inner in graph.walk():
        for node in [node for node in inner.nodes if is_float_only(node, inner)]:
            changed |= _widen(node, inner, opset_imports.get("", 1), has_kernel)
    return changed


def _widen(node: Node, graph: Graph, opset: int, has_kernel: Callable[[Node, Graph], bool]) -> bool:
    before = {name: cast_name(graph, name) for name in dict.fromkeys(node.inputs) if graph.node_arg(name).type in NARROW}
    after = {name: cast_name(graph, name) for name in node.outputs if name and graph.node_arg(name).type in NARROW}
    if not before and not after:
        return False
    wide = node.copy(graph)
    wide.inputs = [before.get(name, name) for name in node.inputs]
    wide.outputs = [after.get(name, name) for name in node.outputs]
    added = {cast: replace(graph.node_arg(name), name=cast, type=WIDE) for name, cast in {**before, **after}.items()}
    graph.values.update(added)
    if not has_kernel(wide, graph):
        for cast in added:
            del graph.values[cast]
        return False
    up = [cast_node(name, cast, TensorElementType.FLOAT, opset) for name, cast in before.items()]
    down = [cast_node(cast, name, _narrow_type(graph.node_arg(name)), opset) for name, cast in after.items()]
    position = graph.nodes.index(node)
    graph.nodes[position : position + 1] = [*up, wide, *down]
    graph.touch()
    return True


def _narrow_type(argument: NodeArg) -> TensorElementType:
    return NARROW[argument.type or ""]


def cast_name(graph: Graph, name: str) -> str:
    """An unused name for a value in float."""
    return unused_name(graph, f"{name}_as_float")


def cast_node(source: str, target: str, element_type: TensorElementType, opset: int) -> Node:
    """A Cast between two values, not placed.

    Args:
        source: its input.
        target: its output.
        element_type: the output's.
        opset: version of ai.onnx that the model imports.
    """
    schema = find_schema("Cast", opset)
    since_version = 1 if schema is None else schema.since_version
    return Node("Cast", [source], [target], {"to": int(element_type)}, name=f"Cast_{target}", since_version=since_version)
