"""``RuntimeOptimizations`` → what the file says may be replaced in a graph."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ort_sdk.api import Fail
from ort_sdk.formats.ort.slots import (
    EMPTY_NODE_INDEX,
    GraphSlot,
    OptimizationSlot,
    OptimizationsSlot,
    OptimizedNodesSlot,
    OptimizerSlot,
)
from ort_sdk.graph import Node, RuntimeOptimization

from .flatbuffer import Table
from .resolver import checked_op_id

__all__ = ["read_runtime_optimizations"]

logger = logging.getLogger("ort_sdk.loader")


def read_runtime_optimizations(graph: Table, nodes: Mapping[int, Node]) -> list[RuntimeOptimization]:
    """The records of a graph, in the file's order; those about nodes that are not there are left out.

    Args:
        graph: the ``Graph``.
        nodes: index → node.

    Raises:
        Fail: an optimizer is listed twice, a record's node indices are out of range or do not fit its numbers of inputs and
            outputs, or what it produces is no op id.
    """
    table = graph.table(GraphSlot.RUNTIME_OPTIMIZATIONS, "RuntimeOptimizations")
    entries = [] if table is None else table.tables(OptimizationsSlot.OPTIMIZERS, "RuntimeOptimizationRecordContainerEntry")
    slots = graph.u32(GraphSlot.MAX_NODE_INDEX)
    found: list[RuntimeOptimization] = []
    names: set[str] = set()
    for entry in entries:
        optimizer = entry.text(OptimizerSlot.NAME)
        if not optimizer or optimizer in names:
            raise Fail(
                f"Attempting to load runtime optimization records for a previously loaded optimizer, or one without a name: "
                f"{optimizer!r}. Invalid ORT format model."
            )
        names.add(optimizer)
        for record in entry.tables(OptimizerSlot.RECORDS, "RuntimeOptimizationRecord"):
            optimization = _read(record, optimizer, nodes, slots)
            if optimization is not None:
                found.append(optimization)
    return found


def _read(table: Table, optimizer: str, nodes: Mapping[int, Node], slots: int) -> RuntimeOptimization | None:
    action = table.text(OptimizationSlot.ACTION_ID) or ""
    owner = f"runtime optimization '{action}' of {optimizer}"
    listed = table.table(OptimizationSlot.NODES, "NodesToOptimizeIndices")
    indices = [] if listed is None else listed.numbers(OptimizedNodesSlot.NODE_INDICES, "<u4")
    _check_range(indices, slots, owner)
    if listed is None or not indices or any(index not in nodes and index != EMPTY_NODE_INDEX for index in indices):
        logger.warning("%s is left out: the graph has no longer the nodes of indices %s", owner, indices[:20])
        return None
    variadic_inputs = _variadic(listed, OptimizedNodesSlot.HAS_VARIADIC_INPUT, OptimizedNodesSlot.NUM_VARIADIC_INPUTS)
    variadic_outputs = _variadic(listed, OptimizedNodesSlot.HAS_VARIADIC_OUTPUT, OptimizedNodesSlot.NUM_VARIADIC_OUTPUTS)
    inputs = _entries(listed.u32(OptimizedNodesSlot.NUM_INPUTS), variadic_inputs)
    outputs = _entries(listed.u32(OptimizedNodesSlot.NUM_OUTPUTS), variadic_outputs)
    target = nodes.get(indices[inputs]) if 0 <= inputs < len(indices) else None
    if target is None or outputs < 0 or inputs + 1 + outputs != len(indices):
        raise Fail(
            f"{owner} has {len(indices)} node indices; it needs {max(inputs, 0)} for inputs, one for its target, which "
            f"must be a node, and {max(outputs, 0)} for outputs. Invalid ORT format model."
        )
    found = [nodes.get(index) for index in indices]
    return RuntimeOptimization(
        optimizer=optimizer,
        action=action,
        target=target,
        inputs=tuple(found[:inputs]),
        outputs=tuple(found[inputs + 1 :]),
        variadic_inputs=variadic_inputs,
        variadic_outputs=variadic_outputs,
        produced=tuple(map(checked_op_id, table.texts(OptimizationSlot.PRODUCED_OP_IDS))),
    )


def _check_range(indices: list[int], slots: int, owner: str) -> None:
    wrong = [index for index in indices if index >= slots and index != EMPTY_NODE_INDEX]
    if wrong:
        raise Fail(f"{owner} names nodes of indices {wrong[:20]}; the graph has {slots} node slots. Invalid ORT format model.")


def _variadic(listed: Table, is_given: int, count: int) -> int | None:
    return listed.u32(count) if listed.u8(is_given) else None


def _entries(arguments: int, variadic: int | None) -> int:
    """Nodes of some arguments, the last of which may have many; negative if it should and there is no argument."""
    if variadic is None:
        return arguments
    return arguments - 1 + variadic if arguments else -1
