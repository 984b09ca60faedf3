"""What is kept of a device's array that a traced run made, once nothing reads it: all that making a program needs."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import ExecutionProvider, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.memory.provider_memory import described

__all__ = ["DeviceOutline", "described_value"]


@dataclass(frozen=True, slots=True)
class DeviceOutline:
    """Stands for an array of a device. It takes no memory there."""

    shape: tuple[int, ...]
    element_type: TensorElementType
    dtype: Any
    """As the array had it."""
    nbytes: int
    shares: frozenset[int]
    """Values that it may share memory with, of those that were there before: as its provider saw, or its kernel declares."""


def described_value(execution_provider: ExecutionProvider, value: Any) -> tuple[TensorElementType, tuple[int, ...]]:
    """Element type and shape of a provider's array, or of one that has an outline.

    Raises:
        EPFail: the provider raised something.
    """
    if isinstance(value, DeviceOutline):
        return value.element_type, value.shape
    return described(execution_provider, value)
