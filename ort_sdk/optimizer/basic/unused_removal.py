"""What nothing reads: nodes, optional outputs, constants."""

from __future__ import annotations

from ort_sdk.api import ParameterOption
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.editing import remove_nodes
from ort_sdk.graph.operator_schemas import TABLE_SCHEMAS
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["UnusedRemoval"]


class UnusedRemoval:
    """Drops nodes none of whose outputs is read, names of optional outputs that are not, and constants that are not.

    Constants that are inputs too stay, for feeds may still name them.
    """

    name = "UnusedRemoval"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Clean one graph."""
        changed = _remove_dead(graph)
        changed |= _omit_outputs(graph)
        return _remove_constants(graph) or changed


def _remove_dead(graph: Graph) -> bool:
    needed = graph.output_names()
    dead = []
    for node in reversed(graph.nodes):
        if needed.isdisjoint(node.outputs):
            dead.append(node)
        else:
            needed.update(node.reads())
    remove_nodes(graph, dead)
    return bool(dead)


def _omit_outputs(graph: Graph) -> bool:
    outputs = graph.output_names()
    changed = False
    for node in graph.nodes:
        if len(node.outputs) == 1:
            continue
        for index, name in enumerate(node.outputs):
            if name and name not in outputs and not graph.consumers(name) and _is_optional(node, index):
                graph.unlink(node)
                node.outputs[index] = ""
                graph.link(node)
                graph.values.pop(name, None)
                changed = True
        while len(node.outputs) > 1 and not node.outputs[-1] and _is_optional(node, len(node.outputs) - 1):
            node.outputs.pop()
    return changed


def _is_optional(node: Node, index: int) -> bool:
    schema = TABLE_SCHEMAS.of(node)
    formal = None if schema is None else schema.output(index)
    return formal is not None and formal.option == ParameterOption.OPTIONAL


def _remove_constants(graph: Graph) -> bool:
    kept = graph.output_names() | {argument.name for argument in graph.inputs}
    unread = [name for name in graph.initializers if name not in kept and not graph.consumers(name)]
    for name in unread:
        del graph.initializers[name]
        graph.values.pop(name, None)
    return bool(unread)
