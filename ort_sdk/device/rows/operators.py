"""Operators on rows: normalizations in one kernel with scale, bias and what comes after, and searches from the end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ort_sdk.api import Compute, KernelInfo
from ort_sdk.device import arithmetic
from ort_sdk.device.array import DeviceArray
from ort_sdk.device.element_types import is_floating
from ort_sdk.device.expressions.nodes import element_count
from ort_sdk.device.namespace.reductions import positions
from ort_sdk.opset.activation.softmax import along_axis

from .program import LOG_SOFTMAX, ROOT_MEAN_SQUARE, STANDARDIZED, RowProgram
from .result import row_result, row_result_with_values

if TYPE_CHECKING:
    from ort_sdk.device.namespace.device_namespace import DeviceNamespace, Override

__all__ = ["ROW_OVERRIDES"]

MICROSOFT = "com.microsoft"


def _log_softmax(info: KernelInfo, xp: DeviceNamespace, _shared: Compute) -> Compute | None:
    is_coerced = info.since_version < 13

    def function(x: DeviceArray, axis: int) -> DeviceArray:
        return x if 0 in x.shape else arithmetic.cast(row_result(x, LOG_SOFTMAX, [axis]), x.element_type)

    return along_axis(info, xp, function, info.attribute("axis", 1 if is_coerced else -1), is_coerced)


def _numbers(x: DeviceArray, axes: list[int], epsilon: float) -> dict[str, float]:
    return {"count": float(element_count([x.shape[axis] for axis in axes])), "epsilon": epsilon}


def _scaled(y: DeviceArray, scale: DeviceArray, bias: DeviceArray | None) -> DeviceArray:
    y = y * arithmetic.cast(scale, y.element_type)
    return y if bias is None else y + arithmetic.cast(bias, y.element_type)


def _typed(info: KernelInfo, index: int, value: DeviceArray) -> DeviceArray:
    """An output of the type that the node says."""
    return arithmetic.cast(value, info.output_element_type(index) or value.element_type)


def _normalization(program: RowProgram) -> Override:
    """Normalized over the axes from ``axis`` on, scaled, shifted; the program's values as further outputs."""

    def override(info: KernelInfo, _xp: DeviceNamespace, shared: Compute) -> Compute:
        axis, epsilon = int(info.attribute("axis", -1)), float(info.attribute("epsilon", 1e-5))
        count = 1 + len(program.values)
        wants_values = any(info.wants_output(index) for index in range(1, count))

        def compute(x: DeviceArray, scale: DeviceArray, bias: DeviceArray | None = None) -> Any:
            if 0 in x.shape or not is_floating(x.element_type):
                return shared(x, scale, bias) if bias is not None else shared(x, scale)
            axes = list(range(axis % x.ndim, x.ndim))
            numbers = _numbers(x, axes, epsilon)
            if not wants_values:
                return _typed(info, 0, _scaled(row_result(x, program, axes, numbers), scale, bias))
            y, *values = row_result_with_values(x, program, axes, numbers)
            typed = (_typed(info, index, value) for index, value in enumerate(values, 1))
            return _typed(info, 0, _scaled(y, scale, bias)), *typed

        return compute

    return override


def _skip_normalization(program: RowProgram, *, has_shift: bool) -> Override:
    """The sum of two arrays, and of a bias, normalized along the last axis; the sum is output 3."""

    def override(info: KernelInfo, xp: DeviceNamespace, shared: Compute) -> Compute:
        epsilon, outputs = float(info.attribute("epsilon", 1e-12)), len(info.outputs)
        wants_values = info.wants_output(1) or info.wants_output(2)

        def compute(x: DeviceArray, skip: DeviceArray, gamma: DeviceArray, *rest: DeviceArray | None) -> Any:
            if 0 in x.shape or wants_values:
                return shared(x, skip, gamma, *rest)
            shift = rest[0] if has_shift and rest else None
            bias = rest[has_shift] if len(rest) > has_shift else None
            total = _wide(xp, x) + _wide(xp, skip)
            if bias is not None:
                total = total + _wide(xp, bias)
            whole = _typed(info, 3, total) if info.wants_output(3) else None
            axes = [total.ndim - 1]
            y = row_result(total, program, axes, _numbers(total, axes, epsilon), companion=whole)
            y = _typed(info, 0, _scaled(y, gamma, shift))
            return y if outputs < 2 else (y, None, None, whole)[:outputs]

        return compute

    return override


def _wide(xp: DeviceNamespace, x: DeviceArray) -> DeviceArray:
    return xp.astype(x, xp.compute_type(x.element_type))


def _instance_normalization(info: KernelInfo, xp: DeviceNamespace, shared: Compute) -> Compute:
    epsilon = float(info.attribute("epsilon", 1e-5))

    def compute(x: DeviceArray, scale: DeviceArray, bias: DeviceArray) -> Any:
        channels = x.shape[1:2]
        if x.ndim < 3 or 0 in x.shape or scale.shape != channels or bias.shape != channels:
            return shared(x, scale, bias)
        axes, shape = list(range(2, x.ndim)), (*channels, *(1 for _ in x.shape[2:]))
        y = row_result(x, STANDARDIZED, axes, _numbers(x, axes, epsilon))
        return _typed(info, 0, _scaled(y, xp.reshape(scale, shape), xp.reshape(bias, shape)))

    return compute


def _group_normalization(info: KernelInfo, xp: DeviceNamespace, shared: Compute) -> Compute:
    epsilon, groups = float(info.attribute("epsilon", 1e-5)), int(info.attribute("num_groups"))
    is_per_group = info.since_version < 21

    def compute(x: DeviceArray, scale: DeviceArray, bias: DeviceArray) -> Any:
        expected = (groups,) if is_per_group else x.shape[1:2]
        if 0 in x.shape or groups < 1 or x.shape[1] % groups or scale.shape != expected or bias.shape != expected:
            return shared(x, scale, bias)
        size = x.shape[1] // groups
        data = xp.reshape(x, (x.shape[0], groups, size, math.prod(x.shape[2:])))
        shape = (groups, 1 if is_per_group else size, 1)
        y = row_result(data, STANDARDIZED, [2, 3], _numbers(data, [2, 3], epsilon))
        y = _typed(info, 0, _scaled(y, xp.reshape(scale, shape), xp.reshape(bias, shape)))
        return xp.reshape(y, x.shape)

    return compute


def _group_norm(info: KernelInfo, xp: DeviceNamespace, shared: Compute) -> Compute:
    """Over groups of channels, which are the last axis or the second."""
    epsilon, groups = float(info.attribute("epsilon", 1e-5)), int(info.attribute("groups"))
    is_last, has_silu = bool(info.attribute("channels_last", 1)), info.attribute("activation") == 1

    def compute(x: DeviceArray, gamma: DeviceArray, beta: DeviceArray) -> Any:
        channels = x.shape[-1 if is_last else 1]
        if 0 in x.shape or groups < 1 or channels % groups:
            return shared(x, gamma, beta)
        size = channels // groups
        pixels = math.prod(x.shape[1:-1] if is_last else x.shape[2:])
        data = xp.reshape(x, (x.shape[0], pixels, groups, size) if is_last else (x.shape[0], groups, size, pixels))
        axes, shape = ([1, 3], (groups, size)) if is_last else ([2, 3], (groups, size, 1))
        y = row_result(data, STANDARDIZED, axes, _numbers(data, axes, epsilon))
        y = _scaled(y, xp.reshape(gamma, shape), xp.reshape(beta, shape))
        y = y * arithmetic.unary("sigmoid", y) if has_silu else y
        return xp.reshape(_typed(info, 0, y), x.shape)

    return compute


def _last_position(combination: str) -> Override:
    """Of equal elements the last; the shared operator finds the first."""

    def override(info: KernelInfo, _xp: DeviceNamespace, shared: Compute) -> Compute | None:
        axis, keepdims = int(info.attribute("axis", 0)), bool(info.attribute("keepdims", 1))

        def compute(x: DeviceArray) -> Any:
            if 0 in x.shape or not -x.ndim <= axis < x.ndim:
                return shared(x)
            return positions(combination, x, axis, keepdims, last=True)

        return compute if info.attribute("select_last_index", 0) else None

    return override


ROW_OVERRIDES: Mapping[tuple[str, str], Override] = {
    ("", "ArgMax"): _last_position("max"),
    ("", "ArgMin"): _last_position("min"),
    ("", "LogSoftmax"): _log_softmax,
    ("", "LayerNormalization"): _normalization(STANDARDIZED),
    ("", "RMSNormalization"): _normalization(ROOT_MEAN_SQUARE),
    ("", "SimplifiedLayerNormalization"): _normalization(ROOT_MEAN_SQUARE),
    ("", "InstanceNormalization"): _instance_normalization,
    ("", "GroupNormalization"): _group_normalization,
    (MICROSOFT, "GroupNorm"): _group_norm,
    (MICROSOFT, "SkipLayerNormalization"): _skip_normalization(STANDARDIZED, has_shift=True),
    (MICROSOFT, "SkipSimplifiedLayerNormalization"): _skip_normalization(ROOT_MEAN_SQUARE, has_shift=False),
}
"""(domain, op_type) → what makes its function."""
