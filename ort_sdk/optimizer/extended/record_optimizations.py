"""Fusions found and recorded in the graph, for a file in ORT format and a runtime that makes them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ort_sdk.graph import Graph, Node, RuntimeOptimization
from ort_sdk.graph.editing import refresh_captures, unused_name
from ort_sdk.graph.type_strings import op_id
from ort_sdk.optimizer.pattern import FusionPass, GraphMatcher, Match
from ort_sdk.optimizer.transformer import TransformerContext

from .qdq_group import BYTES
from .recordable import CONV, QDQ, recordable_passes

__all__ = ["record_runtime_optimizations"]

RECORDED_PROVIDER = "CPUExecutionProvider"
"""The only provider whose nodes ORT records."""

_ACTION_OF: dict[str, dict[str, str]] = {
    QDQ: {
        **dict.fromkeys(("Add", "Mul"), "2DQ"),
        **dict.fromkeys(("AveragePool", "GlobalAveragePool", "Sigmoid"), "1DQ"),
        **dict.fromkeys(("LeakyRelu", "Softmax"), "1DQ_CPU"),
        **dict.fromkeys(("Expand", "Flatten", "Gather", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"), "drop"),
        "Concat": "*DQ",
        "Conv": "Conv",
        "Gemm": "Gemm",
        "MatMul": "MatMul",
        "MaxPool": "drop_no_int16_support_and_positive_scale",
    },
    CONV: {"Conv": "ConvAct"},
}
"""Optimizer → operator of the target → action of onnxruntime 1.31 that makes of it what our pass of that name does."""

_BIASED = frozenset({"Conv", "Gemm"})
"""Actions whose third input may be missing but has a place."""
_BIASED_PLACES = 3

_MAX_POOL_OF_BYTES = 12
"""The only version of MaxPool that ORT's rule is for."""


class _Recorder(GraphMatcher):
    """Takes note of the one replacement a pass asks for, and makes none."""

    def __init__(self, graph: Graph, context: TransformerContext) -> None:
        super().__init__(graph, context)
        self.found: tuple[Match, Node] | None = None

    def replace(self, match: Match, new: Node) -> bool:
        """Note a replacement that could be made."""
        if not self._is_replaceable(match, new) or not self.context.has_kernel(new, self.graph):
            return False
        self.found = (match, new)
        return True


def record_runtime_optimizations(graph: Graph, context: TransformerContext, disabled: Collection[str] = ()) -> bool:
    """Find fusions in a graph and its bodies, and record them in place of making them.

    Args:
        graph: its nodes are placed; DequantizeLinear nodes with several readers become one for each.
        context: what passes may use.
        disabled: names of passes to leave out.

    Returns:
        Whether nodes were added.
    """
    passes = {name: each for name, each in recordable_passes().items() if name not in disabled and each.is_enabled(context)}
    changed = False
    for inner in list(graph.walk()):
        changed |= QDQ in passes and _separate_dequantizers(inner)
        known = {(each.optimizer, id(each.target)) for each in inner.runtime_optimizations}
        for name, fusion in passes.items():
            found = (_record(inner, context, name, fusion, node) for node in list(inner.nodes) if (name, id(node)) not in known)
            inner.runtime_optimizations.extend(each for each in found if each is not None)
    if changed:
        refresh_captures(graph)
    return changed


def _record(graph: Graph, context: TransformerContext, name: str, fusion: FusionPass, node: Node) -> RuntimeOptimization | None:
    action = _ACTION_OF[name].get(node.op_type)
    if action is None or node.domain or node.execution_provider != RECORDED_PROVIDER or not _is_of_ort(node, graph):
        return None
    recorder = _Recorder(graph, context)
    fusion.fuse(recorder, node)
    if recorder.found is None:
        return None
    match, new = recorder.found
    members = {id(each): each for each in match.nodes}
    inputs = [maker for maker in map(graph.producer, node.inputs) if maker is not None and id(maker) in members]
    outputs = [each for each in match.nodes if each is not node and each not in inputs]
    missing = _BIASED_PLACES - len(inputs) if name == QDQ and action in _BIASED else 0
    stays = (new.domain, new.op_type) == (node.domain, node.op_type)
    return RuntimeOptimization(
        optimizer=name,
        action=action,
        target=node,
        inputs=(*inputs, *[None] * missing),
        outputs=tuple(outputs),
        variadic_inputs=len(inputs) if action == "*DQ" else None,
        produced=() if stays else (op_id(new.domain, new.op_type, new.since_version),),
    )


def _is_of_ort(node: Node, graph: Graph) -> bool:
    """Whether ONNX Runtime, which replays records as they are, does the right thing with a node that our passes would fuse."""
    if node.op_type == "MaxPool" and node.since_version != _MAX_POOL_OF_BYTES:
        return False
    if node.op_type == "AveragePool" and "dilations" in node.attributes:
        return False
    is_moved = _ACTION_OF[QDQ].get(node.op_type, "").startswith("drop")
    dequantizer = graph.producer(node.inputs[0]) if is_moved else None
    return dequantizer is None or graph.node_arg(dequantizer.inputs[0]).element_type in BYTES


def _separate_dequantizers(graph: Graph) -> bool:
    """Give each reader of a dequantised value a DequantizeLinear of its own, as records need it (ORT's ``EnsureUniqueDQ``)."""
    added: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if node.op_type == "DequantizeLinear" and not node.domain:
            copies = _copies(graph, node)
            if copies:
                added[id(node)] = copies
    if added:
        graph.nodes = [each for node in graph.nodes for each in (node, *added.get(id(node), ()))]
        graph.touch()
    return bool(added)


def _copies(graph: Graph, node: Node) -> list[Node]:
    """Copies of a node for all of its readers' inputs but one, which read them from now on."""
    name = node.outputs[0]
    uses = [(reader, index) for reader in graph.consumers(name) for index, read in enumerate(reader.inputs) if read == name]
    is_read_elsewhere = graph.is_output(name) or any(name in reader.implicit_inputs for reader in graph.consumers(name))
    copies = []
    for reader, index in uses if is_read_elsewhere else uses[1:]:
        copy = node.copy(graph)
        copy.outputs = [unused_name(graph, f"{name}_of_{reader.outputs[0]}")]
        copy.name = copy.outputs[0]
        graph.set_value(replace(graph.node_arg(name), name=copy.outputs[0]))
        reader.inputs[index] = copy.outputs[0]
        copies.append(copy)
    return copies
