"""Reading two rows of a weight of packed integers side by side, some bytes apart; what follows is prefetched."""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.gemm.nbits.arguments.matmul_nbits import FLOAT16_SCALES_START
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.simd.arithmetic import multiply
from ort_sdk_cpu.simd.fp16 import load_f16, load_f16_masked
from ort_sdk_cpu.simd.memory import broadcast_f32, load_f32_masked, load_i32, load_i32_masked, prefetch_l2

__all__ = ["load_code_pair", "load_half_scale_pair", "load_scale_pair"]

# Into the second cache: the first one has few requests open at a time, and those that wait for memory would keep others out.
_AHEAD = 6144
"""Bytes ahead of the reading of a row that are prefetched."""
_AHEAD_OF_SCALES = 2048


@inline
def load_code_pair(address: int, apart: int, count: int) -> Any:
    """Up to 16 lanes of codes of both rows; ``count`` may be more."""
    prefetch_l2(address + _AHEAD)
    prefetch_l2(address + apart + _AHEAD)
    # Masked loads of what is whole would cost an instruction more.
    if count >= 16:
        return load_i32(address), load_i32(address + apart)
    return load_i32_masked(address, count), load_i32_masked(address + apart, count)


@inline
def load_scale_pair(address: int, apart: int, count: int) -> Any:
    """Scales of up to 16 blocks of both rows."""
    prefetch_l2(address + _AHEAD_OF_SCALES)
    prefetch_l2(address + apart + _AHEAD_OF_SCALES)
    return load_f32_masked(address, count), load_f32_masked(address + apart, count)


@inline
def load_half_scale_pair(start: int, first: int, apart: int, count: int) -> Any:
    """Of scales of float16, those of up to 16 blocks of a row, from the ``first`` one, and of the row ``apart`` scales behind."""
    address, factor = start + FLOAT16_SCALES_START + first * 2, broadcast_f32(start)
    prefetch_l2(address + _AHEAD_OF_SCALES)
    prefetch_l2(address + apart * 2 + _AHEAD_OF_SCALES)
    if count >= 16:
        return multiply(load_f16(address), factor), multiply(load_f16(address + apart * 2), factor)
    return (
        multiply(load_f16_masked(address, count), factor),
        multiply(load_f16_masked(address + apart * 2, count), factor),
    )
