"""Resize and Upsample."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.definition import operator
from ort_sdk.opset.sizes import require_size

from .common import normalize_axes
from .resize_axis import (
    COORDINATE_MODES,
    NEAREST_MODES,
    AxisPlan,
    Filter,
    nearest_sources,
    source_coordinates,
    weighted_taps,
)

__all__ = ["Interpolation", "Resizer", "resize", "resize_10", "upsample_attribute"]

_DENSE_LIMIT = 128
"""Axes up to this size are interpolated by a matrix product; longer ones by adding up their taps."""


@dataclass(frozen=True, slots=True)
class _Settings:
    """Attributes of a node, with those of older versions translated."""

    mode: str = "nearest"
    coordinate_mode: str = "asymmetric"
    nearest_mode: str = "simple"
    cubic_coeff_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    extrapolation_value: float = 0.0
    policy: str = "stretch"
    axes: tuple[int, ...] | None = None


_MODES = {"nearest": 0, "linear": 1, "bilinear": 1, "cubic": 2}
"""Mode → filter support."""


def _checked(info: KernelInfo, settings: _Settings) -> _Settings:
    for name, value, allowed in (
        ("mode", settings.mode, _MODES),
        ("coordinate_transformation_mode", settings.coordinate_mode, COORDINATE_MODES),
        ("nearest_mode", settings.nearest_mode, NEAREST_MODES),
        ("keep_aspect_ratio_policy", settings.policy, ("stretch", "not_larger", "not_smaller")),
    ):
        if value not in allowed:
            raise InvalidArgument(f"{info.describe()}: {name} is '{value}'; it must be one of {', '.join(allowed)}")
    return settings


def _axis_plans(
    info: KernelInfo,
    settings: _Settings,
    shape: tuple[int, ...],
    roi: Sequence[float],
    scales: Sequence[float],
    sizes: Sequence[int],
) -> list[AxisPlan]:
    axes = range(len(shape)) if settings.axes is None else normalize_axes(info, settings.axes, len(shape))
    if len(scales or sizes) != len(axes) or (scales and sizes):
        raise InvalidArgument(
            f"{info.describe()}: scales {list(scales)} or sizes {list(sizes)}, one of them, must hold {len(axes)} numbers"
        )
    if not all(0 < scale < math.inf for scale in scales):
        raise InvalidArgument(f"{info.describe()}: scales {list(scales)} must be greater than 0, and finite")
    dims = [shape[axis] for axis in axes]
    ratios: Sequence[tuple[int, int] | None] = [None] * len(axes)
    if scales:
        with np.errstate(over="ignore"):
            lengths = [float(np.float32(dim) * np.float32(scale)) for dim, scale in zip(dims, scales, strict=True)]
        if not all(map(math.isfinite, lengths)):
            raise InvalidArgument(f"{info.describe()}: scales {list(scales)} are too large for an input of shape {list(shape)}")
        targets = [math.floor(length) for length in lengths]
    else:
        targets, scales, ratios = _sized(settings.policy, dims, sizes)
        lengths = [float(target) for target in targets]
    output_shape = dict(enumerate(shape)) | dict(zip(axes, targets, strict=True))
    require_size(info.describe(), output_shape.values(), np.dtype(np.float64).itemsize)
    count = len(axes)
    regions = list(zip(roi[:count], roi[count:], strict=True)) if len(roi) == 2 * count else [(0.0, 1.0)] * count
    return [AxisPlan(*row) for row in zip(axes, dims, targets, scales, lengths, regions, ratios, strict=True)]


def _sized(policy: str, dims: Sequence[int], sizes: Sequence[int]) -> tuple[list[int], list[float], list[tuple[int, int] | None]]:
    """Output sizes, scales and these as fractions for wanted sizes."""
    scales = [size / dim if dim else 1.0 for size, dim in zip(sizes, dims, strict=True)]
    ratios = [(size, dim) if dim and size > 0 else None for size, dim in zip(sizes, dims, strict=True)]
    if policy == "stretch" or not scales:
        return list(sizes), scales, ratios
    scale = min(scales) if policy == "not_larger" else max(scales)
    ratio = ratios[scales.index(scale)]
    return [math.floor(scale * dim + 0.5) for dim in dims], [scale] * len(dims), [ratio] * len(dims)


Step = Callable[[Array], Array]


def _weighted_step(xp: Any, plan: AxisPlan, taps: HostArray, weights: HostArray, dtype: Any) -> Step:
    """Interpolation along one axis of a floating-point array."""
    host_dtype = np.float64 if dtype == xp.float64 else np.float32
    if taps.shape[1] > 4 or plan.size <= _DENSE_LIMIT:
        dense = np.zeros(require_size("weights of an axis", (plan.output_size, plan.size), np.dtype(np.float64).itemsize))
        np.add.at(dense, (np.arange(plan.output_size)[:, np.newaxis], taps), weights)
        matrix = xp.from_host(dense.astype(host_dtype))

        def multiply(x: Array) -> Array:
            before, after = x.shape[: plan.axis], x.shape[plan.axis + 1 :]
            if math.prod(after) == 1:
                product = xp.matmul(xp.reshape(x, (-1, plan.size)), xp.matrix_transpose(matrix))
            else:
                product = xp.matmul(matrix, xp.reshape(x, (math.prod(before), plan.size, math.prod(after))))
            return xp.reshape(product, (*before, plan.output_size, *after))

        return multiply
    columns = [xp.from_host(np.ascontiguousarray(column)) for column in taps.T]
    factors = [xp.from_host(np.ascontiguousarray(column, dtype=host_dtype)) for column in weights.T]

    def add_up(x: Array) -> Array:
        shape = (plan.output_size, *(1,) * (x.ndim - plan.axis - 1))
        parts = [
            xp.gather(x, column, plan.axis) * xp.reshape(factor, shape) for column, factor in zip(columns, factors, strict=True)
        ]
        return functools.reduce(lambda total, part: total + part, parts)

    return add_up


def _nearest_step(xp: Any, plan: AxisPlan, sources: HostArray) -> Step:
    indices = xp.from_host(sources)
    return lambda x: xp.gather(x, indices, plan.axis)


def _extrapolated(xp: Any, outside: Sequence[tuple[int, HostArray]], rank: int, value: float) -> Step:
    """Replaces the elements that any axis reads from outside the input."""
    masks = [mask.reshape(-1, *(1,) * (rank - axis - 1)) for axis, mask in outside]
    mask = xp.from_host(functools.reduce(np.logical_or, masks))

    def replace(y: Array) -> Array:
        filler = np.asarray(value).astype(y.dtype) if xp.is_host else xp.asarray(value, dtype=y.dtype)
        return xp.where(mask, filler, y)

    return replace


def _coordinates(settings: _Settings, plan: AxisPlan) -> HostArray | None:
    """Where each element along an axis comes from; None if each stays where it is."""
    coordinates = source_coordinates(plan, settings.coordinate_mode)
    is_same = plan.output_size == plan.size and np.array_equal(coordinates, np.arange(plan.size))
    return None if is_same else coordinates


def _taps(settings: _Settings, plan: AxisPlan, coordinates: HostArray) -> tuple[HostArray, HostArray]:
    kernel = Filter(_MODES[settings.mode], settings.cubic_coeff_a)
    return weighted_taps(plan, coordinates, kernel, antialias=settings.antialias, exclude_outside=settings.exclude_outside)


def _steps(xp: Any, settings: _Settings, rank: int, plans: Sequence[AxisPlan], dtype: Any) -> list[Step]:
    """What to do to an input, axis by axis: those that shrink most first, then the innermost."""
    steps, outside = [], []
    crop = settings.coordinate_mode == "tf_crop_and_resize"
    for plan in sorted(plans, key=lambda plan: (plan.output_size / max(plan.size, 1), -plan.axis)):
        coordinates = _coordinates(settings, plan)
        if coordinates is None:
            continue
        if crop:
            outside.append((plan.axis, (coordinates < 0) | (coordinates > plan.size - 1)))
        if settings.mode == "nearest":
            steps.append(
                _nearest_step(xp, plan, nearest_sources(plan, coordinates, settings.nearest_mode, settings.coordinate_mode))
            )
            continue
        steps.append(_weighted_step(xp, plan, *_taps(settings, plan, coordinates), dtype))
    if any(mask.any() for _, mask in outside):
        steps.append(_extrapolated(xp, outside, rank, settings.extrapolation_value))
    return steps


@dataclass(frozen=True, slots=True)
class Interpolation:
    """Axes along which elements are weighted sums of some of the input's.

    Args:
        output_shape: of all axes.
        axes: axis → indices and float64 weights, both (size, taps), of what makes each element along it.
    """

    output_shape: tuple[int, ...]
    axes: Mapping[int, tuple[HostArray, HostArray]]


Parameters = tuple[HostArray | None, HostArray | None, HostArray | None]


class Resizer:
    """The input resized; tables are kept for the shapes seen last.

    Args:
        info: the node.
        xp: library that computes.
        settings: what the node's attributes say.
        parameters: makes (roi, scales, sizes) of the inputs behind the first.
    """

    def __init__(self, info: KernelInfo, xp: Any, settings: _Settings, parameters: Callable[..., Parameters]) -> None:
        self._info, self._xp, self._settings, self._parameters = info, xp, _checked(info, settings), parameters
        self._element_type = info.input_element_type(0)
        double = self._element_type is TensorElementType.DOUBLE
        self._compute_type = TensorElementType.DOUBLE if double else TensorElementType.FLOAT
        # No method of this object: the cache, which is its own, would hold it.
        prepare = functools.partial(_prepared, info, xp, self._settings, self._compute_type)
        self._prepared = functools.lru_cache(maxsize=8)(prepare)

    def __call__(self, x: Array, *inputs: HostArray | None) -> Array:
        """``x`` resized."""
        xp = self._xp
        steps, output_shape = self._prepared(tuple(x.shape), *_keys(self._parameters(*inputs)))
        if 0 in output_shape:
            return xp.zeros(output_shape, dtype=x.dtype)
        if not steps:
            return xp.asarray(x, copy=True)
        is_moved = self._settings.mode == "nearest"
        y = x if is_moved else xp.astype(x, self._compute_type)
        for step in steps:
            y = step(y)
        return y if is_moved or self._element_type is None else _narrowed(xp, y, self._element_type, self._settings)

    def interpolation(self, shape: tuple[int, ...], *inputs: HostArray | None) -> Interpolation | None:
        """How an input of this shape is interpolated; None where elements are copied, come from outside, or there are none."""
        if self._settings.mode == "nearest" or self._settings.coordinate_mode == "tf_crop_and_resize":
            return None
        plans = _axis_plans(self._info, self._settings, shape, *_keys(self._parameters(*inputs)))
        output_shape = _output_shape(shape, plans)
        if 0 in (*shape, *output_shape):
            return None
        found = ((plan.axis, _coordinates(self._settings, plan)) for plan in plans)
        moved = {axis: coordinates for axis, coordinates in found if coordinates is not None}
        return Interpolation(
            output_shape, {plan.axis: _taps(self._settings, plan, moved[plan.axis]) for plan in plans if plan.axis in moved}
        )


def _prepared(
    info: KernelInfo, xp: Any, settings: _Settings, compute_type: TensorElementType, shape: tuple[int, ...], *keys: Any
) -> tuple[list[Step], tuple[int, ...]]:
    """What to do to an input of a shape, and the output's."""
    plans = _axis_plans(info, settings, shape, *keys)
    output_shape = _output_shape(shape, plans)
    if 0 in shape and 0 not in output_shape:
        raise InvalidArgument(f"{info.describe()}: an empty input {shape} cannot be resized to {output_shape}")
    return [] if 0 in output_shape else _steps(xp, settings, len(shape), plans, xp.dtype(compute_type)), output_shape


def _keys(parameters: Parameters) -> list[tuple[Any, ...]]:
    return [() if part is None else tuple(part.tolist()) for part in parameters]


def _output_shape(shape: tuple[int, ...], plans: Sequence[AxisPlan]) -> tuple[int, ...]:
    sizes = {plan.axis: plan.output_size for plan in plans}
    return tuple(sizes.get(axis, size) for axis, size in enumerate(shape))


def _narrowed(xp: Any, y: Array, element_type: TensorElementType, settings: _Settings) -> Array:
    """Interpolated values as the input's type. Integers truncate, but antialiased ones round; both saturate."""
    dtype = xp.dtype(element_type)
    if element_type in _INTEGERS:
        limits = xp.iinfo(dtype)
        y = xp.clip(xp.round(y) if settings.antialias else y, float(limits.min), float(limits.max))
    return xp.astype(y, element_type)


_INTEGERS = frozenset({TensorElementType.UINT8, TensorElementType.INT8, TensorElementType.INT32})


def _moves_elements(info: KernelInfo) -> str | None:
    return None if info.attribute("mode", "nearest") == "nearest" else "elements are weighted sums"


@operator("Upsample", until=7, moves=True, when=_moves_elements)
@operator("Upsample", until=7)
def upsample_attribute(info: KernelInfo, xp: Any) -> Compute:
    """The input enlarged by the attributes' scales: nearest, or linear."""
    if info.since_version == 1:
        factors = [1.0, 1.0, info.attribute("height_scale"), info.attribute("width_scale")]
    else:
        factors = info.attribute("scales")
    scales = np.array(factors, dtype=np.float32)
    return Resizer(info, xp, _Settings(mode=info.attribute("mode", "nearest")), lambda: (None, scales, None))


@operator("Upsample", since=9, moves=True, shape_inputs=(1,), host_inputs=(1,), when=_moves_elements)
@operator("Upsample", since=9, shape_inputs=(1,), host_inputs=(1,))
@operator("Resize", until=10, moves=True, shape_inputs=(1,), host_inputs=(1,), when=_moves_elements)
@operator("Resize", until=10, shape_inputs=(1,), host_inputs=(1,))
def resize_10(info: KernelInfo, xp: Any) -> Compute:
    """The input resized by the second input's scales: nearest, or linear."""
    return Resizer(info, xp, _Settings(mode=info.attribute("mode", "nearest")), lambda scales: (None, scales, None))


@operator("Resize", since=11, moves=True, shape_inputs=(2, 3), host_inputs=(1, 2, 3), when=_moves_elements)
@operator("Resize", since=11, shape_inputs=(2, 3), host_inputs=(1, 2, 3))
def resize(info: KernelInfo, xp: Any) -> Compute:
    """The input resized to ``sizes`` or by ``scales``: nearest, linear or cubic; tables as ONNX's attributes say."""
    axes = info.attribute("axes", None)
    settings = _Settings(
        mode=info.attribute("mode", "nearest"),
        coordinate_mode=info.attribute("coordinate_transformation_mode", "half_pixel"),
        nearest_mode=info.attribute("nearest_mode", "round_prefer_floor"),
        cubic_coeff_a=info.attribute("cubic_coeff_a", -0.75),
        exclude_outside=bool(info.attribute("exclude_outside", 0)),
        antialias=bool(info.attribute("antialias", 0)),
        extrapolation_value=info.attribute("extrapolation_value", 0.0),
        policy=info.attribute("keep_aspect_ratio_policy", "stretch"),
        axes=None if axes is None else tuple(axes),
    )
    crops = settings.coordinate_mode == "tf_crop_and_resize"

    def parameters(
        roi: HostArray | None = None, scales: HostArray | None = None, sizes: HostArray | None = None
    ) -> tuple[HostArray | None, HostArray | None, HostArray | None]:
        return roi if crops else None, scales, sizes

    return Resizer(info, xp, settings, parameters)
