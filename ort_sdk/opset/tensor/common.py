"""What several tensor operators share: axes, fills, host shapes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import Array, HostArray, InvalidArgument, KernelInfo

__all__ = ["axis_slice", "fill_array", "is_text", "normalize_axes", "normalize_axis", "zero_of"]


def normalize_axis(info: KernelInfo, axis: int, rank: int) -> int:
    """An axis counted from the front.

    Raises:
        InvalidArgument: it is outside ``[-rank, rank - 1]``.
    """
    if -rank <= axis < rank:
        return axis + rank if axis < 0 else axis
    raise InvalidArgument(f"{info.describe()}: axis {axis} is outside [{-rank}, {rank - 1}], the axes of rank {rank}")


def normalize_axes(info: KernelInfo, axes: Iterable[int], rank: int) -> list[int]:
    """Axes counted from the front, in the order given.

    Raises:
        InvalidArgument: one is outside ``[-rank, rank - 1]``, or appears twice.
    """
    result = [normalize_axis(info, axis, rank) for axis in axes]
    if len(result) > 1 and len(set(result)) != len(result):
        raise InvalidArgument(f"{info.describe()}: axes {result} name an axis twice; give each axis once")
    return result


def axis_slice(axis: int, part: slice) -> tuple[Any, ...]:
    """Index that takes ``part`` of one axis and all of the others."""
    return (*(slice(None),) * axis, part, ...)


def is_text(dtype: Any) -> bool:
    """Whether a dtype is that of strings: NumPy's ``object``."""
    return isinstance(dtype, np.dtype) and dtype.kind == "O"


def zero_of(xp: Any, dtype: Any) -> Array:
    """0-d array of a dtype's zero: 0, False, or the empty string."""
    return np.asarray("", dtype=object) if is_text(dtype) else xp.zeros((), dtype=dtype)


def fill_array(xp: Any, shape: Sequence[int], value: HostArray | None, dtype: Any) -> Array:
    """New writable array filled with one host value; zero, False or "" if there is none."""
    if value is None:
        return np.full(tuple(shape), "", dtype=object) if is_text(dtype) else xp.zeros(tuple(shape), dtype=dtype)
    if xp.is_host:
        return np.full(tuple(shape), np.reshape(value, ()), dtype=dtype)
    return xp.full(tuple(shape), np.reshape(value, ()).item(), dtype=dtype)
