"""LRN: local response normalization across channels."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, KernelInfo
from ort_sdk.opset.definition import operator

__all__ = ["lrn"]


@operator("LRN")
def lrn(info: KernelInfo, xp: Any) -> Compute:
    """Each element divided by a power of the sum of squares over neighbouring channels."""
    size = int(info.attribute("size"))
    alpha, beta = float(info.attribute("alpha", 1e-4)), float(info.attribute("beta", 0.75))
    bias = float(info.attribute("bias", 1.0))

    def compute(x: Array) -> Array:
        scale = _neighbour_sums(xp, x * x, size) * (alpha / size) + bias
        return x / _power(xp, scale, beta)

    return compute


def _neighbour_sums(xp: Any, squares: Array, size: int) -> Array:
    """Sums over a window of ``size`` channels around each channel, cut off at the first and last one."""
    channels, before = squares.shape[1], (size - 1) // 2
    total = xp.zeros_like(squares)
    for offset in range(max(-before, 1 - channels), min(size - before, channels)):
        start, stop = max(0, -offset), min(channels, channels - offset)
        total[:, start:stop, ...] += squares[:, start + offset : stop + offset, ...]
    return total


def _power(xp: Any, base: Array, exponent: float) -> Array:
    if exponent == 0.75:  # the usual one; two square roots cost a fraction of a power
        half = xp.sqrt(base)
        return half * xp.sqrt(half)
    return base**exponent
