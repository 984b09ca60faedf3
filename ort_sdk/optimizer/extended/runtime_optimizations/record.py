"""Fusions found and recorded in the graph, for a file in ORT format and a runtime that makes them."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace

from ort_sdk.graph import Graph, Node, RuntimeOptimization
from ort_sdk.graph.editing import refresh_captures, unused_name
from ort_sdk.graph.type_strings import op_id
from ort_sdk.optimizer.extended.qdq.qdq_group import BYTES
from ort_sdk.optimizer.pattern import FusionPass, GraphMatcher, Match
from ort_sdk.optimizer.transformer import TransformerContext

from .recordable import CONV, NBITS, QDQ, optimizer_of, recordable_passes

__all__ = ["record_runtime_optimizations"]

RECORDED_PROVIDER = "CPUExecutionProvider"
"""The only provider whose nodes ORT records."""

_ACTION_OF: dict[str, dict[str, str]] = {
    QDQ: {
        **dict.fromkeys(("Add", "Mul"), "2DQ"),
        **dict.fromkeys(("AveragePool", "GlobalAveragePool", "Sigmoid"), "1DQ"),
        **dict.fromkeys(("LeakyRelu", "Softmax"), "1DQ_CPU"),
        **dict.fromkeys(("Expand", "Flatten", "Gather", "GatherElements", "Reshape", "Slice"), "drop"),
        **dict.fromkeys(("Squeeze", "Tile", "Transpose", "Unsqueeze"), "drop"),
        **dict.fromkeys(("MaxPool", "ReduceMax", "ReduceMin"), "drop_no_int16_support_and_positive_scale"),
        "ArgMax": "dropDQ",
        "Concat": "*DQ",
        "Conv": "Conv",
        "Gemm": "Gemm",
        "MatMul": "MatMul",
        "Resize": "drop_no_int16_support",
        "Split": "dropSplitQDQ",
        "Where": "Where",
    },
    CONV: {"Conv": "ConvAct"},
}
"""Optimizer → operator of the target → action of onnxruntime 1.31 that makes of it what our pass of that name does."""

_BIASED = frozenset({"Conv", "Gemm"})
"""Actions whose third input may be missing but has an entry."""
_BIASED_PLACES = 3

_VERSIONS = {"MaxPool": (12,)}
"""Versions that ORT's rule is for, where it is not for all."""


class _Recorder(GraphMatcher):
    """Takes note of the one replacement a pass asks for, and refuses it."""

    def __init__(self, graph: Graph, context: TransformerContext) -> None:
        super().__init__(graph, context)
        self.found: tuple[Match, Node] | None = None

    def replace(self, match: Match, new: Node, kind: Hashable = None) -> bool:
        """Note a replacement that could be made."""
        if self._is_replaceable(match, new) and self.context.has_kernel(new, self.graph):
            self.found = (match, new)
        return False


def record_runtime_optimizations(graph: Graph, context: TransformerContext, disabled: Collection[str] = ()) -> bool:
    """Find fusions in a graph and its bodies, and record them instead of making them.

    Args:
        graph: its nodes are placed; DequantizeLinear nodes with several readers become one for each.
        context: what passes may use.
        disabled: names of passes to leave out.

    Returns:
        Whether nodes were added.
    """
    passes = [each for name, each in recordable_passes().items() if name not in disabled and each.is_enabled(context)]
    changed = False
    for inner in list(graph.walk()):
        changed |= _separate_dequantizers(inner)
        known = {(each.optimizer, id(each.target)) for each in inner.runtime_optimizations}
        for fusion in passes:
            found = [_record(_Recorder(inner, context), fusion, node) for node in _Recorder(inner, context).nodes(fusion.anchors)]
            new = [each for each in found if each is not None and (each.optimizer, id(each.target)) not in known]
            inner.runtime_optimizations.extend(new)
    if changed:
        refresh_captures(graph)
    return changed


def _record(recorder: _Recorder, fusion: FusionPass, node: Node) -> RuntimeOptimization | None:
    fusion.fuse(recorder, node)
    if recorder.found is None or node.domain or node.execution_provider != RECORDED_PROVIDER:
        return None
    match, new = recorder.found
    target = match.last if fusion.name == NBITS else node
    action = NBITS if fusion.name == NBITS else _ACTION_OF[fusion.name].get(node.op_type)
    graph, members = recorder.graph, {id(each) for each in match.nodes}
    inputs = [maker for maker in map(graph.producer, target.inputs) if maker is not None and id(maker) in members]
    outputs = [each for name in target.outputs for each in graph.consumers(name) if id(each) in members]
    if action is None or len(inputs) + 1 + len(outputs) != len(members) or not _is_of_ort(target, inputs, action, graph):
        return None
    missing = _BIASED_PLACES - len(inputs) if fusion.name == QDQ and action in _BIASED else 0
    stays = action.startswith("drop") and action != "dropSplitQDQ"
    return RuntimeOptimization(
        optimizer=optimizer_of(fusion.name),
        action=action,
        target=target,
        inputs=(*inputs, *[None] * missing),
        outputs=tuple(outputs),
        variadic_inputs=len(inputs) if action == "*DQ" else None,
        variadic_outputs=len(outputs) if action == "dropSplitQDQ" else None,
        produced=() if stays else (op_id(new.domain, new.op_type, new.since_version),),
    )


def _is_of_ort(target: Node, inputs: Sequence[Node], action: str, graph: Graph) -> bool:
    """Whether ONNX Runtime, which replays records as they are, does the right thing with nodes that our passes would fuse."""
    if target.since_version not in _VERSIONS.get(target.op_type, (target.since_version,)):
        return False
    if target.op_type == "AveragePool" and "dilations" in target.attributes:
        return False
    if action == NBITS:
        return all(len(graph.consumers(name)) == 1 for node in inputs for name in node.inputs if name)
    return not action.startswith("drop") or all(graph.node_arg(node.inputs[0]).element_type in BYTES for node in inputs)


def _separate_dequantizers(graph: Graph) -> bool:
    """Give each reader of a dequantized value a DequantizeLinear of its own, as records need it (ORT's ``EnsureUniqueDQ``)."""
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
