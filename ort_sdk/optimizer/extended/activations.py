"""Activations as FusedConv and FusedGemm name them."""

from __future__ import annotations

from dataclasses import dataclass

from ort_sdk.graph import Node
from ort_sdk.optimizer.pattern import GraphMatcher

__all__ = ["ACTIVATIONS", "Activation", "activation_of"]

_PARAMETERS: dict[str, dict[str, float]] = {
    "Relu": {},
    "Sigmoid": {},
    "Tanh": {},
    "Softplus": {},
    "Softsign": {},
    "LeakyRelu": {"alpha": 0.01},
    "Elu": {"alpha": 1.0},
    "ThresholdedRelu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
}
"""Operators that can be fused → their attributes with ONNX's defaults."""

ACTIVATIONS = (*_PARAMETERS, "Clip")


@dataclass(frozen=True, slots=True)
class Activation:
    """An activation node in words of the fused operators."""

    name: str
    parameters: dict[str, float]
    """Attribute → value; for Clip ``min`` and ``max``."""


def activation_of(matcher: GraphMatcher, node: Node) -> Activation | None:
    """What a node of ``ACTIVATIONS`` does; None if that depends on values that are not constant."""
    if node.op_type != "Clip":
        defaults = _PARAMETERS[node.op_type]
        return Activation(node.op_type, {name: float(node.attributes.get(name, value)) for name, value in defaults.items()})
    bounds = {}
    for index, (name, unbounded) in enumerate((("min", -float("inf")), ("max", float("inf"))), start=1):
        given = node.inputs[index] if index < len(node.inputs) else ""
        value = matcher.scalar(given, node.inputs[0]) if given else float(node.attributes.get(name, unbounded))
        if value is None:
            return None
        bounds[name] = value
    return Activation("Clip", bounds)
