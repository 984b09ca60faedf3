"""What is done to the sums of a convolution, told by numbers of a record."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.kernel.microkernels.activation_codes import ActivationKind
from ort_sdk_cpu.simd.arguments import argument, number
from ort_sdk_cpu.simd.arithmetic import add, fused_multiply_add, maximum, minimum, multiply, splat_f32, zero_f32
from ort_sdk_cpu.simd.math import sigmoid, silu
from ort_sdk_cpu.simd.memory import load_f32_first

__all__ = ["activated", "finished"]

_IDENTITY, _CLIP = int(ActivationKind.IDENTITY), int(ActivationKind.CLIP)
_LEAKY_RELU, _SWISH, _SIGMOID = int(ActivationKind.LEAKY_RELU), int(ActivationKind.SWISH), int(ActivationKind.SIGMOID)


@inner
def activated(value: Any, activation: int, first: float, second: float) -> Any:
    """An activation of a vector: none, Clip, LeakyRelu, Swish, Sigmoid, or HardSwish for any other; its two parameters."""
    if activation == _IDENTITY:
        return value
    if activation == _SWISH:
        return silu(value, first)
    if activation == _SIGMOID:
        return sigmoid(value)
    low, high = splat_f32(first), splat_f32(second)
    if activation == _CLIP:
        return minimum(high, maximum(low, value))
    if activation == _LEAKY_RELU:
        return fused_multiply_add(minimum(value, zero_f32()), low, maximum(value, zero_f32()))
    gate = fused_multiply_add(value, low, high)
    return multiply(value, minimum(splat_f32(np.float32(1)), maximum(zero_f32(), gate)))


@inner
def finished(record: int, offset: int, left: int, value: Any) -> Any:
    """All that may be done to a sum with its bias.

    Args:
        record: of the task: at 3 the address of what is added before the activation (or 0), at 20 activation and its numbers,
            at 23 the address of what is added at last (or 0), at 24 whether the activation is scaled, factor and shift.
        offset: bytes from the output's begin, and that of what is added, to these channels.
        left: channels from these on.
        value: the sums.
    """
    addend, last = argument(record, 3), argument(record, 23)
    if addend:
        value = add(value, load_f32_first(addend + offset, left))
    value = activated(value, argument(record, 20), number(record, 21), number(record, 22))
    if argument(record, 24):
        value = fused_multiply_add(value, splat_f32(number(record, 25)), splat_f32(number(record, 26)))
    return add(value, load_f32_first(last + offset, left)) if last else value
