"""What is done to the sums of a convolution: ``conv.arguments.direct.Epilogue``, and what is added before the activation."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.kernel.microkernels.activation_codes import ActivationKind
from ort_sdk_cpu.simd.arithmetic import add, fused_multiply_add, maximum, minimum, multiply, splat_f32, zero_f32
from ort_sdk_cpu.simd.math import sigmoid, silu
from ort_sdk_cpu.simd.memory import load_f32_masked

__all__ = ["activated", "finished"]

_IDENTITY, _CLIP = int(ActivationKind.IDENTITY), int(ActivationKind.CLIP)
_LEAKY_RELU, _SWISH, _SIGMOID = int(ActivationKind.LEAKY_RELU), int(ActivationKind.SWISH), int(ActivationKind.SIGMOID)


@inline
def activated(value: Any, activation: int, first: float, second: float) -> Any:
    """An activation of a vector: none, Clip, LeakyRelu, Swish, Sigmoid, or HardSwish for any other; its two parameters."""
    if activation == _IDENTITY:
        return value
    if activation == _SWISH:
        return silu(value, first)
    if activation == _SIGMOID:
        return sigmoid(value)
    # The branches are on an argument of the task, so that they are predicted; each vector would pay for computing all functions.
    low, high = splat_f32(first), splat_f32(second)
    if activation == _CLIP:
        return minimum(high, maximum(low, value))
    if activation == _LEAKY_RELU:
        return fused_multiply_add(minimum(value, zero_f32()), low, maximum(value, zero_f32()))
    gate = fused_multiply_add(value, low, high)
    return multiply(value, minimum(splat_f32(np.float32(1)), maximum(zero_f32(), gate)))


@inline
def finished(args: Any, offset: int, left: int, value: Any) -> Any:
    """All that may be done to a sum with its bias.

    Args:
        args: of the task, with ``added`` and ``epilogue``.
        offset: bytes from the output's begin, and that of what is added, to these channels.
        left: channels from these on.
        value: the sums.
    """
    # Most tasks have neither: both tests are predicted.
    addend, last = args.added, args.epilogue.last
    if addend:
        value = add(value, load_f32_masked(addend + offset, left))
    value = activated(value, args.epilogue.activation, args.epilogue.alpha, args.epilogue.beta)
    if args.epilogue.is_scaled:
        value = fused_multiply_add(value, splat_f32(args.epilogue.scale), splat_f32(args.epilogue.shift))
    return add(value, load_f32_masked(last + offset, left)) if last else value
