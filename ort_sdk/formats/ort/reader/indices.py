"""Node indices and edges: whether what a file says of them fits its nodes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_sdk.api import Fail, HostArray
from ort_sdk.formats.ort.slots import GraphSlot, NodeEdgeSlot, NodeSlot
from ort_sdk.graph import Node

from .flatbuffer import Table

__all__ = ["CONTROL_EDGE", "EDGE_END", "NodeEntry", "check_argument_counts", "check_edges", "slot_of"]

EDGE_END = np.dtype([("node", "<u4"), ("source", "<i4"), ("target", "<i4")])
"""Struct ``EdgeEnd``: the other node, the output the edge comes from, the input it goes to (implicit inputs last)."""
CONTROL_EDGE = 2**31 - 1
"""Both arguments of an edge that carries no value."""
_MOST_SLOTS = 1_000_000
_FEW_SLOTS = 1024
_SLOTS_PER_NODE = 64

NodeEntry = tuple[Node, int]
"""A node, and how many implicit inputs the file lists for it."""


def slot_of(table: Table, graph: Table, count: int) -> int:
    """Index of a node.

    Args:
        table: the ``Node``.
        graph: the ``Graph`` it is in.
        count: nodes of that graph.

    Raises:
        Fail: the index is not below the graph's number of slots, or beyond what that many nodes may need.
    """
    index = table.u32(NodeSlot.INDEX)
    most = min(_MOST_SLOTS, max(_FEW_SLOTS, _SLOTS_PER_NODE * count))
    if index >= most:
        raise Fail(f"Node index {index} is out of range: {count} nodes may use indices below {most}. Invalid ORT format model.")
    if index >= graph.u32(GraphSlot.MAX_NODE_INDEX):
        raise Fail(
            f"Serialized max node index is smaller than the required node slot count: {graph.u32(GraphSlot.MAX_NODE_INDEX)} "
            f"slots, and a node has index {index}. Invalid ORT format model."
        )
    return index


def check_argument_counts(table: Table, node: Node) -> int:
    """Compare how many arguments each formal input takes with the node's inputs.

    Returns:
        How many formal inputs the operator has.

    Raises:
        Fail: the counts are missing, negative, or do not add up to the inputs.
    """
    if not table.has(NodeSlot.INPUT_ARG_COUNTS):
        raise Fail(f"Missing input_arg_counts of {node.describe()}. Invalid ORT format model.")
    counts = table.numbers(NodeSlot.INPUT_ARG_COUNTS, "<i4")
    if any(count < 0 for count in counts) or sum(counts) != len(node.inputs):
        raise Fail(
            f"{node.describe()}: mismatch number of explicit inputs: there are {len(node.inputs)}, and input_arg_counts are "
            f"{counts[:20]}. Invalid ORT format model."
        )
    return len(counts)


def check_edges(graph: Table, nodes: Mapping[int, NodeEntry]) -> None:
    """Compare the edges with the nodes. They are not needed: values are linked by name.

    Raises:
        Fail: an edge belongs to no node, ends at none, or at an argument that is not there.
    """
    slots = max(nodes, default=-1) + 1
    outputs = np.full(slots, -1, np.int64)
    inputs = np.full(slots, -1, np.int64)
    for index, (node, implicit) in nodes.items():
        outputs[index] = len(node.outputs)
        inputs[index] = len(node.inputs) + implicit
    for entry in graph.tables(GraphSlot.NODE_EDGES, "NodeEdge"):
        owner = entry.u32(NodeEdgeSlot.NODE_INDEX)
        if owner not in nodes:
            raise Fail(f"Dangling node edge: there is no node of index {owner}. Invalid ORT format model.")
        incoming = entry.records(NodeEdgeSlot.INPUT_EDGES, EDGE_END)
        outgoing = entry.records(NodeEdgeSlot.OUTPUT_EDGES, EDGE_END)
        _check_ends(incoming, outputs, "source", inputs[owner], "target", owner)
        _check_ends(outgoing, inputs, "target", outputs[owner], "source", owner)


def _check_ends(ends: HostArray, theirs: HostArray, their_end: str, ours: int, our_end: str, owner: int) -> None:
    others = ends["node"]
    if len(ends) and (others.max() >= len(theirs) or theirs[others].min() < 0):
        raise Fail(
            f"An edge of node {owner} ends at a node index without a node: {others[:20].tolist()}. Invalid ORT format model."
        )
    is_control = (ends["source"] == CONTROL_EDGE) & (ends["target"] == CONTROL_EDGE)
    fits = (ends[their_end] >= 0) & (ends[their_end] < theirs[others]) & (ends[our_end] >= 0) & (ends[our_end] < ours)
    if not np.all(fits | is_control):
        wrong = ends[~(fits | is_control)][0]
        raise Fail(
            f"An edge of node {owner} goes from output {wrong['source']} to input {wrong['target']}, which the nodes lack. "
            "Invalid ORT format model."
        )
