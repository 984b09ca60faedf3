"""Where Resize reads along one axis: source coordinates, taps and their weights. Pure NumPy on small vectors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import dataclass

__all__ = ["COORDINATE_MODES", "NEAREST_MODES", "AxisPlan", "Filter", "nearest_sources", "source_coordinates", "weighted_taps"]


@dataclass(frozen=True, slots=True)
class AxisPlan:
    """One resized axis: from ``size`` to ``output_size`` elements, by ``scale``, of a region in [0, 1] coordinates.

    ``length`` is the output size before it was rounded down.
    """

    axis: int
    size: int
    output_size: int
    scale: float
    length: float
    region: tuple[float, float] = (0.0, 1.0)
    ratio: tuple[int, int] | None = None
    """The scale as a fraction, where sizes give it."""


def _half_pixel(x: HostArray, plan: AxisPlan) -> HostArray:
    return (x + np.float32(0.5)) / np.float32(plan.scale) - np.float32(0.5)


def _half_pixel_symmetric(x: HostArray, plan: AxisPlan) -> HostArray:
    adjustment = np.float32(plan.output_size) / (np.float32(plan.scale) * np.float32(plan.size))
    offset = np.float32(plan.size / 2) * (np.float32(1) - adjustment)
    return offset + _half_pixel(x, plan)


def _pytorch_half_pixel(x: HostArray, plan: AxisPlan) -> HostArray:
    return _half_pixel(x, plan) if plan.output_size > 1 else np.zeros_like(x)


def _align_corners(x: HostArray, plan: AxisPlan) -> HostArray:
    if plan.output_size == 1:
        return np.zeros_like(x)
    return x * np.float32(plan.size - 1) / (np.float32(plan.length) - np.float32(1))


def _tf_crop_and_resize(x: HostArray, plan: AxisPlan) -> HostArray:
    begin, end = np.float32(plan.region[0]), np.float32(plan.region[1])
    last = np.float32(plan.size - 1)
    if plan.output_size == 1:
        return np.full_like(x, np.float32(0.5) * (begin + end) * last)
    return begin * last + x * (end - begin) * last / np.float32(plan.output_size - 1)


COORDINATE_MODES: dict[str, Callable[[HostArray, AxisPlan], HostArray]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": lambda x, plan: x / np.float32(plan.scale),
    "tf_half_pixel_for_nn": lambda x, plan: (x + np.float32(0.5)) / np.float32(plan.scale),
    "tf_crop_and_resize": _tf_crop_and_resize,
}
"""``coordinate_transformation_mode`` → output positions (float32) to input positions."""

NEAREST_MODES: dict[str, Callable[[HostArray, AxisPlan], HostArray]] = {
    "round_prefer_floor": lambda x, _: np.ceil(x - np.float32(0.5)),
    "round_prefer_ceil": lambda x, _: np.floor(x + np.float32(0.5)),
    "floor": lambda x, _: np.floor(x),
    "ceil": lambda x, _: np.ceil(x),
    "simple": lambda x, plan: np.ceil(x) if plan.scale < 1 else np.floor(x),
}
"""``nearest_mode`` → rounding; ``simple`` is what Resize-10 and Upsample do."""


def source_coordinates(plan: AxisPlan, coordinate_mode: str) -> HostArray:
    """float32 input position of each output element, as ONNX Runtime computes it from scales."""
    positions = np.arange(plan.output_size, dtype=np.float32)
    if plan.scale == 1 and coordinate_mode != "tf_crop_and_resize":
        return positions
    return COORDINATE_MODES[coordinate_mode](positions, plan).astype(np.float32)


_DOUBLED: dict[str, Callable[[HostArray, AxisPlan, int, int], tuple[HostArray, int]]] = {
    "half_pixel": lambda x, _, up, down: ((2 * x + 1) * down - up, up),
    "pytorch_half_pixel": lambda x, plan, up, down: ((2 * x + 1) * down - up if plan.output_size > 1 else 0 * x, up),
    "asymmetric": lambda x, _, up, down: (2 * x * down, up),
    "tf_half_pixel_for_nn": lambda x, _, up, down: ((2 * x + 1) * down, up),
    "align_corners": lambda x, plan, *_: (2 * x * (plan.size - 1), max(plan.output_size - 1, 1)),
}
"""``coordinate_transformation_mode`` → twice the input positions at the scale up / down, as (numerators, denominator)."""

_ROUNDED: dict[str, Callable[[HostArray, int], HostArray]] = {
    "round_prefer_floor": lambda doubled, below: -((below - doubled) // (2 * below)),
    "round_prefer_ceil": lambda doubled, below: (doubled + below) // (2 * below),
    "floor": lambda doubled, below: doubled // (2 * below),
    "ceil": lambda doubled, below: -(-doubled // (2 * below)),
}
"""``nearest_mode`` → rounding of such a fraction."""
_MOST_EXACT = 1 << 60
"""Products of sizes below which numerators fit into int64."""


def nearest_sources(plan: AxisPlan, coordinates: HostArray, nearest_mode: str, coordinate_mode: str) -> HostArray:
    """int64 index each output element is copied from.

    Where sizes give the scale, positions are fractions of integers: floating point misses those midway between two elements.
    """
    doubled, rounded = _DOUBLED.get(coordinate_mode), _ROUNDED.get(nearest_mode)
    is_small = plan.ratio is not None and (plan.output_size + 1) * max(*plan.ratio, plan.size) < _MOST_EXACT // 4
    if plan.ratio is not None and doubled is not None and rounded is not None and is_small:
        positions = doubled(np.arange(plan.output_size, dtype=np.int64), plan, *plan.ratio)
        return np.clip(rounded(*positions), 0, plan.size - 1)
    return np.clip(NEAREST_MODES[nearest_mode](coordinates, plan), 0, plan.size - 1).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Filter:
    """An interpolation filter: linear (support 1) or cubic with coefficient ``a`` (support 2)."""

    support: int
    a: float = -0.75

    def __call__(self, distance: HostArray) -> HostArray:
        """Weights at distances in input elements."""
        d = np.abs(distance)
        if self.support == 1:
            return np.maximum(0.0, 1.0 - d)
        near = ((self.a + 2) * d - (self.a + 3)) * d * d + 1
        far = ((self.a * d - 5 * self.a) * d + 8 * self.a) * d - 4 * self.a
        return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def weighted_taps(
    plan: AxisPlan, coordinates: HostArray, kernel: Filter, *, antialias: bool, exclude_outside: bool
) -> tuple[HostArray, HostArray]:
    """Input indices and float64 weights, both (output_size, taps), that make each output element.

    Taps beyond the edges read the edge, or get no weight if ``exclude_outside``. Antialiasing stretches the filter by
    1 / scale when an axis shrinks.
    """
    stretch = 1.0 / plan.scale if antialias and plan.scale < 1 else 1.0
    reach = int(np.ceil(kernel.support * stretch))
    centers = coordinates.astype(np.float64)[:, np.newaxis]
    taps = np.floor(centers) + np.arange(1 - reach, reach + 1)
    weights = kernel((taps - centers) / stretch)
    if exclude_outside:
        weights = np.where((taps < 0) | (taps > plan.size - 1), 0.0, weights)
    if exclude_outside or stretch > 1:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return np.clip(taps, 0, plan.size - 1).astype(np.int64), weights
