"""Activations as oneDNN's post-ops."""

from __future__ import annotations

from ort_sdk_cpu.onednn.constants import Algorithm
from ort_sdk_cpu.onednn.post_ops import Eltwise

from .activation import Activation, ActivationKind

__all__ = ["eltwise_of"]

_ALGORITHMS = {
    ActivationKind.CLIP: Algorithm.CLIP_V2,
    ActivationKind.LEAKY_RELU: Algorithm.RELU,
    ActivationKind.SWISH: Algorithm.SWISH,
    ActivationKind.HARD_SWISH: Algorithm.HARD_SWISH,
    ActivationKind.SIGMOID: Algorithm.LOGISTIC,
    ActivationKind.TANH: Algorithm.TANH,
    ActivationKind.HARD_SIGMOID: Algorithm.HARD_SIGMOID,
    ActivationKind.LINEAR: Algorithm.LINEAR,
}
"""Gelu is left out: oneDNN's has more than twice the error of the compiled one."""


def eltwise_of(activation: Activation) -> Eltwise:
    """The post-op that computes an activation.

    Args:
        activation: not ``IDENTITY``, for which there is no post-op, and not ``GELU``.
    """
    return Eltwise(_ALGORITHMS[activation.kind], activation.alpha, activation.beta)
