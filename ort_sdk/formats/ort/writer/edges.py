"""Which nodes make the values that others read → ``NodeEdge``."""

from __future__ import annotations

import numpy as np

from ort_sdk.formats.ort.reader.indices import EDGE_END
from ort_sdk.formats.ort.slots import NodeEdgeSlot
from ort_sdk.graph import Graph

from .builder import FileBuilder, offset, u32

__all__ = ["write_edges"]

EdgeEnd = tuple[int, int, int]
"""Index of the other node, output, input."""


def write_edges(builder: FileBuilder, graph: Graph) -> int:
    """A vector of ``NodeEdge``, one for each node of a graph; a node's index is its position."""
    incoming, outgoing = _edges(graph)
    entries = []
    for index, (ends_in, ends_out) in enumerate(zip(incoming, outgoing, strict=True)):
        inputs = builder.items(np.array(ends_in, dtype=EDGE_END))
        outputs = builder.items(np.array(ends_out, dtype=EDGE_END))
        fields = (offset(NodeEdgeSlot.INPUT_EDGES, inputs), offset(NodeEdgeSlot.OUTPUT_EDGES, outputs))
        entries.append(builder.table(NodeEdgeSlot, u32(NodeEdgeSlot.NODE_INDEX, index), *fields))
    return builder.references(entries)


def _edges(graph: Graph) -> tuple[list[list[EdgeEnd]], list[list[EdgeEnd]]]:
    """Edges into and out of each node; implicit inputs count after explicit ones."""
    makers = {name: (index, slot) for index, node in enumerate(graph.nodes) for slot, name in enumerate(node.outputs) if name}
    incoming: list[list[EdgeEnd]] = [[] for _ in graph.nodes]
    outgoing: list[list[EdgeEnd]] = [[] for _ in graph.nodes]
    for index, node in enumerate(graph.nodes):
        for target, name in enumerate((*node.inputs, *node.implicit_inputs)):
            if name in makers:
                maker, source = makers[name]
                incoming[index].append((maker, source, target))
                outgoing[maker].append((index, source, target))
    return incoming, outgoing
