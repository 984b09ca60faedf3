"""Clip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ort_sdk.api import Array, Compute, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator

__all__: list[str] = []

_SCALARS = ((), (1,))
_FLOAT_MAX = 3.4028234663852886e38


@operator("Clip", until=6)
def clip_to_attributes(info: KernelInfo, xp: Any) -> Compute:
    """min(max(x, min), max), bounds from attributes: float32's range without them."""
    dtype = xp.dtype(info.input_element_type(0))
    low = xp.asarray(info.attribute("min", -_FLOAT_MAX), dtype=dtype)
    high = xp.asarray(info.attribute("max", _FLOAT_MAX), dtype=dtype)
    clamp = xp.clamp
    return lambda x: clamp(x, low, high)


@operator("Clip", since=11)
def clip(info: KernelInfo, xp: Any) -> Compute:
    """min(max(x, min), max), bounds from inputs; no bound without one."""
    given = [index for index in (1, 2) if info.has_input(index)]
    bounded = _bounded(xp, given)
    for index in given:
        if index in info.constants:
            _require_scalar(info, index, info.constants[index].shape)
    varying = [index for index in given if index not in info.constants]
    if not varying:
        return bounded

    def compute(*inputs: Array) -> Array:
        for index in varying:
            _require_scalar(info, index, inputs[index].shape)
        return bounded(*inputs)

    return compute


def _bounded(xp: Any, given: Sequence[int]) -> Compute:
    maximum, minimum, copy = xp.maximum, xp.minimum, xp.asarray
    if given == [1, 2]:
        clamp: Compute = xp.clamp
        return clamp
    if given == [1]:
        return lambda x, low, _high=None: maximum(x, low)
    if given == [2]:
        return lambda x, _low, high: minimum(x, high)

    def unbounded(x: Array, *_absent: None) -> Array:
        return copy(x, copy=True)

    return unbounded


def _require_scalar(info: KernelInfo, index: int, shape: Sequence[int]) -> None:
    if tuple(shape) not in _SCALARS:
        raise InvalidArgument(f"{info.describe()}: {('', 'min', 'max')[index]} has shape {tuple(shape)}; it must be a scalar")
