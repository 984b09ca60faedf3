"""Operands of a GEMM on arrays."""

from __future__ import annotations

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.kernel.activation import IDENTITY, Activation

__all__ = ["GemmOperands"]


@dataclass(frozen=True, slots=True)
class GemmOperands:
    """``activation(alpha * A B + beta * addend)``.

    Arrays have two dimensions or more; those before the last two broadcast as NumPy's do.
    """

    a: HostArray
    b: HostArray
    out: HostArray
    addend: HostArray | None = None
    """A row, or as large as the output of two dimensions."""
    alpha: float = 1.0
    beta: float = 1.0
    activation: Activation = IDENTITY
