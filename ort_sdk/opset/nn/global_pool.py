"""GlobalAveragePool, GlobalMaxPool, GlobalLpPool: all spatial axes reduced to one element."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, KernelInfo
from ort_sdk.opset.definition import operator

from .pool import power, root

__all__ = ["global_average_pool", "global_lp_pool", "global_max_pool"]


def _spatial(x: Array) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@operator("GlobalAveragePool")
def global_average_pool(info: KernelInfo, xp: Any) -> Compute:
    """Mean over all spatial axes: (N, C, *spatial) to (N, C, 1, ...)."""
    return lambda x: xp.mean(x, axis=_spatial(x), keepdims=True)


@operator("GlobalMaxPool")
def global_max_pool(info: KernelInfo, xp: Any) -> Compute:
    """Maximum over all spatial axes: (N, C, *spatial) to (N, C, 1, ...)."""
    return lambda x: xp.max(x, axis=_spatial(x), keepdims=True)


@operator("GlobalLpPool")
def global_lp_pool(info: KernelInfo, xp: Any) -> Compute:
    """p-norm over all spatial axes: (N, C, *spatial) to (N, C, 1, ...)."""
    p = float(info.attribute("p", 2))
    return lambda x: root(xp, xp.sum(power(xp, x, p), axis=_spatial(x), keepdims=True), p)
