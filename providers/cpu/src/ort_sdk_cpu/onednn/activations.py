"""Activations of ONNX Runtime's fused operators as oneDNN's post-ops."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ort_sdk_cpu.kernel.post_ops import Eltwise

from .constants import Algorithm

__all__ = ["eltwise_of"]


def eltwise_of(name: str, parameters: Sequence[float]) -> Eltwise | None:
    """The post-op for the attribute ``activation`` of a fused operator; None if oneDNN has none that agrees with it.

    Args:
        name: the attribute.
        parameters: what the node gives for alpha and beta (minimum and maximum for Clip); may be shorter.
    """
    first, second = (*parameters, None, None)[:2]
    if name == "Relu":
        return Eltwise(Algorithm.RELU)
    if name == "Tanh":
        return Eltwise(Algorithm.TANH)
    if name == "Sigmoid":
        return Eltwise(Algorithm.LOGISTIC)
    if name == "LeakyRelu":
        return Eltwise(Algorithm.RELU, 0.01 if first is None else first)
    if name == "HardSigmoid":
        return Eltwise(Algorithm.HARD_SIGMOID, 0.2 if first is None else first, 0.5 if second is None else second)
    if name == "HardSwish":
        return Eltwise(Algorithm.HARD_SWISH, 1 / 6, 0.5)
    if name == "Clip":
        return Eltwise(Algorithm.CLIP_V2, -math.inf if first is None else first, math.inf if second is None else second)
    return None
