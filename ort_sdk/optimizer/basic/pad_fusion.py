"""Padding with zeros in front of a convolution, as the convolution's own."""

from __future__ import annotations

from ort_sdk.graph import Graph, Node
from ort_sdk.graph.editing import replace_nodes, single_consumer
from ort_sdk.optimizer.matching import constant_scalar, integers, is_given, nodes_of
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["PadFusion"]


class PadFusion:
    """ORT's ``PadFusion`` for Conv: constant mode, zeros, spatial axes only."""

    name = "PadFusion"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Add the pads of every such Pad to its convolution."""
        changed = False
        for pad in nodes_of(graph, "Pad"):
            conv = single_consumer(graph, pad.outputs[0])
            if conv is None or conv.op_type != "Conv" or conv.domain or conv.inputs[0] != pad.outputs[0]:
                continue
            pads = _spatial_pads(pad, graph)
            if pads is None or conv.inputs.count(pad.outputs[0]) > 1:
                continue
            if conv.attributes.get("auto_pad", "NOTSET") not in {"NOTSET", "VALID"}:
                continue
            own = conv.attributes.get("pads") if conv.attributes.get("auto_pad", "NOTSET") == "NOTSET" else None
            attributes = {name: value for name, value in conv.attributes.items() if name != "auto_pad"}
            attributes["pads"] = [mine + more for mine, more in zip(own or [0] * len(pads), pads, strict=True)]
            inputs = [pad.inputs[0], *conv.inputs[1:]]
            whole = Node("Conv", inputs, list(conv.outputs), attributes, name=conv.name, since_version=conv.since_version)
            replace_nodes(graph, [pad, conv], [whole])
            changed = True
        return changed


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
