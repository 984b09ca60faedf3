"""Distances between all rows of two matrices, which exporters write as a Scan over the rows of one."""

from __future__ import annotations

from ort_sdk.api import TensorElementType
from ort_sdk.graph import Graph, Node
from ort_sdk.optimizer.pattern import FusionPass, GraphMatcher, Match

__all__ = ["ScanDistanceFusion"]

_TYPES = {TensorElementType.FLOAT, TensorElementType.DOUBLE}
_IN_ORDER = ("scan_input_axes", "scan_input_directions", "scan_output_axes", "scan_output_directions")
_FIRST_WITHOUT_BATCH = 9


class ScanDistanceFusion(FusionPass):
    """Scan whose body squares the differences of a matrix from each row and adds them up becomes `com.microsoft` CDist."""

    name = "ScanDistanceFusion"
    anchors = ("Scan",)

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        body = node.attributes.get("body")
        is_plain = node.since_version >= _FIRST_WITHOUT_BATCH and not any(
            any(node.attributes.get(name, ())) for name in _IN_ORDER
        )
        if not isinstance(body, Graph) or not is_plain or node.implicit_inputs or node.attributes.get("num_scan_inputs") != 1:
            return None
        if len(node.inputs) != 2 or len(node.outputs) != 2 or not _measures_distances(body):
            return None
        matrix, rows = (matcher.argument(name) for name in node.inputs)
        shapes = (matrix.shape, rows.shape)
        if any(shape is None or len(shape) != 2 or not isinstance(shape[1], int) for shape in shapes):
            return None
        if matrix.element_type not in _TYPES or shapes[0][1:] != shapes[1][1:]:  # type: ignore[index]
            return None
        inputs, outputs = [node.inputs[1], node.inputs[0]], [node.outputs[1]]
        return matcher.fuse(Match(node), "CDist", inputs, {"metric": "sqeuclidean"}, outputs=outputs)


def _measures_distances(body: Graph) -> bool:
    """Whether a body hands its matrix on and gives the sums of its rows' squared differences from a row."""
    makers = {name: node for node in body.nodes for name in node.outputs}

    def source(name: str) -> str:
        while name in makers and makers[name].op_type == "Identity":
            name = makers[name].inputs[0]
        return name

    state, row = (argument.name for argument in body.inputs)
    kept, made = (source(argument.name) for argument in body.outputs)
    total = makers.get(made)
    if kept != state or total is None or total.op_type != "ReduceSumSquare" or total.attributes.get("keepdims", 1):
        return False
    given = body.constant(total.inputs[1]) if len(total.inputs) > 1 else None
    axes = total.attributes.get("axes", ()) if given is None else given.numpy().tolist()
    difference = makers.get(source(total.inputs[0]))
    if list(axes) not in ([1], [-1]) or difference is None or difference.op_type != "Sub":
        return False
    return {source(name) for name in difference.inputs} == {state, row}
