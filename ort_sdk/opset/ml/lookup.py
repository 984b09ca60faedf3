"""Tables from keys to positions: sorted arrays for numbers, a dictionary for strings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray

__all__ = ["as_vector", "element_mapper", "integer_table", "position_finder"]

FEW_ENTRIES, ENTRIES_PER_KEY = 1 << 10, 8
"""Up to so many, and so many for each key, a table has one entry for each integer between the least and the largest key."""


def as_vector(values: Any) -> HostArray:
    """A list of strings as an object vector, one of numbers as int64 or float32."""
    if values and isinstance(values[0], str):
        vector = np.empty(len(values), dtype=object)
        vector[:] = values
        return vector
    kind = np.float32 if any(isinstance(value, float) for value in values) else np.int64
    return np.asarray(values, dtype=kind)


def position_finder(keys: HostArray) -> Callable[[HostArray], HostArray]:
    """Function that gives the position in ``keys`` of each element of an array (intp, same shape), -1 if it has none.

    Not-a-number keys match any not-a-number. A repeated key has its first position.

    Args:
        keys: vector of numbers or strings.
    """
    if keys.dtype == object:
        return _string_finder(keys)
    found = integer_table(keys)
    if found is not None:
        return _integer_finder(*found)
    positions = np.arange(keys.size, dtype=np.intp)
    table, first = np.unique(keys, return_index=True)
    table_positions = positions[first]
    has_nan = bool(table.size) and bool(np.isnan(table[-1])) if table.dtype.kind == "f" else False

    def find(values: HostArray) -> HostArray:
        if not table.size:
            return np.full(values.shape, -1, dtype=np.intp)
        index = np.minimum(np.searchsorted(table, values), table.size - 1)
        found = table[index] == values
        if has_nan:
            found |= np.isnan(values) & (index == table.size - 1)
        return np.where(found, table_positions[index], -1)

    return find


def integer_table(keys: HostArray) -> tuple[np.int64, HostArray] | None:
    """The least of integer keys, and the position of each integer from there to the largest, -1 where it is no key.

    One entry more, the last, is -1. None for keys of another kind, for none, and for some that span too wide a range.
    """
    if keys.dtype.kind != "i" or not keys.size:
        return None
    least, count = int(keys.min()), int(keys.max()) - int(keys.min()) + 1
    if count > ENTRIES_PER_KEY * keys.size + FEW_ENTRIES:
        return None
    table = np.full(count + 1, -1, dtype=np.intp)
    # The first of equal keys is written last.
    table[(keys.astype(np.int64) - least)[::-1]] = np.arange(keys.size, dtype=np.intp)[::-1]
    return np.int64(least), table


def _integer_finder(least: np.int64, table: HostArray) -> Callable[[HostArray], HostArray]:
    count = table.size - 1

    def find(values: HostArray) -> HostArray:
        # What is less than the least key wraps around to a large number without a sign.
        indices = np.subtract(values.reshape(-1), least, dtype=np.int64).view(np.uint64)
        found: HostArray = table.take(np.minimum(indices, np.uint64(count)).view(np.int64))
        return found.reshape(values.shape)

    return find


def _string_finder(keys: HostArray) -> Callable[[HostArray], HostArray]:
    return element_mapper(keys.tolist(), range(keys.size), -1, np.dtype(np.intp))


class _Defaulting(dict[Any, Any]):
    """A dictionary that gives a default, and does not enter it."""

    __slots__ = ("default",)
    default: Any

    def __missing__(self, _key: Any) -> Any:
        return self.default


def element_mapper(
    keys: Sequence[Any], values: Sequence[Any], default: Any, dtype: np.dtype[Any]
) -> Callable[[HostArray], HostArray]:
    """Function that gives the value of each element of an array (same shape), or a default. The first of equal keys counts.

    Args:
        keys: strings, or numbers, all of them comparable.
        values: one for each.
        default: for elements that are no keys.
        dtype: of the values.
    """
    # The first of equal keys is entered last.
    table = _Defaulting(zip(reversed(keys), reversed(values), strict=True))
    table.default = default
    get = table.__getitem__

    def find(elements: HostArray) -> HostArray:
        found = map(get, elements.ravel().tolist())
        return np.fromiter(found, dtype=dtype, count=elements.size).reshape(elements.shape)

    return find
