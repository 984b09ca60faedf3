"""What the host asks of a provider's memory: new arrays, and what one is. Whatever the provider raises names it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ort_sdk.api import Allocator, Array, ExecutionProvider, TensorElementType
from ort_sdk.api.foreign_errors import raise_foreign

__all__ = ["allocated", "bytes_of", "described"]


def allocated(allocator: Allocator, owner: str, shape: Sequence[int], element_type: TensorElementType) -> Array:
    """A new array of a provider's allocator.

    Args:
        allocator: the provider's.
        owner: the provider's name.
        shape: of the array.
        element_type: of its elements.

    Raises:
        OutOfMemory: there is not enough.
        EPFail: the allocator raised something else.
    """
    try:
        return allocator.allocate(tuple(shape), element_type)
    except Exception as error:  # noqa: BLE001 - an allocator may raise anything
        raise_foreign(error, f"while the allocator of {owner} allocated {element_type.name}{list(shape)}")


def described(execution_provider: ExecutionProvider, array: Array) -> tuple[TensorElementType, tuple[int, ...]]:
    """Element type and shape of one of a provider's arrays.

    Raises:
        EPFail: the provider raised something.
    """
    try:
        return execution_provider.describe(array)
    except Exception as error:  # noqa: BLE001 - a provider may raise anything
        raise_foreign(error, f"raised in describe of {execution_provider.name} for an array of type {type(array).__name__}")


def bytes_of(shape: Sequence[int], element_type: TensorElementType) -> int:
    """Bytes of an array's elements, without gaps."""
    return math.prod(shape) * element_type.numpy_dtype.itemsize
