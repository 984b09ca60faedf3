"""What epilogues of GEMM tasks compute."""

from __future__ import annotations

from ort_sdk_cpu.kernel.activation import ActivationKind

__all__ = ["EPILOGUE_KINDS"]

EPILOGUE_KINDS = frozenset(
    {
        ActivationKind.IDENTITY,
        ActivationKind.LEAKY_RELU,
        ActivationKind.SIGMOID,
        ActivationKind.TANH,
        ActivationKind.GELU,
    }
)
"""Activations."""
