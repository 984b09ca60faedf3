"""An If whose condition is known, replaced by the nodes of the branch it takes."""

from __future__ import annotations

from dataclasses import replace

from ort_sdk.api import Tensor, find_schema
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.editing import rename_output, replace_uses, unused_name

__all__ = ["inline_constant_branch"]


def inline_constant_branch(graph: Graph, node: Node, opset_version: int) -> bool:
    """Move the nodes of the branch that a constant condition takes into the graph, instead of the If.

    Args:
        graph: holds the If.
        node: the If.
        opset_version: version of ai.onnx for nodes that have to be made.

    Returns:
        Whether the condition is constant, and so the If is gone.
    """
    condition = graph.constant(node.inputs[0])
    if condition is None or not _is_single(condition):
        return False
    branch: Graph = node.attributes["then_branch" if bool(condition.numpy().reshape(-1)[0]) else "else_branch"]
    _make_names_unique(branch, graph)
    copies = _name_outputs(branch, node, opset_version)
    for name, tensor in branch.initializers.items():
        graph.add_initializer(name, tensor)
    for name, argument in branch.values.items():
        graph.values.setdefault(name, argument)
    for inner in branch.nodes:
        for body in inner.subgraphs.values():
            body.parent = graph
    position = graph.nodes.index(node)
    graph.nodes[position : position + 1] = [*branch.nodes, *copies]
    graph.touch()
    return True


def _is_single(condition: Tensor) -> bool:
    return all(size == 1 for size in condition.shape)


def _make_names_unique(branch: Graph, graph: Graph) -> None:
    """Rename what the branch defines where the graph has such a name already."""
    taken: set[str] = set()
    scope: Graph | None = graph
    while scope is not None:
        taken |= scope.values.keys()
        scope = scope.parent
    for name in [name for name in branch.initializers if name in taken]:
        new = unused_name(branch, name)
        replace_uses(branch, name, new)
        branch.add_initializer(new, branch.initializers.pop(name))
        branch.values.pop(name, None)
        branch.outputs = [replace(output, name=new) if output.name == name else output for output in branch.outputs]
    for inner in branch.nodes:
        for name in [name for name in inner.outputs if name in taken]:
            _rename(branch, inner, name, unused_name(branch, name))


def _rename(branch: Graph, node: Node, old: str, new: str) -> None:
    known = branch.values.get(old)
    rename_output(branch, node, old, new)
    if known is not None:
        branch.values[new] = replace(known, name=new)
    branch.outputs = [replace(output, name=new) if output.name == old else output for output in branch.outputs]


def _name_outputs(branch: Graph, node: Node, opset_version: int) -> list[Node]:
    """Give the branch's outputs the names of the If's; what cannot be renamed is copied by the nodes returned."""
    copies = []
    given: set[str] = set()
    for position, wanted in enumerate(node.outputs):
        source = branch.outputs[position].name
        producer = branch.producer(source)
        if not wanted:
            continue
        if producer is None or source in given:
            copies.append(_identity(source, wanted, opset_version))
            continue
        _rename(branch, producer, source, wanted)
        branch.values.pop(wanted, None)
        given.add(wanted)
    return copies


def _identity(source: str, output: str, opset_version: int) -> Node:
    schema = find_schema("Identity", opset_version)
    return Node("Identity", [source], [output], since_version=schema.since_version if schema is not None else 1)
