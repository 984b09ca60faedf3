"""The activations that compiled epilogues know, by the codes their tasks read.

The file is among the sources whose hash names compiled kernels: another code for an activation is another kernel.
"""

from __future__ import annotations

import enum

__all__ = ["ActivationKind"]


class ActivationKind(enum.IntEnum):
    """A function of each element ``x``, with up to two parameters, ``alpha`` and ``beta``.

    No task knows all of them: the launching side of a task says which. ``IDENTITY`` and ``CLIP`` come first, as GEMM-like
    micro-kernels apply bounds to their accumulators for nothing, and tell both from all others by ``code <= CLIP``.
    """

    IDENTITY = 0
    CLIP = 1
    """``min(beta, max(alpha, x))``."""
    LEAKY_RELU = 2
    """``x`` where it is positive, else ``alpha * x``; ReLU for ``alpha`` of 0."""
    SWISH = 3
    """``x * sigmoid(alpha * x)``; SiLU for ``alpha`` of 1."""
    HARD_SWISH = 4
    """``x * min(1, max(0, alpha * x + beta))``."""
    SIGMOID = 5
    TANH = 6
    HARD_SIGMOID = 7
    """``min(1, max(0, alpha * x + beta))``."""
    GELU = 8
    """``x * Phi(x)``, by the error function."""
    LINEAR = 9
    """``alpha * x + beta``."""
