"""MatMulNBits for few rows of activations: products with the rows of a weight [K, N], read in place.

The weight is read strip by strip, block by block along K: 64 bytes of each row of a block, then the next 64 bytes of these rows.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from ort_sdk_cpu.jit import inner, kernel
from ort_sdk_cpu.simd.activations import arrange_i8, sum_blocks
from ort_sdk_cpu.simd.arithmetic import add, zero_f32
from ort_sdk_cpu.simd.memory import load_f32, prefetch, read_f32, store_f32
from ort_sdk_cpu.simd.sequences import interleave
from ort_sdk_cpu.simd.strips import strip_operations

__all__ = ["columns_f32", "columns_i8"]

_STRIP = 64
_ROWS = 8
"""Rows of the weight read side by side."""
_ONE = np.float32(1)

_OF_2 = strip_operations(2)
_OF_4 = strip_operations(4)
_OF_8 = strip_operations(8)
_zero_i32_2, _load_i32_2, _store_i32_2 = _OF_2.zero_i32, _OF_2.load_i32, _OF_2.store_i32
_zero_f32_2, _load_f32_2, _store_f32_2 = _OF_2.zero_f32, _OF_2.load_f32, _OF_2.store_f32
_add_products_2, _finish_i32_2 = _OF_2.add_products, _OF_2.finish_i32
_add_values_2, _finish_f32_2 = _OF_2.add_values, _OF_2.finish_f32
_fill_2, _load_zeros_2 = _OF_2.fill, _OF_2.load_zeros
_zero_i32_4, _load_i32_4, _store_i32_4 = _OF_4.zero_i32, _OF_4.load_i32, _OF_4.store_i32
_zero_f32_4, _load_f32_4, _store_f32_4 = _OF_4.zero_f32, _OF_4.load_f32, _OF_4.store_f32
_add_products_4, _finish_i32_4 = _OF_4.add_products, _OF_4.finish_i32
_add_values_4, _finish_f32_4 = _OF_4.add_values, _OF_4.finish_f32
_fill_4, _load_zeros_4 = _OF_4.fill, _OF_4.load_zeros
_zero_i32_8, _load_i32_8, _store_i32_8 = _OF_8.zero_i32, _OF_8.load_i32, _OF_8.store_i32
_zero_f32_8, _load_f32_8, _store_f32_8 = _OF_8.zero_f32, _OF_8.load_f32, _OF_8.store_f32
_add_products_8, _finish_i32_8 = _OF_8.add_products, _OF_8.finish_i32
_add_values_8, _finish_f32_8 = _OF_8.add_values, _OF_8.finish_f32
_fill_8, _load_zeros_8 = _OF_8.fill, _OF_8.load_zeros


@inner
def _add_i8_2(codes: int, stride: int, rows: int, flip: int, x: int, partial: int, begins: int) -> Any:
    total = _zero_i32_2() if begins else _load_i32_2(partial)
    for row in range(0, rows, 4):
        total = _add_products_2(total, codes + row * stride, stride, rows - row, flip, x + row)
    return total


@inner
def _add_f32_2(codes: int, stride: int, rows: int, flip: int, x: int, partial: int, begins: int, table: Any) -> Any:
    total = _zero_f32_2() if begins else _load_f32_2(partial)
    for row in range(rows):
        total = _add_values_2(total, codes + row * stride, table, flip & 255, x + row * 4)
    return total


@inner
def _zeros_2(zeros: int, flip: int, default: Any, start: Any) -> Any:
    return _load_zeros_2(zeros, flip & 255, start) if zeros else _fill_2(default - start)


@inner
def _add_i8_4(codes: int, stride: int, rows: int, flip: int, x: int, partial: int, begins: int) -> Any:
    total = _zero_i32_4() if begins else _load_i32_4(partial)
    for row in range(0, rows, 4):
        total = _add_products_4(total, codes + row * stride, stride, rows - row, flip, x + row)
    return total


@inner
def _add_f32_4(codes: int, stride: int, rows: int, flip: int, x: int, partial: int, begins: int, table: Any) -> Any:
    total = _zero_f32_4() if begins else _load_f32_4(partial)
    for row in range(rows):
        total = _add_values_4(total, codes + row * stride, table, flip & 255, x + row * 4)
    return total


@inner
def _zeros_4(zeros: int, flip: int, default: Any, start: Any) -> Any:
    return _load_zeros_4(zeros, flip & 255, start) if zeros else _fill_4(default - start)


@inner
def _add_i8_8(codes: int, stride: int, rows: int, flip: int, x: int, partial: int, begins: int) -> Any:
    total = _zero_i32_8() if begins else _load_i32_8(partial)
    for row in range(0, rows, 4):
        total = _add_products_8(total, codes + row * stride, stride, rows - row, flip, x + row)
    return total


@inner
def _add_f32_8(codes: int, stride: int, rows: int, flip: int, x: int, partial: int, begins: int, table: Any) -> Any:
    total = _zero_f32_8() if begins else _load_f32_8(partial)
    for row in range(rows):
        total = _add_values_8(total, codes + row * stride, table, flip & 255, x + row * 4)
    return total


@inner
def _zeros_8(zeros: int, flip: int, default: Any, start: Any) -> Any:
    return _load_zeros_8(zeros, flip & 255, start) if zeros else _fill_8(default - start)


@inner
def _write_strip(sums: int, planes: int, bias: int, out: int, column: int, spare: int) -> None:
    """The columns of a strip in their order, into a row of the result."""
    for quarter in range(4):
        place = interleave(sums + quarter * planes * 64, spare, spare + 1024, planes, planes)
        for plane in range(planes):
            first = column + (quarter * planes + plane) * 16
            value = load_f32(place + plane * 64)
            if bias:
                value = add(value, load_f32(bias + first * 4))
            store_f32(out + first * 4, value)


@inner
def _ask_for(codes: int, stride: int, rows: int) -> None:
    """Ask for the same place of the next rows."""
    for row in range(rows, 2 * rows):
        prefetch(codes + row * stride)


@kernel(f"void({', '.join(['intp'] * 24)})", parallel=True)
def columns_i8(
    x: int,
    codes: int,
    c_stride: int,
    scales: int,
    s_stride: int,
    zeros: int,
    z_stride: int,
    bias: int,
    out: int,
    m: int,
    n: int,
    k: int,
    block: int,
    bits: int,
    default_zero: int,
    flip: int,
    x_codes: int,
    x_scales: int,
    x_sums: int,
    x_stride: int,
    b_stride: int,
    work: int,
    work_stride: int,
    parts: int,
) -> None:
    """Result [m, n] of float32 activations [m, k] and a weight [k, n], in products of 8-bit integers.

    Args:
        x, codes, scales, zeros, bias, out: addresses; ``zeros`` may be 0 for ``default_zero``, ``bias`` for none.
        c_stride: bytes from row to row of the codes, at least 64.
        s_stride, z_stride: bytes from block to block of the scales and the zero points.
        m, n, k: sizes of the product.
        block: elements that share a scale.
        bits: bits of an element.
        default_zero: zero point of all.
        flip: bits to turn over in each 4 bytes of the codes and of the zero points.
        x_codes, x_scales, x_sums: memory for ``arrange_i8``.
        x_stride: bytes from row to row of ``x_codes``.
        b_stride: bytes from row to row of what there is of each block.
        work: working memory of ``work_stride`` bytes for each part: 4 KB and 2 * m float32 for each column of its strips.
        work_stride: see ``work``.
        parts: tasks the strips are shared out to.
    """
    blocks, planes = (k + block - 1) // block, 8 // bits
    default = np.float32(default_zero)
    strips = (c_stride + _STRIP - 1) // _STRIP
    row_bytes = 4 * planes * 64
    for row in range(m):
        place = row * b_stride
        arrange_i8(x + row * k * 4, k, block, 1, x_codes + row * x_stride, x_scales + place, x_sums + place)
    for part in numba.prange(parts):
        spare = work + part * work_stride
        sums = spare + 4096
        start, stop = strips * part // parts, strips * (part + 1) // parts
        partials = sums + (stop - start) * m * row_bytes
        for index in range((stop - start) * m * 4 * planes):
            store_f32(sums + index * 64, zero_f32())
        for first in range(blocks):
            rows = min(block, k - first * block)
            for step in range(0, rows, _ROWS):
                count, ends = min(_ROWS, rows - step), step + _ROWS >= rows
                k_first = first * block + step
                for strip in range(start, stop):
                    byte = min(strip * _STRIP, c_stride - _STRIP)
                    place = codes + k_first * c_stride + byte
                    _ask_for(place, c_stride, count)
                    scale = scales + first * s_stride + byte * planes * 4
                    zero = zeros + first * z_stride + byte if zeros else 0
                    for row in range(m):
                        index = (strip - start) * m + row
                        target, partial = sums + index * row_bytes, partials + index * row_bytes
                        x_place, b_place = x_codes + row * x_stride + k_first, row * b_stride + first * 4
                        x_scale, x_sum = read_f32(x_scales + b_place), read_f32(x_sums + b_place)
                        if bits == 4:
                            total_4 = _add_i8_4(place, c_stride, count, flip, x_place, partial, step == 0)
                            if ends:
                                points_4 = _zeros_4(zero, flip, default, np.float32(0))
                                _finish_i32_4(target, total_4, scale, points_4, x_scale, x_sum)
                            else:
                                _store_i32_4(partial, total_4)
                        elif bits == 8:
                            total_8 = _add_i8_8(place, c_stride, count, flip, x_place, partial, step == 0)
                            if ends:
                                points_8 = _zeros_8(zero, flip, default, np.float32(0))
                                _finish_i32_8(target, total_8, scale, points_8, x_scale, x_sum)
                            else:
                                _store_i32_8(partial, total_8)
                        else:
                            total_2 = _add_i8_2(place, c_stride, count, flip, x_place, partial, step == 0)
                            if ends:
                                points_2 = _zeros_2(zero, flip, default, np.float32(0))
                                _finish_i32_2(target, total_2, scale, points_2, x_scale, x_sum)
                            else:
                                _store_i32_2(partial, total_2)
        for strip in range(start, stop):
            byte = min(strip * _STRIP, c_stride - _STRIP)
            for row in range(m):
                _write_strip(
                    sums + ((strip - start) * m + row) * row_bytes, planes, bias, out + row * n * 4, byte * planes, spare
                )


@kernel(f"void({', '.join(['intp'] * 22)})", parallel=True)
def columns_f32(
    x: int,
    codes: int,
    c_stride: int,
    scales: int,
    s_stride: int,
    zeros: int,
    z_stride: int,
    bias: int,
    out: int,
    m: int,
    n: int,
    k: int,
    block: int,
    bits: int,
    default_zero: int,
    flip: int,
    table: int,
    x_sums: int,
    b_stride: int,
    work: int,
    work_stride: int,
    parts: int,
) -> None:
    """Result [m, n] of float32 activations [m, k] and a weight [k, n], in products of float32.

    Args:
        x, codes, scales, zeros, bias, out: addresses; ``zeros`` may be 0 for ``default_zero``, ``bias`` for none.
        c_stride: bytes from row to row of the codes, at least 64.
        s_stride, z_stride: bytes from block to block of the scales and the zero points.
        m, n, k: sizes of the product.
        block: elements that share a scale.
        bits: bits of an element.
        default_zero: zero point of all.
        flip: bits to turn over in each 4 bytes of the codes and of the zero points.
        table: float32 values of the 16 codes of an element, with bits above it, as they are stored, from half their range.
        x_sums: memory for a float32 for each block of each row.
        b_stride: bytes from row to row of what there is of each block.
        work: working memory of ``work_stride`` bytes for each part: 4 KB and 2 * m float32 for each column of its strips.
        work_stride: see ``work``.
        parts: tasks the strips are shared out to.
    """
    blocks, planes = (k + block - 1) // block, 8 // bits
    default = np.float32(default_zero)
    strips = (c_stride + _STRIP - 1) // _STRIP
    row_bytes = 4 * planes * 64
    for row in range(m):
        sum_blocks(x + row * k * 4, k, block, x_sums + row * b_stride)
    for part in numba.prange(parts):
        spare = work + part * work_stride
        sums = spare + 4096
        start, stop = strips * part // parts, strips * (part + 1) // parts
        partials = sums + (stop - start) * m * row_bytes
        values = load_f32(table)
        for index in range((stop - start) * m * 4 * planes):
            store_f32(sums + index * 64, zero_f32())
        for first in range(blocks):
            rows = min(block, k - first * block)
            for step in range(0, rows, _ROWS):
                count, ends = min(_ROWS, rows - step), step + _ROWS >= rows
                k_first = first * block + step
                for strip in range(start, stop):
                    byte = min(strip * _STRIP, c_stride - _STRIP)
                    place = codes + k_first * c_stride + byte
                    _ask_for(place, c_stride, count)
                    scale = scales + first * s_stride + byte * planes * 4
                    zero = zeros + first * z_stride + byte if zeros else 0
                    for row in range(m):
                        index = (strip - start) * m + row
                        target, partial = sums + index * row_bytes, partials + index * row_bytes
                        x_place, x_sum = x + (row * k + k_first) * 4, read_f32(x_sums + row * b_stride + first * 4)
                        if bits == 4:
                            total_4 = _add_f32_4(place, c_stride, count, flip, x_place, partial, step == 0, values)
                            if ends:
                                points_4 = _zeros_4(zero, flip, default, np.float32(8))
                                _finish_f32_4(target, total_4, scale, points_4, _ONE, x_sum)
                            else:
                                _store_f32_4(partial, total_4)
                        elif bits == 8:
                            total_8 = _add_f32_8(place, c_stride, count, flip, x_place, partial, step == 0, values)
                            if ends:
                                points_8 = _zeros_8(zero, flip, default, np.float32(128))
                                _finish_f32_8(target, total_8, scale, points_8, _ONE, x_sum)
                            else:
                                _store_f32_8(partial, total_8)
                        else:
                            total_2 = _add_f32_2(place, c_stride, count, flip, x_place, partial, step == 0, values)
                            if ends:
                                points_2 = _zeros_2(zero, flip, default, np.float32(2))
                                _finish_f32_2(target, total_2, scale, points_2, _ONE, x_sum)
                            else:
                                _store_f32_2(partial, total_2)
        for strip in range(start, stop):
            byte = min(strip * _STRIP, c_stride - _STRIP)
            for row in range(m):
                _write_strip(
                    sums + ((strip - start) * m + row) * row_bytes, planes, bias, out + row * n * 4, byte * planes, spare
                )
