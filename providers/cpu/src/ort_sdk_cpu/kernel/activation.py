"""The activation that follows a convolution or a GEMM: one value for compiled tasks, oneDNN's primitives and fusion."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ort_sdk.api.data_classes import dataclass

from .microkernels.activation_codes import ActivationKind

__all__ = ["IDENTITY", "Activation", "ActivationKind", "activation_of"]


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of each element."""

    kind: ActivationKind = ActivationKind.IDENTITY
    alpha: float = 0.0
    """First parameter; see ``ActivationKind``."""
    beta: float = 0.0


IDENTITY = Activation()


def activation_of(name: str, parameters: Sequence[float]) -> Activation | None:
    """The attribute ``activation`` of ONNX Runtime's fused operators; None for one that no epilogue has.

    Args:
        name: the attribute; empty for none.
        parameters: what the node gives for alpha and beta (minimum and maximum for Clip); may be shorter, defaults are ONNX's.
    """
    first, second = (*parameters, None, None)[:2]
    if not name:
        return IDENTITY
    if name in _PLAIN:
        return Activation(_PLAIN[name])
    if name == "LeakyRelu":
        return Activation(ActivationKind.LEAKY_RELU, 0.01 if first is None else first)
    if name == "HardSigmoid":
        return Activation(ActivationKind.HARD_SIGMOID, 0.2 if first is None else first, 0.5 if second is None else second)
    if name == "HardSwish":
        return Activation(ActivationKind.HARD_SWISH, 1 / 6, 0.5)
    if name == "Clip":
        return Activation(ActivationKind.CLIP, -math.inf if first is None else first, math.inf if second is None else second)
    return None


_PLAIN = {"Relu": ActivationKind.LEAKY_RELU, "Sigmoid": ActivationKind.SIGMOID, "Tanh": ActivationKind.TANH}
