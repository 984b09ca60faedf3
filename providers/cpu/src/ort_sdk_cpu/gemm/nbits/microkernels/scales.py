"""Scales and zero points of a strip of a weight of packed integers, in the order of a panel.

A strip has pairs of vectors of 16 columns. For each pair, block and vector of the pair, there are 16 scales at ``s_panel`` and 16
zero points at ``z_panel``. ``kind``: 0 for the zero point ``start`` everywhere, 1 for packed ones, 2 for float32.
"""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.simd.arithmetic import bit_and, bit_xor, multiply, shift_right, splat_f32, splat_i32, subtract, to_f32
from ort_sdk_cpu.simd.memory import load_f32, load_f32_masked, load_u8, store_f32
from ort_sdk_cpu.simd.shuffles import transpose_rows
from ort_sdk_cpu.simd.transpose import deinterleave

from .unpack import FIRST_CODES

__all__ = ["center_zeros", "scale_zeros", "scales_of_columns", "scales_of_rows"]


def _row_zero(bits: int) -> Any:
    """Zero points of up to 16 blocks of a row of a weight [N, ...]."""
    first_codes = FIRST_CODES[bits]

    @inline
    def row_zero(zeros: int, first: int, count: int, kind: int) -> Any:
        if kind == 2:
            # These need not be whole numbers.
            return load_f32_masked(zeros + first * 4, count)
        return to_f32(first_codes(zeros + first * bits // 8, count))

    return row_zero


def scales_of_rows(bits: int) -> Any:
    """Function that brings those of up to 16 rows and some blocks of a weight [N, ...] into a vector of a panel."""
    row_zero = _row_zero(bits)

    @inline
    def fill(
        scales: int,
        s_stride: int,
        zeros: int,
        z_stride: int,
        rows: int,
        first: int,
        count: int,
        kind: int,
        start: Any,
        s_panel: int,
        z_panel: int,
        workspace: int,
    ) -> None:
        for group in range(0, count, 16):
            left = min(count - group, 16)
            # Zero points are read row by row, as they are packed, and transposed like scales.
            if kind:
                for row in range(16):
                    place = zeros + min(row, rows - 1) * z_stride
                    store_f32(workspace + row * 64, row_zero(place, first + group, left, kind))
                transpose_rows(workspace, 64, 16, 16, workspace + 1024)
            transpose_rows(scales + (first + group) * 4, s_stride, rows, left, workspace)
            for index in range(left):
                store_f32(s_panel + (group + index) * 128, load_f32(workspace + index * 64))
                zero = load_f32(workspace + 1024 + index * 64) if kind else splat_f32(start)
                store_f32(z_panel + (group + index) * 128, zero)

    return fill


def scales_of_columns(bits: int) -> Any:
    """Function that brings those of a strip of a weight [K, N] into a panel, ``*_stride`` bytes from block to block."""
    planes, mask = 8 // bits, (1 << bits) - 1

    @inline
    def fill(
        scales: int,
        s_stride: int,
        zeros: int,
        z_stride: int,
        count: int,
        kind: int,
        start: Any,
        flip: int,
        s_panel: int,
        z_panel: int,
        workspace: int,
    ) -> None:
        for block in range(count):
            for quarter in range(4):
                place = scales + block * s_stride + quarter * planes * 64
                # Columns that share a byte go to vectors of their own.
                place = deinterleave(place, workspace, workspace + 1024, planes, planes)
                for plane in range(planes):
                    vector = quarter * planes + plane
                    target = ((vector >> 1) * count + block) * 128 + (vector & 1) * 64
                    store_f32(s_panel + target, load_f32(place + plane * 64))
                    value = splat_f32(start)
                    if kind:
                        codes = bit_xor(load_u8(zeros + block * z_stride + quarter * 16), splat_i32(flip))
                        value = to_f32(bit_and(shift_right(codes, plane * bits), splat_i32(mask)))
                    store_f32(z_panel + target, value)

    return fill


@inline
def scale_zeros(s_panel: int, z_panel: int, vectors: int) -> None:
    """Replace zero points by their products with the scales."""
    for index in range(vectors):
        # Then a block's offset is one multiply-add with the sum of activations.
        store_f32(z_panel + index * 64, multiply(load_f32(z_panel + index * 64), load_f32(s_panel + index * 64)))


@inline
def center_zeros(z_panel: int, vectors: int, half: Any) -> None:
    """Let zero points count from half the codes' range."""
    for index in range(vectors):
        store_f32(z_panel + index * 64, subtract(load_f32(z_panel + index * 64), splat_f32(half)))
