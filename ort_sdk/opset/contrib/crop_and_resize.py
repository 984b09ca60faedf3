"""CropAndResize."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator
from ort_sdk.opset.input_shapes import InputShapes

__all__ = ["crop_and_resize"]


def _region_shapes(_info: KernelInfo, shapes: InputShapes) -> None:
    """Images, regions, the image that each region is of, and the size of the results."""
    shapes.match(0, "X", ("images", "channels", "height", "width"))
    shapes.match(1, "rois", ("regions", 4))
    shapes.match(2, "batch_indices", ("regions",))
    shapes.match(3, "crop_size", (2,))


@operator(
    "CropAndResize",
    domain="com.microsoft",
    host_inputs=(1, 2, 3),
    shape_inputs=(3,),
    shapes=_region_shapes,
)
def crop_and_resize(info: KernelInfo, xp: Any) -> Compute:
    """Boxes (y1, x1, y2, x2), in parts of the image, cut from NCHW data and resized with aligned corners."""
    mode = info.attribute("mode", "bilinear")
    outside = float(info.attribute("extrapolation_value", 0.0))
    if mode not in {"bilinear", "nearest"}:
        raise InvalidArgument(f"{info.describe()}: mode is '{mode}'; it must be 'bilinear' or 'nearest'")

    def compute(x: Array, rois: HostArray, batch_indices: HostArray, crop_size: HostArray) -> Array:
        height, width = (int(size) for size in crop_size)
        channels = x.shape[1]
        if batch_indices.size and not 0 <= batch_indices.min() <= batch_indices.max() < x.shape[0]:
            raise InvalidArgument(f"{info.describe()}: batch_indices are {batch_indices.tolist()}; X holds {x.shape[0]} images")
        ys = _positions(rois[:, 0], rois[:, 2], x.shape[2], height)[:, :, None]
        xs = _positions(rois[:, 1], rois[:, 3], x.shape[3], width)[:, None, :]
        pixels = xp.reshape(xp.permute_dims(x, (0, 2, 3, 1)), (-1, channels))
        first = batch_indices.astype(np.int64)[:, None, None] * (x.shape[2] * x.shape[3])

        def at(rows: HostArray, columns: HostArray) -> Array:
            rows, columns = np.clip(rows, 0, x.shape[2] - 1), np.clip(columns, 0, x.shape[3] - 1)
            flat = (first + rows.astype(np.int64) * x.shape[3] + columns.astype(np.int64)).reshape(-1)
            return xp.reshape(xp.take(pixels, xp.from_host(flat), axis=0), (len(rois), height, width, channels))

        is_nearest = mode == "nearest"
        values = at(np.floor(ys + 0.5), np.floor(xs + 0.5)) if is_nearest else _bilinear(xp, at, ys, xs, x.dtype)
        kept = (ys >= 0) & (ys <= x.shape[2] - 1) & (xs >= 0) & (xs <= x.shape[3] - 1)
        values = xp.where(xp.from_host(kept[..., None]), values, xp.asarray(outside, dtype=x.dtype))
        return xp.permute_dims(values, (0, 3, 1, 2))

    return compute


def _positions(start: HostArray, stop: HostArray, size: int, count: int) -> HostArray:
    """Source position of each output row (or column) of each box, (boxes, count)."""
    if count == 1:
        return 0.5 * (start + stop)[:, None] * (size - 1)
    return (
        start[:, None] * (size - 1) + np.arange(count, dtype=start.dtype) * ((stop - start) * (size - 1) / (count - 1))[:, None]
    )


def _bilinear(xp: Any, at: Any, ys: HostArray, xs: HostArray, dtype: Any) -> Array:
    top, left = np.floor(ys), np.floor(xs)
    down, right = (xp.module.astype(xp.from_host(part[..., None]), dtype) for part in (ys - top, xs - left))
    upper = at(top, left) + (at(top, left + 1) - at(top, left)) * right
    lower = at(top + 1, left) + (at(top + 1, left + 1) - at(top + 1, left)) * right
    return upper + (lower - upper) * down
