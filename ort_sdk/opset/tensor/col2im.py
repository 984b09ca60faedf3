"""Col2Im."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator
from ort_sdk.opset.sizes import item_bytes, require_size

__all__ = ["col2im"]


@operator("Col2Im", shape_inputs=(1, 2), host_inputs=(1, 2))
def col2im(info: KernelInfo, xp: Any) -> Compute:
    """(N, C, *image_shape): columns (N, C · block elements, blocks) summed where their blocks overlap in the image."""

    def compute(columns: Array, image_shape: HostArray, block_shape: HostArray) -> Array:
        image, block = image_shape.tolist(), block_shape.tolist()
        rank = len(image)
        strides = info.attribute("strides", [1] * rank)
        dilations = info.attribute("dilations", [1] * rank)
        pads = info.attribute("pads", [0] * 2 * rank)
        _check(info, image, block, (strides, dilations, pads))
        padded = [size + pads[axis] + pads[axis + rank] for axis, size in enumerate(image)]
        counts = [
            (size - dilation * (taps - 1) - 1) // stride + 1
            for size, taps, dilation, stride in zip(padded, block, dilations, strides, strict=True)
        ]
        if columns.ndim != 3 or min(counts, default=1) < 0:
            raise InvalidArgument(
                f"{info.describe()}: columns {columns.shape} must be (N, rows, blocks), and blocks {block} fit into {padded}"
            )
        batch, depth, blocks = columns.shape
        if depth % math.prod(block) or blocks != math.prod(counts):
            raise InvalidArgument(
                f"{info.describe()}: columns {columns.shape} do not fit blocks {block} of an image {image}; expected a multiple "
                f"of {math.prod(block)} rows and {math.prod(counts)} blocks"
            )
        channels = depth // math.prod(block)
        parts = xp.reshape(columns, (batch, channels, *block, *counts))
        shape = require_size(info.describe(), (batch, channels, *padded), item_bytes(columns.dtype))
        total = xp.zeros(shape, dtype=columns.dtype)
        for tap in itertools.product(*map(range, block)):
            window = (
                ...,
                *(
                    slice(index * dilation, index * dilation + (count - 1) * stride + 1, stride)
                    for index, dilation, count, stride in zip(tap, dilations, counts, strides, strict=True)
                ),
            )
            total[window] = total[window] + parts[(slice(None), slice(None), *tap, ...)]
        return total[(..., *(slice(pads[axis], pads[axis] + size) for axis, size in enumerate(image)))]

    return compute


def _check(info: KernelInfo, image: Sequence[int], block: Sequence[int], attributes: tuple[Sequence[int], ...]) -> None:
    strides, dilations, pads = attributes
    rank = len(image)
    if min((*image, *block), default=0) < 1 or {rank} != {len(block), len(strides), len(dilations), len(pads) / 2}:
        raise InvalidArgument(
            f"{info.describe()}: image {list(image)}, block {list(block)}, strides {list(strides)}, dilations {list(dilations)}"
            f" and pads {list(pads)} must hold one size greater than 0 for each axis, pads two"
        )
