"""Which values a Loop or a Scan carries from one iteration to the next."""

from __future__ import annotations

from ort_sdk.api.data_classes import dataclass
from ort_sdk.graph import Node

__all__ = ["LOOP_NUMBERS", "CarriedValues", "carried_values"]

LOOP_NUMBERS = 2
"""Inputs of a Loop, and of its body, that come before carried values: trips or iteration, and condition."""


@dataclass(frozen=True, slots=True)
class CarriedValues:
    """Where they are. The node gives them out first, in the same order."""

    first_input: int
    """Position of the first one among the inputs of the node, and of its body."""
    first_output: int
    """Position of the first one among the outputs of the body."""
    count: int


def carried_values(node: Node) -> CarriedValues | None:
    """The carried values of a Loop, or of a Scan whose states are whole values; None of any other node."""
    body = node.subgraphs.get("body")
    if body is None or node.domain:
        return None
    if node.op_type == "Loop":
        return CarriedValues(LOOP_NUMBERS, 1, len(body.inputs) - LOOP_NUMBERS)
    if node.op_type == "Scan":
        return CarriedValues(0, 0, len(body.inputs) - int(node.attributes["num_scan_inputs"]))
    return None
