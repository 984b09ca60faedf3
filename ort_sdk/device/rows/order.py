"""The order of sorted elements: ascending or descending, NaN last, and equal ones by their positions."""

from __future__ import annotations

from ort_sdk.api import TensorElementType
from ort_sdk.device.element_types import STORAGE
from ort_sdk.device.launches import KernelSource

__all__ = ["ordered_kernel"]

_BEFORE = "(((a) {0} (b)) | (((a) == (a)) & ((b) != (b))))"
"""Without branches, which nobody could predict."""


def ordered_kernel(name: str, text: str, element_type: TensorElementType, *, descending: bool, **defines: int) -> KernelSource:
    """A kernel that compares elements with ``BEFORE(a, b)``, in whose text ``T`` is their type."""
    before = _BEFORE.format(">" if descending else "<")
    return KernelSource(name, text, (("T", STORAGE[element_type]), ("BEFORE(a, b)", before), *defines.items()))
