"""The walk over a model's nodes that replaces those on blocks of channels."""

from __future__ import annotations

from ort_sdk.api import InvalidGraph
from ort_sdk.graph import Graph, Model, Node
from ort_sdk.graph.editing import refresh_captures
from ort_sdk.graph.shape_inference import infer_shapes
from ort_sdk.graph.type_inference import infer_types

from .between import keeps_blocks
from .block_size import block_size_of
from .convolution import restore_conv
from .domain import NCHWC
from .operators import OPERATORS
from .values import RestoredGraph

__all__ = ["restore"]


def restore(model: Model) -> None:
    """Replace all nodes of the domain; see ``restore_nchw``."""
    infer_types(model.graph, model.schemas)
    infer_shapes(model.graph)
    graphs = list(model.graph.walk())
    block = block_size_of(graphs)
    for graph in graphs:
        if any(node.domain == NCHWC for node in graph.nodes):
            _restore_graph(graph, model, block)
    refresh_captures(model.graph)
    # What was inferred names values that are gone.
    model.graph.inferred = None


def _restore_graph(graph: Graph, model: Model, block: int) -> None:
    restored = RestoredGraph(graph, model, block)
    for node in graph.nodes:
        if node.domain == NCHWC:
            _restore_node(node, restored)
        elif not any(map(restored.is_restored, node.inputs)) or not keeps_blocks(node, restored):
            restored.want_as_in_file(node.reads())
            restored.keep(node)
    restored.finish()


def _restore_node(node: Node, restored: RestoredGraph) -> None:
    if node.op_type == "Conv":
        restore_conv(node, restored)
    elif node.op_type in OPERATORS:
        OPERATORS[node.op_type](node, restored)
    else:
        raise InvalidGraph(
            f"{node.describe()}: the domain has no such operator; known: {', '.join(sorted(('Conv', *OPERATORS)))}"
        )
