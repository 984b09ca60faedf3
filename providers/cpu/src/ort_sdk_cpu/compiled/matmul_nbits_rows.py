"""MatMulNBits for few rows of activations: dot products with the rows of a weight [N, k_blocks, bytes], read in place.

A weight's row is read 64 bytes at a time, a *span*: 16 lanes of 4 bytes, which belong to one block or several. Sixteen blocks,
a *group*, are ``lanes`` spans, where ``lanes`` is the number of 4-byte lanes of a block. Four rows are read side by side, so
that activations are loaded once for all four.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from ort_sdk_cpu.jit import inner, kernel
from ort_sdk_cpu.simd.activations import arrange_f32, arrange_i8
from ort_sdk_cpu.simd.arithmetic import (
    bit_and,
    bit_xor,
    fused_multiply_add,
    multiply,
    reduce_add,
    shift_left,
    shift_right,
    shift_right_signed,
    splat_f32,
    splat_i32,
    subtract,
    to_f32,
    zero_f32,
    zero_i32,
)
from ort_sdk_cpu.simd.memory import (
    load_f32,
    load_f32_first,
    load_i32,
    load_i32_first,
    load_u2_first,
    load_u4_first,
    load_u8_first,
    prefetch,
    read_f32,
    write_f32,
)
from ort_sdk_cpu.simd.products import add_products_u8_i8
from ort_sdk_cpu.simd.shuffles import lookup

__all__ = ["rows_f32", "rows_i8"]

_AHEAD = 2048
"""Bytes ahead of the reading that are asked for."""


@inner
def _codes_first(address: int, count: int, bits: int) -> Any:
    if bits == 4:
        return load_u4_first(address, count)
    if bits == 2:
        return load_u2_first(address, count)
    return load_u8_first(address, count)


@inner
def _offsets(address: int, first: int, count: int, bits: int, is_float: int) -> Any:
    """Zero points of up to 16 blocks."""
    if is_float:
        return load_f32_first(address + first * 4, count)
    return to_f32(_codes_first(address + first * bits // 8, count, bits))


@inner
def _load_rows(address: int, stride: int, count: int) -> Any:
    if count >= 16:
        prefetch(address + 4 * stride)
        prefetch(address + 5 * stride)
        prefetch(address + 6 * stride)
        prefetch(address + 7 * stride)
        return load_i32(address), load_i32(address + stride), load_i32(address + 2 * stride), load_i32(address + 3 * stride)
    return (
        load_i32_first(address, count),
        load_i32_first(address + stride, count),
        load_i32_first(address + 2 * stride, count),
        load_i32_first(address + 3 * stride, count),
    )


@inner
def _zeros_f32() -> Any:
    return zero_f32(), zero_f32(), zero_f32(), zero_f32()


@inner
def _add_integer_products(total: Any, codes: Any, shift: int, mask: Any, x: int) -> Any:
    """Products of the codes that start at bit ``shift`` of each byte with quantised activations."""
    return add_products_u8_i8(total, bit_and(shift_right(codes, shift), mask), load_i32(x))


@inner
def _dot_i8(codes: Any, x: int, bits: int) -> Any:
    """Products of a span with quantised activations, summed over the elements of each lane."""
    if bits == 4:
        mask = splat_i32(0x0F0F0F0F)
        low = _add_integer_products(zero_i32(), codes, 0, mask, x)
        return to_f32(_add_integer_products(low, codes, 4, mask, x + 64))
    if bits == 8:
        return to_f32(add_products_u8_i8(zero_i32(), codes, load_i32(x)))
    mask = splat_i32(0x03030303)
    low = _add_integer_products(_add_integer_products(zero_i32(), codes, 0, mask, x), codes, 2, mask, x + 64)
    return to_f32(_add_integer_products(_add_integer_products(low, codes, 4, mask, x + 128), codes, 6, mask, x + 192))


@inner
def _add_code_products(totals: Any, codes: Any, shift: int, x: int, table: Any) -> Any:
    """Products of the codes that start at bit ``shift`` of each lane with activations as they are."""
    v = load_f32(x)
    return (
        fused_multiply_add(lookup(table, shift_right(codes[0], shift)), v, totals[0]),
        fused_multiply_add(lookup(table, shift_right(codes[1], shift)), v, totals[1]),
        fused_multiply_add(lookup(table, shift_right(codes[2], shift)), v, totals[2]),
        fused_multiply_add(lookup(table, shift_right(codes[3], shift)), v, totals[3]),
    )


@inner
def _signed_byte(codes: Any, shift: int) -> Any:
    """The byte that ends ``shift`` bits below the top, less 128."""
    raised = bit_xor(codes, splat_i32(np.int32(-0x7F7F7F80)))
    return to_f32(shift_right_signed(shift_left(raised, shift), 24))


@inner
def _add_byte_products(totals: Any, codes: Any, shift: int, x: int) -> Any:
    v = load_f32(x)
    return (
        fused_multiply_add(_signed_byte(codes[0], shift), v, totals[0]),
        fused_multiply_add(_signed_byte(codes[1], shift), v, totals[1]),
        fused_multiply_add(_signed_byte(codes[2], shift), v, totals[2]),
        fused_multiply_add(_signed_byte(codes[3], shift), v, totals[3]),
    )


@inner
def _dot_f32(codes: Any, x: int, bits: int, table: Any) -> Any:
    """Products of a span with activations as they are; codes count from half their range."""
    totals = _zeros_f32()
    if bits == 8:
        totals = _add_byte_products(totals, codes, 24, x)
        totals = _add_byte_products(totals, codes, 16, x + 64)
        totals = _add_byte_products(totals, codes, 8, x + 128)
        return _add_byte_products(totals, codes, 0, x + 192)
    if bits == 2:
        for step in range(16):
            totals = _add_code_products(totals, codes, 2 * step, x + step * 64, table)
        return totals
    totals = _add_code_products(totals, codes, 0, x, table)
    totals = _add_code_products(totals, codes, 4, x + 64, table)
    totals = _add_code_products(totals, codes, 8, x + 128, table)
    totals = _add_code_products(totals, codes, 12, x + 192, table)
    totals = _add_code_products(totals, codes, 16, x + 256, table)
    totals = _add_code_products(totals, codes, 20, x + 320, table)
    totals = _add_code_products(totals, codes, 24, x + 384, table)
    return _add_code_products(totals, codes, 28, x + 448, table)


@inner
def _add_span(totals: Any, dots: Any, factors: Any, index: Any) -> Any:
    """Add a span's products, each lane times its block's factor."""
    return (
        fused_multiply_add(dots[0], lookup(factors[0], index), totals[0]),
        fused_multiply_add(dots[1], lookup(factors[1], index), totals[1]),
        fused_multiply_add(dots[2], lookup(factors[2], index), totals[2]),
        fused_multiply_add(dots[3], lookup(factors[3], index), totals[3]),
    )


@inner
def _load_scales(address: int, stride: int, count: int) -> Any:
    prefetch(address + 4 * stride)
    prefetch(address + 5 * stride)
    prefetch(address + 6 * stride)
    prefetch(address + 7 * stride)
    return (
        load_f32_first(address, count),
        load_f32_first(address + stride, count),
        load_f32_first(address + 2 * stride, count),
        load_f32_first(address + 3 * stride, count),
    )


@inner
def _times(vectors: Any, factor: Any) -> Any:
    return (
        multiply(vectors[0], factor),
        multiply(vectors[1], factor),
        multiply(vectors[2], factor),
        multiply(vectors[3], factor),
    )


@inner
def _add_offsets(
    totals: Any, scales: Any, sums: Any, zeros: int, stride: int, first: int, count: int, bits: int, zeros_kind: int, half: Any
) -> Any:
    """Add zero point * scale * sum of the activations, for up to 16 blocks; zero points count from ``half``."""
    if zeros_kind == 0:
        return totals
    is_float, offset = zeros_kind == 2, splat_f32(half)
    return (
        fused_multiply_add(multiply(subtract(_offsets(zeros, first, count, bits, is_float), offset), scales[0]), sums, totals[0]),
        fused_multiply_add(
            multiply(subtract(_offsets(zeros + stride, first, count, bits, is_float), offset), scales[1]), sums, totals[1]
        ),
        fused_multiply_add(
            multiply(subtract(_offsets(zeros + 2 * stride, first, count, bits, is_float), offset), scales[2]), sums, totals[2]
        ),
        fused_multiply_add(
            multiply(subtract(_offsets(zeros + 3 * stride, first, count, bits, is_float), offset), scales[3]), sums, totals[3]
        ),
    )


@inner
def _sums(totals: Any, offsets: Any) -> Any:
    return (
        reduce_add(subtract(totals[0], offsets[0])),
        reduce_add(subtract(totals[1], offsets[1])),
        reduce_add(subtract(totals[2], offsets[2])),
        reduce_add(subtract(totals[3], offsets[3])),
    )


@inner
def _row_i8(
    codes: int,
    scales: int,
    zeros: int,
    x: int,
    x_scales: int,
    x_sums: int,
    blocks: int,
    bits: int,
    lanes: int,
    kind: int,
    x_step: int,
    indices: int,
) -> Any:
    """Dot product of a row with one row of quantised activations."""
    total, offset = zero_f32(), zero_f32()
    dwords = blocks * lanes
    for first in range(0, blocks, 16):
        count = blocks - first
        prefetch(scales + first * 4 + _AHEAD)
        scale = load_f32_first(scales + first * 4, count)
        sums = multiply(scale, load_f32_first(x_sums + first * 4, count))
        zero = _offsets(zeros, first, count, bits, kind == 2) if kind else splat_f32(np.float32(1 << (bits - 1)))
        offset = fused_multiply_add(sums, zero, offset)
        factors = multiply(scale, load_f32_first(x_scales + first * 4, count))
        left = dwords - first * lanes
        for span in range(min(lanes, left // 16)):
            prefetch(codes + _AHEAD)
            dots = _dot_i8(load_i32(codes), x, bits)
            total = fused_multiply_add(dots, lookup(factors, load_i32(indices + span * 64)), total)
            codes += 64
            x += x_step
        if left < lanes * 16 and left % 16:
            dots = _dot_i8(load_i32_first(codes, left % 16), x, bits)
            total = fused_multiply_add(dots, lookup(factors, load_i32(indices + left // 16 * 64)), total)
    return reduce_add(subtract(total, offset))


@inner
def _four_rows_f32(
    codes: int,
    stride: int,
    scales: int,
    s_stride: int,
    zeros: int,
    z_stride: int,
    x: int,
    x_sums: int,
    blocks: int,
    bits: int,
    lanes: int,
    kind: int,
    x_step: int,
    indices: int,
    table: Any,
) -> Any:
    """The same with activations as they are."""
    totals, offsets = _zeros_f32(), _zeros_f32()
    dwords = blocks * lanes
    for first in range(0, blocks, 16):
        count = blocks - first
        scale = _load_scales(scales + first * 4, s_stride, count)
        if kind:
            sums, half = load_f32_first(x_sums + first * 4, count), np.float32(1 << (bits - 1))
            offsets = _add_offsets(offsets, scale, sums, zeros, z_stride, first, count, bits, kind, half)
        for span in range(min(lanes, (dwords - first * lanes + 15) // 16)):
            rows = _load_rows(codes, stride, dwords - first * lanes - span * 16)
            totals = _add_span(totals, _dot_f32(rows, x, bits, table), scale, load_i32(indices + span * 64))
            codes += 64
            x += x_step
    return _sums(totals, offsets)


@inner
def _write_four(out: int, bias: int, column: int, n: int, values: Any) -> None:
    for index in range(min(4, n - column)):
        start = read_f32(bias + (column + index) * 4) if bias else np.float32(0)
        write_f32(out + (column + index) * 4, values[index] + start)


@kernel(f"void({', '.join(['intp'] * 20)})", parallel=True)
def rows_i8(
    x: int,
    codes: int,
    scales: int,
    zeros: int,
    bias: int,
    out: int,
    m: int,
    n: int,
    k: int,
    block: int,
    bits: int,
    zeros_kind: int,
    z_stride: int,
    indices: int,
    x_codes: int,
    x_scales: int,
    x_sums: int,
    x_stride: int,
    b_stride: int,
    parts: int,
) -> None:
    """Result [m, n] of float32 activations [m, k] and a weight [n, k_blocks, bytes].

    Args:
        x, codes, scales, zeros, bias, out: addresses; ``bias`` may be 0.
        m, n, k: sizes of the product.
        block: elements that share a scale.
        bits: bits of an element.
        zeros_kind: 0 for none, which means half the codes' range, 1 for packed ones, 2 for float32.
        z_stride: bytes from a row's zero points to the next's.
        indices: int32 block in its group that each lane of each of ``lanes`` spans belongs to.
        x_codes, x_scales, x_sums: memory for ``arrange_i8``.
        x_stride: bytes from row to row of ``x_codes``.
        b_stride: bytes from row to row of what there is of each block.
        parts: tasks the columns are shared out to.
    """
    blocks, lanes, planes = (k + block - 1) // block, block * bits // 32, 8 // bits
    for row in range(m):
        place = row * b_stride
        arrange_i8(x + row * k * 4, k, block, planes, x_codes + row * x_stride, x_scales + place, x_sums + place)
    for part in numba.prange(parts):
        for column in range(n * part // parts, n * (part + 1) // parts):
            start = read_f32(bias + column * 4) if bias else np.float32(0)
            for row in range(m):
                value = _row_i8(
                    codes + column * blocks * lanes * 4,
                    scales + column * blocks * 4,
                    zeros + column * z_stride,
                    x_codes + row * x_stride,
                    x_scales + row * b_stride,
                    x_sums + row * b_stride,
                    blocks,
                    bits,
                    lanes,
                    zeros_kind,
                    64 * planes,
                    indices,
                )
                write_f32(out + (row * n + column) * 4, value + start)


@kernel(f"void({', '.join(['intp'] * 21)})", parallel=True)
def rows_f32(
    x: int,
    codes: int,
    scales: int,
    zeros: int,
    bias: int,
    out: int,
    m: int,
    n: int,
    k: int,
    block: int,
    bits: int,
    zeros_kind: int,
    z_stride: int,
    indices: int,
    x_codes: int,
    table: int,
    x_sums: int,
    x_stride: int,
    b_stride: int,
    spare: int,
    parts: int,
) -> None:
    """Result [m, n] of float32 activations [m, k] and a weight [n, k_blocks, bytes].

    Args:
        x, codes, scales, zeros, bias, out: addresses; ``bias`` may be 0.
        m, n, k: sizes of the product.
        block: elements that share a scale.
        bits: bits of an element.
        zeros_kind: 0 for none, which means half the codes' range, 1 for packed ones, 2 for float32.
        z_stride: bytes from a row's zero points to the next's.
        indices: int32 block in its group that each lane of each of ``lanes`` spans belongs to.
        x_codes, x_sums: memory for ``arrange_f32``.
        table: float32 values of the 16 codes of an element and bits above it, from half their range.
        x_stride: bytes from row to row of ``x_codes``.
        b_stride: bytes from row to row of what there is of each block.
        spare: memory for ``arrange_f32``.
        parts: tasks the columns are shared out to.
    """
    blocks, lanes, planes = (k + block - 1) // block, block * bits // 32, 8 // bits
    for row in range(m):
        arrange_f32(x + row * k * 4, k, block, planes, x_codes + row * x_stride, x_sums + row * b_stride, spare)
    fours = (n + 3) // 4
    for part in numba.prange(parts):
        values_of_codes = load_f32(table)
        for four in range(fours * part // parts, fours * (part + 1) // parts):
            column = max(min(four * 4, n - 4), 0)
            step = 1 if n >= 4 else 0
            for row in range(m):
                values = _four_rows_f32(
                    codes + column * blocks * lanes * 4,
                    step * blocks * lanes * 4,
                    scales + column * blocks * 4,
                    step * blocks * 4,
                    zeros + column * z_stride,
                    step * z_stride,
                    x_codes + row * x_stride,
                    x_sums + row * b_stride,
                    blocks,
                    bits,
                    lanes,
                    zeros_kind,
                    256 * planes,
                    indices,
                    values_of_codes,
                )
                _write_four(out + row * n * 4, bias, column, n, values)
