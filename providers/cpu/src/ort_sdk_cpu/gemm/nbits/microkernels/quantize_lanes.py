"""A row of activations for rows of packed integers, quantized with a scale for the elements of each 4 bytes of them.

A *span* is 64 bytes of a weight's row, 16 lanes of 4 bytes: ``64 * planes`` elements, where ``planes = 8 / bits`` elements share
a byte. Such small groups are quantized more closely than a weight's blocks; a lane's products are scaled by one multiplication.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.simd.arithmetic import (
    absolute,
    add,
    divide,
    maximum,
    multiply,
    reduce_add,
    round_to_even,
    splat_f32,
    to_f32,
    to_i32,
    zero_f32,
)
from ort_sdk_cpu.simd.memory import load_f32_masked, store_f32, store_i8, write_f32
from ort_sdk_cpu.simd.vector_types import I32, LANES, f32x16, operation

from .quantize_blocks import padded_size, separate_span

__all__ = ["quantize_row_by_lanes"]

_LARGEST = np.float32(127)
_SMALLEST = np.float32(1e-36)
"""Scales below are taken for this, whose inverse is finite."""
_ONE = np.float32(1)


def _shuffled(builder: Any, x: Any, lanes: list[int]) -> Any:
    return builder.shuffle_vector(x, x, ir.Constant(ir.VectorType(I32, LANES), lanes))


def _largest_of_lanes(planes: int) -> Any:
    def largest(builder: Any, x: Any) -> Any:
        distance = 1
        # A butterfly: all lanes of a group have its maximum after log2 of their number of steps.
        while distance < 4 * planes:
            other = _shuffled(builder, x, [lane ^ distance for lane in range(LANES)])
            # A maximum that keeps NaN: what is not finite shall not vanish.
            found = builder.select(builder.fcmp_unordered("uno", x, x), x, other)
            x = builder.select(builder.fcmp_ordered(">", x, other), x, found)
            distance *= 2
        return x

    largest.__name__ += f"_{planes}"
    return operation(f32x16, f32x16)(largest)


def _first_of_lanes(planes: int) -> Any:
    def first(builder: Any, x: Any) -> Any:
        return _shuffled(builder, x, [lane * 4 * planes % LANES for lane in range(LANES)])

    first.__name__ += f"_{planes}"
    return operation(f32x16, f32x16)(first)


def _arrange(planes: int) -> Any:
    largest_of_lanes, first_of_lanes = _largest_of_lanes(planes), _first_of_lanes(planes)

    @inline
    def quantize(x: Any, codes_place: int, scales_place: int) -> Any:
        """Write 16 elements and their lanes' scales; returns what they stand for."""
        # The largest magnitude becomes 127; -128 is not used, so that both signs are alike.
        scale = divide(largest_of_lanes(absolute(x)), splat_f32(_LARGEST))
        inverse = divide(splat_f32(_ONE), maximum(scale, splat_f32(_SMALLEST)))
        codes = to_i32(round_to_even(multiply(x, inverse)))
        store_i8(codes_place, codes)
        store_f32(scales_place, first_of_lanes(scale))
        return multiply(to_f32(codes), scale)

    @inline
    def arrange(row: int, size: int, block: int, target: int, sums: int) -> None:
        end, total = (size + block - 1) // block * block, zero_f32()
        for start in range(0, padded_size(size, block, planes), 64 * planes):
            for offset in range(0, 64 * planes, 16):
                element, scales = start + offset, target + 64 * planes + offset // planes
                total = add(total, quantize(load_f32_masked(row + element * 4, size - element), target + offset, scales))
                if (element + 16) % block == 0 and element < end:
                    write_f32(sums + element // block * 4, reduce_add(total))
                    total = zero_f32()
            separate_span(target, planes)
            target += 64 * planes + 64

    return arrange


quantize_row_by_lanes = {planes: _arrange(planes) for planes in (1, 2, 4)}
"""``arrange(row, size, block, target, sums)`` for each number of elements that share a byte.

* ``row``: address of ``size`` float32.
* ``block``: a weight's elements with one scale; a multiple of 16.
* ``target``: for each span ``64 * planes`` int8, in order of their position in a byte, and 16 float32, a lane's largest magnitude
  / 127. As many as cover whole blocks, zeros behind the last element; 64 bytes more are written.
* ``sums``: float32 sum of each block's quantized elements times their scales.
"""
