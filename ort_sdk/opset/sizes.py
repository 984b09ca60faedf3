"""Sizes that feeds and attributes decide, checked in Python's integers before a library computes with them in 64 bits."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, InvalidArgument

__all__ = ["MOST_BYTES", "item_bytes", "repeated", "require_size", "tiled"]

MOST_BYTES = sys.maxsize
"""Bytes of the largest array there can be: libraries count them in signed words."""
_WIDEST = 16
"""Bytes of the largest element there is, used for libraries whose dtypes have no size."""


def require_size(where: str, shape: Iterable[int], bytes_per_element: int) -> tuple[int, ...]:
    """A shape that an array can have.

    Libraries multiply sizes without those that are 0, so none of these may overflow either.

    Args:
        where: names the node in errors.
        shape: sizes, in Python's integers.
        bytes_per_element: of the array.

    Returns:
        The shape.

    Raises:
        InvalidArgument: a size is negative, or together they are more than can be addressed.
    """
    sizes = tuple(shape)
    if min(sizes, default=0) < 0:
        raise InvalidArgument(f"{where}: a tensor of shape {list(sizes)} was asked for; sizes must not be negative")
    total = math.prod(size for size in sizes if size) * bytes_per_element
    if total > MOST_BYTES:
        raise InvalidArgument(
            f"{where}: a tensor of shape {list(sizes)} would take {total} bytes, and at most {MOST_BYTES} can be addressed;"
            " ask for fewer elements"
        )
    return sizes


def repeated(array: HostArray, counts: HostArray | int, axis: int | None = None) -> HostArray:
    """``np.repeat``, which writes over the end of its result where the counts' sum does not fit into 64 bits.

    Raises:
        InvalidArgument: a count is negative, or no array can be that large.
    """
    along = array.size if axis is None else array.shape[axis]
    others = 1 if axis is None or not along else array.size // along
    each = [counts] if isinstance(counts, int) else np.asarray(counts).reshape(-1).tolist()
    if min(each, default=0) < 0:
        raise InvalidArgument(f"elements cannot be repeated {min(each)} times; counts must not be negative")
    require_size("repeated elements", (sum(each) * (along if len(each) == 1 else 1), others), array.itemsize)
    return np.repeat(array, counts, axis=axis)  # noqa: TID251 - checked above


def tiled(array: HostArray, counts: tuple[int, ...]) -> HostArray:
    """``np.tile`` with a count for each axis; see ``repeated``.

    Raises:
        InvalidArgument: a count is negative, or no array can be that large.
    """
    shape = require_size(
        "repeated elements", (size * count for size, count in zip(array.shape, counts, strict=True)), array.itemsize
    )
    # Without elements, what is repeated on the way may still be larger than memory.
    return np.zeros(shape, dtype=array.dtype) if 0 in shape else np.tile(array, counts)  # noqa: TID251 - checked above


def item_bytes(dtype: Any) -> int:
    """Bytes of an element of a library's dtype; the most there are if it has no size."""
    size = getattr(dtype, "itemsize", _WIDEST)
    return size if isinstance(size, int) and size > 0 else _WIDEST
