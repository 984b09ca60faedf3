"""Casts between equal types of 16 bits, and CastLike that only names one, as operators that need no such input."""

from __future__ import annotations

from ort_sdk.api import find_schema
from ort_sdk.graph import Graph, Node

from .insert_cast import NARROW

__all__ = ["plain_cast"]


def plain_cast(node: Node, graph: Graph, opset: int) -> Node | None:
    """The same work as another node: a cast between equal 16-bit types is an Identity, a CastLike to one a Cast.

    Args:
        node: any node.
        graph: has it.
        opset: version of ai.onnx that the model imports.

    Returns:
        A node that replaces it, on the same provider; None for all other nodes.
    """
    if node.domain or node.op_type not in {"Cast", "CastLike"}:
        return None
    source, target = graph.node_arg(node.inputs[0]).type, graph.node_arg(node.outputs[0]).type
    if source == target and target in NARROW:
        return _in_place_of(node, "Identity", {}, opset)
    names_half = node.op_type == "CastLike" and graph.node_arg(node.inputs[1]).type in NARROW
    if not names_half or target not in NARROW:
        return None
    return _in_place_of(node, "Cast", {**node.attributes, "to": int(NARROW[target])}, opset)


def _in_place_of(node: Node, op_type: str, attributes: dict[str, object], opset: int) -> Node | None:
    schema = find_schema(op_type, opset)
    if schema is None:
        return None
    return Node(
        op_type,
        node.inputs[:1],
        list(node.outputs),
        attributes,
        name=node.name,
        since_version=schema.since_version,
        execution_provider=node.execution_provider,
    )
