"""What a plan's runner and its programs have in common: signatures, what they need of providers, rows of a listing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ort_sdk.api import Allocator, Array, ExecutionProvider, OrtDevice
from ort_sdk.api.data_classes import dataclass
from ort_sdk.memory import DataTransferManager

__all__ = ["SECONDS_BEFORE_COMPILING", "BindingProvider", "FixedSignature", "ProgramRow", "Targets", "signature_of"]


SECONDS_BEFORE_COMPILING = 0.05
"""Time a program, or all runs without one, take before providers may compile for them, about what that takes: a process that
ends soon never pays for it, any other at most twice the optimum (the ski-rental rule)."""


@dataclass(frozen=True, slots=True)
class BindingProvider:
    """What binding needs of a provider."""

    execution_provider: ExecutionProvider
    allocator: Allocator
    device: OrtDevice
    transfers: DataTransferManager | None = None
    """The session's; None if nothing is ever copied."""

    @property
    def joins_calls(self) -> bool:
        """Whether calls that follow each other may become one: as many as there are on arrays that stay."""
        return type(self.execution_provider).join_calls is not ExecutionProvider.join_calls

    @property
    def copies_user_values(self) -> bool:
        """Whether values of the user on the device are copied to arrays that stay, and from them, so that calls can be joined."""
        return self.joins_calls and self.transfers is not None and self.transfers.can_copy_into(self.device, self.device)

    @property
    def makes_views(self) -> bool:
        """Whether arrays of a device get other shapes without a kernel."""
        return not self.device.is_cpu and type(self.execution_provider).reshaped is not ExecutionProvider.reshaped

    @property
    def makes_ranges(self) -> bool:
        """Whether rows of arrays of a device are arrays without a kernel."""
        return not self.device.is_cpu and type(self.execution_provider).outer_range is not ExecutionProvider.outer_range


class Targets:
    """Arrays on devices that a caller wants results in, the same ones in many runs.

    Args:
        arrays: for each fetch, an array of its device; None where there is none.
    """

    __slots__ = ("_fitting", "arrays")

    def __init__(self, arrays: Sequence[Array | None]) -> None:
        self.arrays = arrays
        self._fitting: tuple[object, Sequence[Array | None]] = (None, ())

    def fitting(self, key: object, shapes: Sequence[tuple[Any, Any] | None]) -> Sequence[Array | None]:
        """Those of the wanted shapes and types, None in place of others; compared once.

        Args:
            key: stands for the shapes.
            shapes: for each fetch, shape and dtype; None where no array is wanted.
        """
        known, fitting = self._fitting
        if known is not key:
            pairs = zip(self.arrays, shapes, strict=True)
            fitting = [
                None if array is None or wanted is None or (array.shape, array.dtype) != wanted else array
                for array, wanted in pairs
            ]
            self._fitting = (key, fitting)
        return fitting


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


class FixedSignature(tuple[Any, ...]):  # noqa: SLOT001 - a tuple with slots of its own cannot be
    """A signature that many runs look up: its hash is computed once."""

    _hash: int | None = None

    def __hash__(self) -> int:
        found = self._hash
        if found is None:
            found = self._hash = super().__hash__()
        return found


def signature_of(feeds: Sequence[Array]) -> tuple[Any, ...] | None:
    """Shapes and types of the feeds; of a sequence nothing but that it is one. None if a feed is neither."""
    try:
        return tuple([None if value is None else list if type(value) is list else (value.shape, value.dtype) for value in feeds])
    except AttributeError:
        return None
