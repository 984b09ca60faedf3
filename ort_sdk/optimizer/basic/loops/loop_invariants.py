"""Values that a Loop carries from iteration to iteration unchanged."""

from __future__ import annotations

from ort_sdk.graph import Graph, Node
from ort_sdk.graph.captures import implicit_inputs
from ort_sdk.graph.editing import is_graph_output, replace_uses
from ort_sdk.optimizer.basic.movement.reshape_fusion import given_back
from ort_sdk.optimizer.matching import nodes_of
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["LoopInvariantElimination"]

_CARRIED_FROM = 2
"""Inputs of a Loop and of its body before the carried values: trip count or iteration number, and condition."""


class LoopInvariantElimination:
    """Lets a Loop's body read a value that it only hands on where it comes from: so it sees what is constant.

    Exporters of frameworks whose loops capture nothing carry weights that way.
    """

    name = "LoopInvariantElimination"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Take such values out of the carried ones of every Loop."""
        changed = False
        for node in nodes_of(graph, "Loop"):
            # From the back, so that the numbers of those before stay.
            for number in reversed(range(len(node.inputs) - _CARRIED_FROM)):
                changed |= _captured(graph, node, number)
        return changed


def _captured(graph: Graph, node: Node, number: int) -> bool:
    """Capture a carried value instead of carrying it; whether it can be."""
    body: Graph = node.attributes["body"]
    value, inner = node.inputs[_CARRIED_FROM + number], body.inputs[_CARRIED_FROM + number].name
    result = node.outputs[number] if number < len(node.outputs) else ""
    is_read_as_it_is = any(argument.name == inner for position, argument in enumerate(body.outputs) if position != 1 + number)
    if not value or _source(body, body.outputs[1 + number].name) != inner or is_read_as_it_is or is_graph_output(graph, result):
        return False
    scopes = [scope for scope in body.walk() if scope is not body or value != inner]
    if any(value in scope.values or value in scope.initializers for scope in scopes):
        return False  # A body has a value of that name of its own.
    replace_uses(body, inner, value)
    del body.inputs[_CARRIED_FROM + number], body.outputs[1 + number]
    body.values.pop(inner, None)
    body.touch()
    if result:
        replace_uses(graph, result, value)
    del node.inputs[_CARRIED_FROM + number], node.outputs[number : number + 1]
    node.implicit_inputs = implicit_inputs(node)
    graph.touch()
    return True


def _source(body: Graph, name: str) -> str:
    """What a value is a copy of."""
    while (producer := body.producer(name)) is not None:
        is_identity = producer.op_type == "Identity" and producer.domain == ""
        source = producer.inputs[0] if is_identity else given_back(body, producer)
        if source is None:
            break
        name = source
    return name
