"""What a runtime may replace in a graph → ``RuntimeOptimizations``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ort_sdk.formats.ort.slots import EMPTY_NODE_INDEX, OptimizationSlot, OptimizationsSlot, OptimizedNodesSlot, OptimizerSlot
from ort_sdk.graph import Graph, RuntimeOptimization

from .builder import FileBuilder, flag, offset, u32

__all__ = ["standing_optimizations", "write_runtime_optimizations"]


def standing_optimizations(graph: Graph) -> Iterator[RuntimeOptimization]:
    """The optimizations of a graph, without its bodies', all of whose nodes are still in it."""
    if graph.runtime_optimizations:
        present = {id(node): node for node in graph.nodes}
        yield from (each for each in graph.runtime_optimizations if each.is_within(present))


def write_runtime_optimizations(builder: FileBuilder, graph: Graph) -> int | None:
    """A ``RuntimeOptimizations``; a node's index is its position. None if there are none."""
    indices = {id(node): index for index, node in enumerate(graph.nodes)}
    by_optimizer: dict[str, list[int]] = {}
    for each in standing_optimizations(graph):
        by_optimizer.setdefault(each.optimizer, []).append(_write(builder, each, indices))
    if not by_optimizer:
        return None
    entries = []
    for name in sorted(by_optimizer, key=lambda name: name.encode("utf-8", "surrogateescape")):
        records = builder.references(by_optimizer[name])
        fields = (offset(OptimizerSlot.NAME, builder.text(name)), offset(OptimizerSlot.RECORDS, records))
        entries.append(builder.table(OptimizerSlot, *fields))
    return builder.table(OptimizationsSlot, offset(OptimizationsSlot.OPTIMIZERS, builder.references(entries)))


def _write(builder: FileBuilder, optimization: RuntimeOptimization, indices: Mapping[int, int]) -> int:
    listed = [EMPTY_NODE_INDEX if node is None else indices[id(node)] for node in optimization.nodes_to_optimize]
    has_inputs, has_outputs = optimization.variadic_inputs is not None, optimization.variadic_outputs is not None
    more_inputs, more_outputs = optimization.variadic_inputs or 0, optimization.variadic_outputs or 0
    nodes = builder.table(
        OptimizedNodesSlot,
        offset(OptimizedNodesSlot.NODE_INDICES, builder.numbers(listed, "<u4")),
        u32(OptimizedNodesSlot.NUM_INPUTS, len(optimization.inputs) - more_inputs + has_inputs),
        u32(OptimizedNodesSlot.NUM_OUTPUTS, len(optimization.outputs) - more_outputs + has_outputs),
        flag(OptimizedNodesSlot.HAS_VARIADIC_INPUT, has_inputs),
        flag(OptimizedNodesSlot.HAS_VARIADIC_OUTPUT, has_outputs),
        u32(OptimizedNodesSlot.NUM_VARIADIC_INPUTS, more_inputs),
        u32(OptimizedNodesSlot.NUM_VARIADIC_OUTPUTS, more_outputs),
    )
    action, produced = builder.text(optimization.action), builder.texts(optimization.produced)
    return builder.table(
        OptimizationSlot,
        offset(OptimizationSlot.ACTION_ID, action),
        offset(OptimizationSlot.NODES, nodes),
        offset(OptimizationSlot.PRODUCED_OP_IDS, produced),
    )
