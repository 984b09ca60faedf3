"""RoiAlign and MaxRoiPool: regions of an image pooled to one size."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.definition import operator
from ort_sdk.opset.input_shapes import InputShapes
from ort_sdk.opset.sizes import repeated, require_size

__all__ = ["max_roi_pool", "roi_align"]


@dataclass(frozen=True, slots=True)
class _Samples:
    """Sampling points of one region along one axis: pixels on both sides, and their weights (0 outside the image)."""

    low: HostArray
    high: HostArray
    low_weight: HostArray
    high_weight: HostArray
    per_bin: int

    def matrix(self, bins: int, size: int) -> HostArray:
        """Weights (bins, size) that average the samples of each bin."""
        rows = repeated(np.arange(bins), self.per_bin)
        weights = np.zeros((bins, size), dtype=self.low_weight.dtype)
        np.add.at(weights, (rows, self.low), self.low_weight)
        np.add.at(weights, (rows, self.high), self.high_weight)
        return weights / max(self.per_bin, 1)


def _samples(start: Any, extent: Any, bins: int, sampling_ratio: int, size: int) -> _Samples:
    per_bin = sampling_ratio if sampling_ratio > 0 else max(int(np.ceil(extent / bins)), 0)
    require_size("the sampling points of a region", (bins, per_bin), np.dtype(np.float64).itemsize)
    bin_size = extent / bins
    within = (np.arange(per_bin, dtype=extent.dtype) + extent.dtype.type(0.5)) * bin_size / extent.dtype.type(max(per_bin, 1))
    points = (start + np.arange(bins, dtype=extent.dtype)[:, np.newaxis] * bin_size + within).reshape(-1)
    inside = (points >= -1) & (points <= size)
    points = np.clip(points, 0, size - 1)
    low = np.floor(points)
    fraction = np.where(inside, points - low, 0)
    low_weight = np.where(inside, 1 - (points - low), 0)
    first = low.astype(np.int64)
    return _Samples(first, np.minimum(first + 1, size - 1), low_weight, fraction, per_bin)


def _average(xp: Any, image: Array, rows: _Samples, columns: _Samples, bins: tuple[int, int]) -> Array:
    top, bottom = int(rows.low.min(initial=image.shape[1])), int(rows.high.max(initial=-1)) + 1
    left, right = int(columns.low.min(initial=image.shape[2])), int(columns.high.max(initial=-1)) + 1
    if top >= bottom or left >= right:
        return xp.zeros((image.shape[0], *bins), dtype=image.dtype)
    down = rows.matrix(bins[0], image.shape[1])[:, top:bottom]
    across = columns.matrix(bins[1], image.shape[2])[:, left:right].T
    part = image[:, top:bottom, left:right]
    return xp.matmul(xp.matmul(xp.from_host(down), part), xp.from_host(across))


def _maximum(xp: Any, image: Array, rows: _Samples, columns: _Samples, bins: tuple[int, int]) -> Array:
    """Largest weighted corner pixel of each bin's samples, as ONNX Runtime takes it."""
    shape = (image.shape[0], bins[0], rows.per_bin, bins[1], columns.per_bin)
    if 0 in shape:
        return xp.zeros((image.shape[0], *bins), dtype=image.dtype)
    best = None
    for row, row_weight in ((rows.low, rows.low_weight), (rows.high, rows.high_weight)):
        band = xp.gather(image, xp.from_host(row), 1) * xp.from_host(row_weight[:, np.newaxis])
        for column, column_weight in ((columns.low, columns.low_weight), (columns.high, columns.high_weight)):
            corner = xp.gather(band, xp.from_host(column), 2) * xp.from_host(column_weight)
            best = corner if best is None else xp.maximum(best, corner)
    return xp.max(xp.reshape(best, shape), axis=(2, 4))


def _check_images(info: KernelInfo, x: Array, images: HostArray) -> None:
    if images.size and not 0 <= images.min() <= images.max() < x.shape[0]:
        raise InvalidArgument(f"{info.describe()}: batch indices {images.tolist()} must be within [0, {x.shape[0] - 1}]")


def _stacked(xp: Any, parts: list[Array], shape: tuple[int, ...], dtype: Any) -> Array:
    return xp.stack(parts) if parts else xp.zeros(shape, dtype=dtype)


def _region_shapes(_info: KernelInfo, shapes: InputShapes) -> None:
    """Images, regions, and the image that each region is of."""
    shapes.match(0, "X", ("images", "channels", "height", "width"))
    shapes.match(1, "rois", ("regions", 4))
    shapes.match(2, "batch_indices", ("regions",))


@operator("RoiAlign", host_inputs=(1, 2), shapes=_region_shapes)
def roi_align(info: KernelInfo, xp: Any) -> Compute:
    """(rois, C, output_height, output_width): each region's bins, from bilinear samples averaged or maximised."""
    height, width = info.attribute("output_height", 1), info.attribute("output_width", 1)
    ratio, scale = info.attribute("sampling_ratio", 0), info.attribute("spatial_scale", 1.0)
    default_mode = "output_half_pixel" if info.since_version < 16 else "half_pixel"
    half_pixel = info.attribute("coordinate_transformation_mode", default_mode) == "half_pixel"
    mode = info.attribute("mode", "avg")
    if mode not in {"avg", "max"}:
        raise InvalidArgument(f"{info.describe()}: mode is '{mode}'; it must be avg or max")
    pool = _average if mode == "avg" else _maximum

    def compute(x: Array, rois: HostArray, batch_indices: HostArray) -> Array:
        _check_images(info, x, batch_indices)
        if rois.ndim != 2 or rois.shape[1] != 4 or not np.isfinite(rois.astype(np.float32)).all():
            raise InvalidArgument(f"{info.describe()}: rois of shape {rois.shape} must hold four finite numbers each")
        scaled = rois * rois.dtype.type(scale) - rois.dtype.type(0.5 if half_pixel else 0)
        extents = scaled[:, 2:] - scaled[:, :2]
        if not half_pixel:
            extents = np.maximum(extents, 1)
        outputs = []
        for (left, top, _, _), (across, down), image in zip(scaled, extents, batch_indices.tolist(), strict=True):
            rows = _samples(top, down, height, ratio, x.shape[2])
            columns = _samples(left, across, width, ratio, x.shape[3])
            outputs.append(pool(xp, x[image, ...], rows, columns, (height, width)))
        return _stacked(xp, outputs, (0, x.shape[1], height, width), x.dtype)

    return compute


def _bin_pixels(start: int, end: int, bins: int, size: int) -> tuple[HostArray, HostArray]:
    """Pixels (bins, widest) of each bin along one axis, its last one repeated, and which bins (bins,) are empty."""
    bin_size = np.float32(max(end - start + 1, 1)) / np.float32(bins)
    order = np.arange(bins, dtype=np.float32)
    first = np.clip(np.floor(order * bin_size).astype(np.int64) + start, 0, size)
    last = np.clip(np.ceil((order + 1) * bin_size).astype(np.int64) + start, 0, size)
    widest = max(int((last - first).max()), 1)
    pixels = np.minimum(first[:, np.newaxis] + np.arange(widest), last[:, np.newaxis] - 1)
    return np.clip(pixels, 0, size - 1), last <= first


def _numbered_region_shapes(_info: KernelInfo, shapes: InputShapes) -> None:
    """Images, and regions that begin with the index of their image."""
    shapes.match(0, "X", ("images", "channels", "height", "width"))
    shapes.match(1, "rois", ("regions", 5))


@operator("MaxRoiPool", host_inputs=(1,), shapes=_numbered_region_shapes)
def max_roi_pool(info: KernelInfo, xp: Any) -> Compute:
    """(rois, C, *pooled_shape): the largest pixel in each bin of each region (image, x1, y1, x2, y2); 0 in empty bins."""
    height, width = info.attribute("pooled_shape")
    scale = info.attribute("spatial_scale", 1.0)

    def pooled(image: Array, region: HostArray) -> Array:
        left, top, right, bottom = np.floor(region * region.dtype.type(scale) + region.dtype.type(0.5)).astype(np.int64).tolist()
        rows, no_rows = _bin_pixels(top, bottom, height, image.shape[1])
        columns, no_columns = _bin_pixels(left, right, width, image.shape[2])
        bands = xp.max(xp.gather(image, xp.from_host(rows), 1), axis=2)
        cells = xp.max(xp.gather(bands, xp.from_host(columns), 2), axis=3)
        return xp.where(xp.from_host(no_rows[:, np.newaxis] | no_columns), xp.zeros((), dtype=image.dtype), cells)

    def compute(x: Array, rois: HostArray) -> Array:
        images = rois[:, 0].astype(np.int64)
        _check_images(info, x, images)
        outputs = [pooled(x[image, ...], region[1:]) for image, region in zip(images.tolist(), rois, strict=True)]
        return _stacked(xp, outputs, (0, x.shape[1], height, width), x.dtype)

    return compute
