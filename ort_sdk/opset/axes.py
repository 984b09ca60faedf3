"""Axes: negative ones counted from the back, and the range check every operator with axes needs."""

from __future__ import annotations

from collections.abc import Iterable

from ort_sdk.api import InvalidArgument, KernelInfo

__all__ = ["normalized_axes", "normalized_axis"]


def normalized_axis(axis: int, rank: int, info: KernelInfo) -> int:
    """The axis counted from the front.

    Raises:
        InvalidArgument: outside [-rank, rank-1].
    """
    if not -rank <= axis < rank:
        raise InvalidArgument(f"{info.describe()}: axis {axis} is outside [{-rank}, {rank - 1}] of an input of rank {rank}")
    return axis + rank if axis < 0 else axis


def normalized_axes(axes: Iterable[int], rank: int, info: KernelInfo) -> tuple[int, ...]:
    """The axes counted from the front, without repetitions, in ascending order.

    Raises:
        InvalidArgument: one is outside [-rank, rank-1].
    """
    return tuple(sorted({normalized_axis(int(axis), rank, info) for axis in axes}))
