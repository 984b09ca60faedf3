"""Padding with zeros in front of a convolution or an average, as its own, and padding with nothing."""

from __future__ import annotations

from collections.abc import Sequence

from ort_sdk.graph import Graph, Node
from ort_sdk.graph.editing import bypass_node, replace_nodes, single_consumer
from ort_sdk.optimizer.matching import constant_scalar, integers, is_given, nodes_of
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["PadElimination", "PadFusion"]


class PadElimination:
    """Pads of nothing, as exporters write them in front of every AveragePool that counts padding, are left out."""

    name = "PadElimination"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Take out nodes whose pads are all 0."""
        changed = False
        for pad in nodes_of(graph, "Pad"):
            pads = integers(graph, pad, 1, "pads")
            if pads is not None and not any(pads) and bypass_node(graph, pad):
                changed = True
        return changed


class PadFusion:
    """ORT's ``PadFusion`` for Conv and AveragePool: constant mode, zeros, spatial axes only."""

    name = "PadFusion"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Add the pads of every such Pad to those of the node that reads it."""
        changed = False
        for pad in nodes_of(graph, "Pad"):
            reader = single_consumer(graph, pad.outputs[0])
            if reader is None or reader.domain or reader.inputs.count(pad.outputs[0]) > 1 or reader.inputs[0] != pad.outputs[0]:
                continue
            pads = _spatial_pads(pad, graph)
            attributes = None if pads is None else _padded(reader, pads)
            if attributes is None:
                continue
            inputs = [pad.inputs[0], *reader.inputs[1:]]
            whole = Node(
                reader.op_type, inputs, list(reader.outputs), attributes, name=reader.name, since_version=reader.since_version
            )
            replace_nodes(graph, [pad, reader], [whole])
            changed = True
        return changed


def _padded(node: Node, pads: Sequence[int]) -> dict[str, object] | None:
    """A convolution's or average's attributes with further padding; None if it cannot have that."""
    kind = node.attributes.get("auto_pad", "NOTSET")
    if node.op_type not in {"AveragePool", "Conv"} or kind not in {"NOTSET", "VALID"}:
        return None
    own = (node.attributes.get("pads") if kind == "NOTSET" else None) or [0] * len(pads)
    attributes = {name: value for name, value in node.attributes.items() if name != "auto_pad"}
    attributes["pads"] = [mine + more for mine, more in zip(own, pads, strict=True)]
    if node.op_type == "Conv":
        return attributes
    counts = bool(node.attributes.get("count_include_pad", 0)) or not any(own)
    is_rounded_up, kernel = node.attributes.get("ceil_mode", 0), list(node.attributes["kernel_shape"])
    fits = all(more < size for more, size in zip(attributes["pads"], [*kernel, *kernel], strict=True))
    if node.since_version < 7 or is_rounded_up or not counts or not fits:
        return None
    return attributes | {"count_include_pad": 1}


def _spatial_pads(pad: Node, graph: Graph) -> list[int] | None:
    """Begins and ends of the spatial axes, if the node pads nothing else, with zeros."""
    if pad.attributes.get("mode", "constant") != "constant" or pad.since_version < 2 or is_given(pad, 3):
        return None
    value = constant_scalar(graph, pad, 2) if is_given(pad, 2) else pad.attributes.get("value", 0.0)
    pads = integers(graph, pad, 1, "pads")
    if value != 0 or pads is None or len(pads) < 6 or min(pads) < 0:
        return None
    rank = len(pads) // 2
    if any(pads[axis] for axis in (0, 1, rank, rank + 1)):
        return None
    return [*pads[2:rank], *pads[rank + 2 :]]
