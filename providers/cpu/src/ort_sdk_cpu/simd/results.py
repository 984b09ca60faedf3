"""What is done to the sums of a convolution, told by numbers of a record."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit import inner

from .arithmetic import fused_multiply_add, maximum, minimum, multiply, splat_f32, zero_f32
from .functions import silu

__all__ = ["activated"]

_SILU = 3


@inner
def activated(value: Any, activation: int, first: float, second: float) -> Any:
    """A function of a vector: 0 none, 1 bounds, 2 a slope below zero, 3 silu, 4 hard swish; its two numbers."""
    if activation == 0:
        return value
    if activation == _SILU:
        return silu(value, first)
    low, high = splat_f32(first), splat_f32(second)
    if activation == 1:
        return minimum(high, maximum(low, value))
    if activation == 2:
        return fused_multiply_add(minimum(value, zero_f32()), low, maximum(value, zero_f32()))
    gate = fused_multiply_add(value, low, high)
    return multiply(value, minimum(splat_f32(np.float32(1)), maximum(zero_f32(), gate)))
