"""Whether bodies of control flow take and give as many values as their nodes."""

from __future__ import annotations

from ort_sdk.api import InvalidGraph
from ort_sdk.graph import Graph, Node

__all__ = ["check_bodies"]

_FIRST_SCAN_WITHOUT_LENGTHS = 9


def check_bodies(node: Node) -> None:
    """Compare the bodies of a control-flow node of ONNX with the node; others may have what they like.

    Raises:
        InvalidGraph: a body has another number of inputs than the node passes, or fewer outputs than it takes.
    """
    if node.domain:
        return
    for name, body in node.subgraphs.items():
        counts = _counts(node)
        if counts is None:
            return
        passed, taken, is_exact = counts
        if len(body.inputs) != passed:
            raise InvalidGraph(f"{node.describe()} passes {passed} inputs to '{name}', which takes {len(body.inputs)}")
        given = len(body.outputs)
        if given < taken or (is_exact and given != taken):
            raise InvalidGraph(f"{node.describe()} takes {taken} outputs from '{name}', which has {given}")
        if node.op_type == "Scan":
            _check_scan(node, body)


def _counts(node: Node) -> tuple[int, int, bool] | None:
    """(inputs passed to a body, outputs taken from it, whether it may have no more); None for no control flow."""
    inputs, outputs = len(node.inputs), len(node.outputs)
    if node.op_type == "If":
        return 0, outputs, True
    if node.op_type == "Loop":
        # The iteration and the condition are passed, and the condition is given back with the state.
        return max(inputs, 2), max(outputs, inputs - 2) + 1, False
    if node.op_type == "Scan":
        return inputs - (node.since_version < _FIRST_SCAN_WITHOUT_LENGTHS), outputs, False
    return (inputs, outputs, False) if node.op_type == "SequenceMap" else None


def _check_scan(node: Node, body: Graph) -> None:
    scanned = node.attributes["num_scan_inputs"]
    passed = len(body.inputs)
    if not 1 <= scanned <= passed:
        raise InvalidGraph(f"{node.describe()} has num_scan_inputs {scanned}; it must be from 1 to its {passed} inputs")
    if len(body.outputs) < passed - scanned:
        raise InvalidGraph(
            f"{node.describe()} keeps {passed - scanned} values of state, and its body gives {len(body.outputs)} outputs"
        )
