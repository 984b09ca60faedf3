"""MaxUnpool: elements put back where MaxPool found them."""

from __future__ import annotations

import math
from typing import Any

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator
from ort_sdk.opset.sizes import item_bytes, require_size

from .windows import WindowAttributes

__all__ = ["max_unpool"]


@operator("MaxUnpool", shape_inputs=(2,), host_inputs=(2,))
def max_unpool(info: KernelInfo, xp: Any) -> Compute:
    """Zeros, but for the elements of X at the positions of I.

    I holds positions in the flattened tensor that the attributes imply; ``output_shape`` may then ask for a larger tensor,
    in which the implied one fills the leading corner.
    """
    attributes = WindowAttributes.of(info)

    def compute(x: Array, indices: Array, output_shape: HostArray | None = None) -> Array:
        implied = _implied_shape(attributes, tuple(x.shape))
        target = implied if output_shape is None else tuple(int(size) for size in output_shape)
        _check(info, tuple(x.shape), tuple(indices.shape), implied, target)
        require_size(info.describe(), target, item_bytes(x.dtype))
        size = math.prod(require_size(info.describe(), implied, item_bytes(x.dtype)))
        flat = xp.scatter_flat(size, xp.reshape(indices, (-1,)), xp.reshape(x, (-1,)))
        result = xp.reshape(flat, implied)
        if target == implied:
            return result
        larger = xp.zeros(target, dtype=x.dtype)
        larger[tuple(slice(0, extent) for extent in implied)] = result
        return larger

    return compute


def _implied_shape(attributes: WindowAttributes, shape: tuple[int, ...]) -> tuple[int, ...]:
    rank = len(shape) - 2
    kernel, strides = attributes.kernel(rank, None), attributes.per_axis("strides", rank, 1)
    begins, ends = attributes.explicit_pads(rank)
    spatial = tuple(
        (size - 1) * stride + taps - begin - end
        for size, stride, taps, begin, end in zip(shape[2:], strides, kernel, begins, ends, strict=True)
    )
    return (*shape[:2], *spatial)


def _check(
    info: KernelInfo, x: tuple[int, ...], indices: tuple[int, ...], implied: tuple[int, ...], target: tuple[int, ...]
) -> None:
    too_small = len(target) != len(implied) or any(size < least for size, least in zip(target, implied, strict=True))
    if x != indices or too_small:
        raise InvalidArgument(
            f"{info.describe()}: X has shape {list(x)}, I {list(indices)}, and output_shape is {list(target)}; X and I must"
            f" have the same shape, and output_shape must be at least {list(implied)}"
        )
