"""Copies between arrays that stay: as calls of the C library, which steps before and behind can be joined with."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.addresses import address_of
from ort_sdk_cpu.native_call import NO_BITS, NativeCall, Row

__all__ = ["CopyWriter"]

Pairs = Sequence[tuple[HostArray, HostArray]]
"""(target, source), of one shape and type, in the order in which they are copied; no two overlap."""

MAX_ROWS = 160
"""Pieces up to which as many calls cost less than a step of its own; each takes some nanoseconds."""


class CopyWriter:
    """A writer that copies.

    Args:
        pairs: from the inputs and outputs, what is copied where.
    """

    def __init__(self, pairs: Callable[..., Pairs]) -> None:
        self._pairs = pairs

    def __call__(self, *arrays: Any) -> None:
        """Write the output."""
        for target, source in self._pairs(*arrays):
            target[...] = source

    def fixed(self, *arrays: Any) -> Callable[[], Any]:
        """The call on arrays that stay the same."""
        pairs = self._pairs(*arrays)

        def copy() -> None:
            for target, source in pairs:
                target[...] = source

        rows = _rows(pairs)
        if rows is not None:
            copy.native = NativeCall(rows)  # type: ignore[attr-defined]
        return copy


def _rows(pairs: Pairs) -> tuple[Row, ...] | None:
    rows: list[Row] = []
    for target, source in pairs:
        axis = _first_joint_axis(target, source)
        if len(rows) + math.prod(target.shape[:axis]) > MAX_ROWS:
            return None
        rows += _pieces(target, source, axis)
    return tuple(rows)


def _first_joint_axis(target: HostArray, source: HostArray) -> int:
    """The axis from which on elements lie without gaps in both, in the same order."""
    axis, span = target.ndim, target.itemsize
    while axis:
        size = target.shape[axis - 1]
        if size > 1 and not target.strides[axis - 1] == source.strides[axis - 1] == span:
            break
        axis, span = axis - 1, span * size
    return axis


def _pieces(target: HostArray, source: HostArray, axis: int) -> Iterator[Row]:
    size = math.prod(target.shape[axis:]) * target.itemsize
    to, from_ = address_of(target), address_of(source)
    for place in np.ndindex(*target.shape[:axis]):
        distances = (sum(map(int.__mul__, place, array.strides)) for array in (target, source))
        yield (_memmove(), to + next(distances), from_ + next(distances), size, 0, NO_BITS)


@functools.cache
def _memmove() -> int:
    return ctypes.cast(ctypes.CDLL(None).memmove, ctypes.c_void_p).value or 0
