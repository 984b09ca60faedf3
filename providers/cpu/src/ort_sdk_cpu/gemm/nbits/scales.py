"""Scales of a MatMulNBits node as float16: for activations of 8 bits they are exact enough, and a tenth less memory is read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, OrtMemoryInfo, TensorElementType
from ort_sdk_cpu.elementwise.arguments.cast import MODULE as CAST
from ort_sdk_cpu.elementwise.arguments.cast import Cast
from ort_sdk_cpu.gemm.nbits.arguments.matmul_nbits import FLOAT16_SCALES_START
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.memory.allocator import CpuAllocator

__all__ = ["has_float16_scales", "pack_float16_scales"]

CHUNK_ELEMENTS = 1 << 16
"""Scales that are converted at a time, which stay in a core's cache."""
LARGEST_EXPONENT = 15
SMALLEST_NORMAL = np.float32(2.0**-14)
SMALLEST_EXPONENT = -100
"""Of the largest scale: that of its factor is one float32 has, too."""


def pack_float16_scales(scales: HostArray, allocator: Any) -> HostArray:
    """Scales of float32 as ``float16_scales`` of ``arguments.matmul_nbits``, in memory of an allocator's.

    They are rounded to 11 bits. The factor is the power of two that brings the largest near float16's largest; it is 0, and there
    are no scales, if one of them is not finite or so much smaller than the largest that it would lose more.

    Args:
        scales: one axis; they need not be aligned.
        allocator: of host memory; None for the provider's own.
    """
    factor = _factor(max(abs(float(scales.max())), abs(float(scales.min()))) if scales.size else 0.0)
    memory = allocator or CpuAllocator(OrtMemoryInfo())
    buffer: HostArray = memory.allocate((FLOAT16_SCALES_START + scales.size * 2,), TensorElementType.UINT8)
    start, float16 = buffer[:FLOAT16_SCALES_START].view(np.float32), buffer[FLOAT16_SCALES_START:].view(np.float16)
    start[:] = 0
    if factor and all(_convert(chunk, factor, part) for chunk, part in zip(_chunks(scales), _chunks(float16), strict=True)):
        start[0] = factor
    buffer.flags.writeable = False
    return buffer


def has_float16_scales(buffer: HostArray) -> bool:
    """Whether there are scales in a buffer of ``pack_float16_scales``."""
    return bool(buffer[:4].view(np.float32)[0])


def _chunks(numbers: HostArray) -> list[HostArray]:
    return np.split(numbers, range(CHUNK_ELEMENTS, numbers.size, CHUNK_ELEMENTS))


def _factor(largest: float) -> float:
    """0 for none."""
    if not math.isfinite(largest):
        return 0.0
    exponent = math.frexp(largest)[1]
    return math.ldexp(1.0, exponent - LARGEST_EXPONENT) if exponent > SMALLEST_EXPONENT else 0.0


def _convert(chunk: HostArray, factor: float, float16: HostArray) -> bool:
    """Write some scales over a factor; returns whether none loses more than by rounding."""
    scaled = chunk * np.float32(1 / factor)
    TaskCall(CAST, "f32_to_f16", Cast(scaled, float16, scaled.size)).run()
    magnitudes = np.abs(scaled, out=scaled)
    return not np.any((magnitudes < SMALLEST_NORMAL) & (magnitudes != 0))
