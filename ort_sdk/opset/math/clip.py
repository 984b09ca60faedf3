"""Clip."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, KernelInfo
from ort_sdk.opset.definition import operator

__all__: list[str] = []

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
    maximum, minimum, copy = xp.maximum, xp.minimum, xp.asarray
    clamp: Compute = xp.clamp
    has_low, has_high = info.has_input(1), info.has_input(2)
    if has_low and has_high:
        return clamp
    if has_low:
        return lambda x, low, _high=None: maximum(x, low)
    if has_high:
        return lambda x, _low, high: minimum(x, high)

    def unbounded(x: Array, *_absent: None) -> Array:
        return copy(x, copy=True)

    return unbounded
