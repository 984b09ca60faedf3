"""What a primitive does to its result: oneDNN's post-ops as values, which need the library for an operand's layout only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ort_sdk.api.data_classes import dataclass

from .constants import Algorithm

if TYPE_CHECKING:
    from .memory_descriptor import AnyDescription

__all__ = ["Binary", "Eltwise", "PostOp", "Sum"]


@dataclass(frozen=True, slots=True)
class Eltwise:
    """Applies a function to each element."""

    algorithm: Algorithm
    alpha: float = 0.0
    beta: float = 0.0


@dataclass(frozen=True, slots=True)
class Sum:
    """Adds what was in the destination before, times a scale."""

    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Binary:
    """Combines the result with a second operand, given at execution as ``binary_post_op(position)``."""

    algorithm: Algorithm
    operand: AnyDescription
    """As many axes as the result; sizes equal or 1."""


PostOp = Eltwise | Sum | Binary
