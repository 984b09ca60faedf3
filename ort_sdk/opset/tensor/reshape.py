"""Reshape, Flatten, Squeeze and Unsqueeze: new shapes for the same elements."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator

from .common import normalize_axes, normalize_axis

__all__ = ["flatten", "reshape", "reshape_1", "squeeze", "squeeze_1", "unsqueeze", "unsqueeze_1"]

_VIEW = ((0, 0),)
_MOST_KNOWN = 16
"""Shapes that a kernel keeps the outcome of: most inputs have one of a few, and working it out takes longer than the view."""


def _known(shape_of: Callable[[Sequence[int], Any], tuple[int, ...]]) -> Callable[[Sequence[int], Any], tuple[int, ...]]:
    """The same function of (shape, what is asked for), which remembers."""
    return functools.lru_cache(maxsize=_MOST_KNOWN)(shape_of)


def _target_shape(info: KernelInfo, shape: Sequence[int], target: Sequence[int], *, allow_zero: bool) -> tuple[int, ...]:
    """Dimensions a Reshape asks for, with 0 copied from the input (unless allowed) and -1 inferred."""
    dims, total = list(target), math.prod(shape)
    copied = set() if allow_zero else {index for index, dim in enumerate(dims) if dim == 0}
    if any(index >= len(shape) for index in copied):
        raise InvalidArgument(f"{info.describe()}: shape {dims} copies a dimension that the input {tuple(shape)} lacks")
    if -1 in dims:
        # What is copied counts on neither side, so that -1 is known where it is empty, too.
        unknown = dims.index(-1)
        left = math.prod(dim for index, dim in enumerate(shape) if index not in copied)
        known = math.prod(dim for index, dim in enumerate(dims) if index not in copied and index != unknown)
        dims[unknown] = left // known if known > 0 and left % known == 0 else -1
    dims = [shape[index] if index in copied else dim for index, dim in enumerate(dims)]
    if min(dims, default=0) < 0 or math.prod(dims) != total:
        raise InvalidArgument(
            f"{info.describe()}: cannot reshape {tuple(shape)} ({total} elements) to {list(target)}; "
            "the number of elements must stay the same, and at most one dimension may be -1"
        )
    return tuple(dims)


@operator("Reshape", until=1, moves=True, alias=_VIEW)
def reshape_1(info: KernelInfo, xp: Any) -> Compute:
    """The input in the shape of the ``shape`` attribute."""
    target = info.attribute("shape", ())
    return lambda data: xp.reshape(data, _target_shape(info, data.shape, target, allow_zero=False))


@operator("Reshape", since=5, moves=True, alias=_VIEW, shape_inputs=(1,), host_inputs=(1,))
def reshape(info: KernelInfo, xp: Any) -> Compute:
    """The input in the shape of the second input: 0 copies a dimension unless ``allowzero``, -1 is inferred."""
    allow_zero = bool(info.attribute("allowzero", 0))
    function, target = xp.reshape, _known(functools.partial(_target_shape, info, allow_zero=allow_zero))

    def compute(data: Array, shape: HostArray) -> Array:
        return function(data, target(data.shape, tuple(shape.tolist())))

    return compute


@operator("Flatten", moves=True, alias=_VIEW)
def flatten(info: KernelInfo, xp: Any) -> Compute:
    """The input as a matrix: the dimensions before ``axis``, and those from it on."""
    axis = info.attribute("axis", 1)

    def compute(x: Array) -> Array:
        split = x.ndim if axis == x.ndim else normalize_axis(info, axis, x.ndim)
        return xp.reshape(x, (math.prod(x.shape[:split]), math.prod(x.shape[split:])))

    return compute


def _squeezed(info: KernelInfo, shape: Sequence[int], axes: Sequence[int] | None) -> tuple[int, ...]:
    if not axes:
        return tuple(dim for dim in shape if dim != 1)
    dropped = normalize_axes(info, axes, len(shape))
    if any(shape[axis] != 1 for axis in dropped):
        raise InvalidArgument(f"{info.describe()}: axes {dropped} of {tuple(shape)} are not all of size 1; squeeze others")
    return tuple(dim for axis, dim in enumerate(shape) if axis not in dropped)


def _unsqueezed(info: KernelInfo, shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    rank = len(shape) + len(axes)
    inserted = set(normalize_axes(info, axes, rank))
    dims = iter(shape)
    return tuple(1 if axis in inserted else next(dims) for axis in range(rank))


@operator("Squeeze", until=11, moves=True, alias=_VIEW)
def squeeze_1(info: KernelInfo, xp: Any) -> Compute:
    """The input without the axes of size 1 that the ``axes`` attribute names, or without any of them."""
    axes = info.attribute("axes", None)
    return lambda data: xp.reshape(data, _squeezed(info, data.shape, axes))


@operator("Squeeze", since=13, moves=True, alias=_VIEW, shape_inputs=(1,), host_inputs=(1,))
def squeeze(info: KernelInfo, xp: Any) -> Compute:
    """The input without the axes of size 1 that the second input names, or without any of them."""
    function, target = xp.reshape, _known(functools.partial(_squeezed, info))

    def compute(data: Array, axes: HostArray | None = None) -> Array:
        return function(data, target(data.shape, None if axes is None else tuple(axes.reshape(-1).tolist())))

    return compute


@operator("Unsqueeze", until=11, moves=True, alias=_VIEW)
def unsqueeze_1(info: KernelInfo, xp: Any) -> Compute:
    """The input with axes of size 1 where the ``axes`` attribute says they are in the output."""
    axes = info.attribute("axes")
    return lambda data: xp.reshape(data, _unsqueezed(info, data.shape, axes))


@operator("Unsqueeze", since=13, moves=True, alias=_VIEW, shape_inputs=(1,), host_inputs=(1,))
def unsqueeze(info: KernelInfo, xp: Any) -> Compute:
    """The input with axes of size 1 where the second input says they are in the output."""
    function, target = xp.reshape, _known(functools.partial(_unsqueezed, info))

    def compute(data: Array, axes: HostArray) -> Array:
        return function(data, target(data.shape, tuple(axes.reshape(-1).tolist())))

    return compute
