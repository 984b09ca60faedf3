"""Lists of numbers that remember the array they were made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from .memory import HostArray

__all__ = ["NumberList", "array_of"]


class NumberList(list[Any]):
    """An attribute with many numbers: a list for who reads it as one, and its array for who would make one of it again.

    Nobody changes attributes, so both stay the same.

    Args:
        array: int64 or float32, one dimension.
    """

    def __init__(self, array: HostArray) -> None:
        super().__init__(array.tolist())
        self.array = array
        array.flags.writeable = False


def array_of(numbers: list[Any] | tuple[Any, ...]) -> HostArray:
    """The numbers of an attribute as a vector, float32 if one of them is a float, else int64."""
    if isinstance(numbers, NumberList):
        return numbers.array
    array = np.asarray(numbers)
    return array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
