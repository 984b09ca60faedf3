"""Nodes of a Loop's body that give the same in every iteration."""

from __future__ import annotations

from dataclasses import replace

from ort_sdk.graph import Graph, Node
from ort_sdk.graph.captures import implicit_inputs
from ort_sdk.graph.editing import replace_uses, unused_name
from ort_sdk.optimizer.matching import nodes_of
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["LoopInvariantCodeMotion"]

_MOVED = frozenset(
    {
        *(
            "Abs",
            "Add",
            "Cast",
            "Clip",
            "Cos",
            "Div",
            "Erf",
            "Exp",
            "Gemm",
            "Identity",
            "LeakyRelu",
            "Log",
            "MatMul",
            "Mul",
            "Neg",
        ),
        *("Pow", "Reciprocal", "Relu", "Shape", "Sigmoid", "Sin", "Softmax", "Sqrt", "Squeeze", "Sub", "Tanh", "Transpose"),
        "Unsqueeze",
    }
)
"""Operators that fail for no contents of their inputs: a Loop without iterations does not run them, the graph around it does."""


class LoopInvariantCodeMotion:
    """Moves nodes that read nothing the iterations change out of a Loop's body, so that they run once."""

    name = "LoopInvariantCodeMotion"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Move what can be moved out of every Loop of the graph."""
        changed = False
        for node in nodes_of(graph, "Loop"):
            changed |= _move_out(graph, node)
        return changed


def _move_out(graph: Graph, loop: Node) -> bool:
    body: Graph = loop.attributes["body"]
    varying = {argument.name for argument in body.inputs} | body.output_names()
    moved: list[Node] = []
    for node in body.nodes:
        # What is constant is folded where it is.
        is_constant = all(not name or body.constant(name) is not None for name in node.inputs)
        is_moved = node.op_type in _MOVED and not node.domain and not is_constant
        if is_moved and varying.isdisjoint((*node.inputs, *node.outputs)):
            moved.append(node)
        else:
            varying.update(name for name in node.outputs if name)
    if not moved:
        return False
    body.nodes = [node for node in body.nodes if node not in moved]
    position = graph.nodes.index(loop)
    renamed: dict[str, str] = {}
    for offset, node in enumerate(moved):
        node.inputs = [renamed.get(name, name) for name in node.inputs]
        _adopt(graph, body, node, renamed)
        graph.nodes.insert(position + offset, node)
        graph.touch()
    body.touch()
    loop.implicit_inputs = implicit_inputs(loop)
    graph.touch()
    return True


def _adopt(graph: Graph, body: Graph, node: Node, renamed: dict[str, str]) -> None:
    """Give a node's constants and results names of the graph around the body; ``renamed`` takes those of results."""
    for name in node.inputs:
        tensor = body.initializers.get(name)
        if tensor is not None:
            graph.add_initializer(own := unused_name(graph, name), tensor)
            node.inputs = [own if read == name else read for read in node.inputs]
    for name in filter(None, list(node.outputs)):
        own = renamed[name] = unused_name(graph, name)
        argument = body.values.pop(name, None)
        node.outputs = [own if made == name else made for made in node.outputs]
        body.touch()
        replace_uses(body, name, own)
        if argument is not None:
            graph.set_value(replace(argument, name=own))
