"""Activations as FusedConv and FusedGemm name them."""

from __future__ import annotations

from ort_sdk.api.data_classes import dataclass
from ort_sdk.graph import Node
from ort_sdk.optimizer.pattern import GraphMatcher

__all__ = ["CONV_ACTIVATIONS", "GEMM_ACTIVATIONS", "Activation", "activation_of"]

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

GEMM_ACTIVATIONS = tuple(_PARAMETERS)
CONV_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Clip")
"""Those ONNX Runtime's own kernel of FusedConv knows."""

LARGEST_FLOAT = 3.4028234663852886e38


@dataclass(frozen=True, slots=True)
class Activation:
    """An activation node in words of the fused operators."""

    name: str
    parameters: dict[str, float]
    """Attribute → value; for Clip ``min`` and ``max``."""


def activation_of(matcher: GraphMatcher, node: Node) -> Activation | None:
    """What a node of the above operators does; None if that depends on values that are not constant."""
    if node.op_type != "Clip":
        defaults = _PARAMETERS[node.op_type]
        return Activation(node.op_type, {name: float(node.attributes.get(name, value)) for name, value in defaults.items()})
    # Before opset 11 a bound that is not given is float32's largest number.
    largest = float("inf") if node.since_version >= 11 else LARGEST_FLOAT
    bounds = {}
    for index, (name, unbounded) in enumerate((("min", -largest), ("max", largest)), start=1):
        given = node.inputs[index] if index < len(node.inputs) else ""
        value = matcher.scalar(given, node.inputs[0]) if given else float(node.attributes.get(name, unbounded))
        if value is None:
            return None
        bounds[name] = value
    return Activation("Clip", bounds)
