"""What a plan's runner and its programs have in common: signatures, what they need of providers, rows of a listing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ort_sdk.api import Allocator, Array, ExecutionProvider, OrtDevice
from ort_sdk.api.data_classes import dataclass

__all__ = ["SECONDS_BEFORE_COMPILING", "BindingProvider", "ProgramRow", "signature_of"]


SECONDS_BEFORE_COMPILING = 0.05
"""Time a program, or all runs without one, take before providers may compile for them, about what that takes: a process that
ends soon never pays for it, any other at most twice the optimum (the ski-rental rule)."""


@dataclass(frozen=True, slots=True)
class BindingProvider:
    """What binding needs of a provider."""

    execution_provider: ExecutionProvider
    allocator: Allocator
    device: OrtDevice


@dataclass(frozen=True, slots=True)
class ProgramRow:
    """One program, for listings."""

    signature: tuple[tuple[tuple[int, ...] | int, Any] | type[list[Any]] | None, ...]
    """(shape, dtype) of each feed; ``list`` for a sequence, and None for one left at its default. A rank instead of a shape is
    that of a feed that may have any shape."""
    operators: tuple[str, ...]
    """Operators still run, in order: the others follow from the signature."""
    bound_count: int
    """How many of them run on buffers of their own."""
    fused: tuple[tuple[str, ...], ...]
    """Operators of each step that does the work of several."""
    layout_copies: int
    """Values copied into another layout in each run."""
    kept_bytes: int
    """Bytes of folded values."""
    algorithms: Mapping[str, str | None]
    """Node → name of the algorithm that its kernel, or the one it is fused into, computes with; None where the kernel names none.
    Without the nodes whose results follow from the signature."""
    device_bytes: int = 0
    """Bytes of the blocks on devices that its buffers are in; other programs of the session share them."""


def signature_of(feeds: Sequence[Array]) -> tuple[Any, ...] | None:
    """Shapes and types of the feeds; of a sequence nothing but that it is one. None if a feed is neither."""
    try:
        return tuple([None if value is None else list if type(value) is list else (value.shape, value.dtype) for value in feeds])
    except AttributeError:
        return None
