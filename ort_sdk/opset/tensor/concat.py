"""Concat and Split."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator

from .common import axis_slice, normalize_axis

__all__ = ["concat", "split", "split_attribute", "split_input_1"]

_MAX_VIEWS = 64
"""Outputs a Split may declare as views of its input; a node with more copies."""

_KEPT_CUTS = 16
"""Sizes of the axis, and lengths, for which a node keeps where it cuts."""

_VIEWS = tuple((0, index) for index in range(_MAX_VIEWS))


@operator("Concat", moves=True)
def concat(info: KernelInfo, xp: Any) -> Compute:
    """The inputs one after another along ``axis``."""
    axis = info.attribute("axis", 1) if info.since_version == 1 else info.attribute("axis")
    function = xp.concat

    def compute(*inputs: Array) -> Array:
        return function(inputs, axis=normalize_axis(info, axis, inputs[0].ndim))

    return compute


def _even_parts(dim: int, count: int) -> list[int]:
    """Equal parts, rounded up, of which the last ones are smaller."""
    part = -(-dim // count)
    return [min(part, max(dim - index * part, 0)) for index in range(count)]


def _splitter(info: KernelInfo, xp: Any, axis: int) -> Callable[[Array, Sequence[int] | None], tuple[Array, ...]]:
    count = len(info.outputs)
    copies = count > _MAX_VIEWS

    @functools.lru_cache(_KEPT_CUTS)
    def indices(along: int, dim: int, lengths: tuple[int, ...] | None) -> list[tuple[slice, ...]]:
        """Of the parts; kept, as all but this takes little time."""
        given = _even_parts(dim, count) if lengths is None else lengths
        if sum(given) != dim or len(given) != count or min(given) < 0:
            raise InvalidArgument(
                f"{info.describe()}: cannot split {dim} elements of axis {along} into {list(given)}; "
                f"give {count} lengths, one per output, that sum up to {dim}"
            )
        ends = itertools.accumulate(given, initial=0)
        return [axis_slice(along, slice(begin, end)) for begin, end in itertools.pairwise(ends)]

    def cut(x: Array, lengths: Sequence[int] | None) -> tuple[Array, ...]:
        along = normalize_axis(info, axis, x.ndim)
        parts = [x[index] for index in indices(along, x.shape[along], None if lengths is None else tuple(lengths))]
        return tuple([xp.asarray(part, copy=True) for part in parts] if copies else parts)

    return cut


@operator("Split", until=1, moves=True, shape_inputs=(1,), host_inputs=(1,), alias=_VIEWS)
def split_input_1(info: KernelInfo, xp: Any) -> Compute:
    """Parts along ``axis``: lengths from the second input, else from the attribute, else equal ones."""
    cut = _splitter(info, xp, info.attribute("axis", 0))
    lengths = info.attribute("split", None)

    def compute(x: Array, split: HostArray | None = None) -> tuple[Array, ...]:
        return cut(x, lengths if split is None else [int(length) for length in split.tolist()])

    return compute


@operator("Split", since=2, until=11, moves=True, alias=_VIEWS)
def split_attribute(info: KernelInfo, xp: Any) -> Compute:
    """Parts along ``axis``: lengths from the attribute, else equal ones."""
    cut = _splitter(info, xp, info.attribute("axis", 0))
    lengths = info.attribute("split", None)
    return lambda x: cut(x, lengths)


@operator("Split", since=13, moves=True, shape_inputs=(1,), host_inputs=(1,), alias=_VIEWS)
def split(info: KernelInfo, xp: Any) -> Compute:
    """Parts along ``axis``: lengths from the second input, else equal ones of which the last may be smaller."""
    cut = _splitter(info, xp, info.attribute("axis", 0))

    def compute(x: Array, split: HostArray | None = None) -> tuple[Array, ...]:
        return cut(x, None if split is None else split.tolist())

    return compute
