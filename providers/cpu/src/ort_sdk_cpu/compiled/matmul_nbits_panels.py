"""MatMulNBits for many rows of activations: panels of the weight, made from where it lies and used for all rows.

A *strip* is 32 columns of a weight [N, k_blocks, bytes], or those of 64 bytes in a row of a weight [K, N]. Of a strip and some
blocks, a panel is made: pairs of vectors of 16 columns, of uint8 by fours along K or of float32; then tiles of the result are
computed from it. Columns that share a byte lie in different vectors.

Sizes: ``lanes`` 4-byte lanes to a block of the weight's row [N, ...]; ``planes`` elements to a byte; ``pairs`` of vectors to a
strip.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from ort_sdk_cpu.jit import inner, kernel
from ort_sdk_cpu.simd.activations import arrange_i8
from ort_sdk_cpu.simd.arithmetic import (
    add,
    bit_and,
    bit_xor,
    multiply,
    shift_left,
    shift_right,
    splat_f32,
    splat_i32,
    subtract,
    to_f32,
)
from ort_sdk_cpu.simd.codes import interleave_u2, interleave_u4, interleave_u8, transpose_u2, transpose_u4, transpose_u8
from ort_sdk_cpu.simd.memory import (
    load_f32,
    load_f32_first,
    load_i32,
    load_u2_first,
    load_u4_first,
    load_u8,
    load_u8_first,
    prefetch,
    store_f32,
    store_f32_first,
)
from ort_sdk_cpu.simd.sequences import deinterleave, interleave
from ort_sdk_cpu.simd.shuffles import lookup, transpose_rows
from ort_sdk_cpu.simd.tiles import tile_operations

__all__ = ["ROWS_F32", "ROWS_I8", "panels_f32", "panels_i8"]

_AHEAD = 512
"""Bytes ahead of the reading that are asked for."""
_SLACK = 64 * 128
"""Bytes behind a pair of a panel of integers that may be written, too."""

ROWS_I8 = 6
"""Rows of a tile of products of integers."""
ROWS_F32 = 12
"""Rows of a tile of products of float32."""

_zero_products, _zero_6, _load_6, _store_6, _add_products, _, _add_scaled = tile_operations(ROWS_I8)
_, _zero_12, _load_12, _store_12, _, _add_outer, _ = tile_operations(ROWS_F32)


# Scales and zero points of a strip: for each pair of vectors, block and vector, 16 scales, and 16 zero points.


@inner
def _codes_first(address: int, count: int, bits: int) -> Any:
    if bits == 4:
        return load_u4_first(address, count)
    if bits == 2:
        return load_u2_first(address, count)
    return load_u8_first(address, count)


@inner
def _row_zero(zeros: int, first: int, count: int, bits: int, kind: int, start: Any) -> Any:
    """Zero points of up to 16 blocks of a row of a weight [N, ...]."""
    if kind == 2:
        return load_f32_first(zeros + first * 4, count)
    if kind == 1:
        return to_f32(_codes_first(zeros + first * bits // 8, count, bits))
    return splat_f32(start)


@inner
def _scales_of_rows(
    scales: int,
    zeros: int,
    z_stride: int,
    rows: int,
    blocks: int,
    first: int,
    count: int,
    bits: int,
    kind: int,
    start: Any,
    s_panel: int,
    z_panel: int,
    spare: int,
) -> None:
    """Those of up to 16 rows and some blocks of a weight [N, ...]."""
    for group in range(0, count, 16):
        left = min(count - group, 16)
        for row in range(16):
            place = zeros + min(row, rows - 1) * z_stride
            store_f32(spare + row * 64, _row_zero(place, first + group, left, bits, kind, start))
        transpose_rows(spare, 64, 16, 16, spare + 1024)
        transpose_rows(scales + (first + group) * 4, blocks * 4, rows, left, spare)
        for index in range(left):
            store_f32(s_panel + (group + index) * 128, load_f32(spare + index * 64))
            store_f32(z_panel + (group + index) * 128, load_f32(spare + 1024 + index * 64))


@inner
def _scales_of_columns(
    scales: int,
    s_stride: int,
    zeros: int,
    z_stride: int,
    count: int,
    bits: int,
    kind: int,
    start: Any,
    flip: int,
    s_panel: int,
    z_panel: int,
    spare: int,
) -> None:
    """Those of a strip of a weight [K, N], ``s_stride`` and ``z_stride`` bytes from block to block."""
    planes = 8 // bits
    mask = splat_i32((1 << bits) - 1)
    for quarter in range(4):
        for block in range(count):
            place = scales + block * s_stride + quarter * planes * 64
            place = deinterleave(place, spare, spare + 1024, planes, planes)
            for plane in range(planes):
                vector = quarter * planes + plane
                target = ((vector >> 1) * count + block) * 128 + (vector & 1) * 64
                store_f32(s_panel + target, load_f32(place + plane * 64))
                value = splat_f32(start)
                if kind:
                    codes = bit_xor(load_u8(zeros + block * z_stride + quarter * 16), splat_i32(flip))
                    value = to_f32(bit_and(shift_right(codes, plane * bits), mask))
                store_f32(z_panel + target, value)


@inner
def _scale_zeros(s_panel: int, z_panel: int, vectors: int) -> None:
    """Replace zero points by their products with the scales."""
    for index in range(vectors):
        store_f32(z_panel + index * 64, multiply(load_f32(z_panel + index * 64), load_f32(s_panel + index * 64)))


@inner
def _center_zeros(z_panel: int, vectors: int, half: Any) -> None:
    """Let zero points count from half the codes' range."""
    for index in range(vectors):
        store_f32(z_panel + index * 64, subtract(load_f32(z_panel + index * 64), splat_f32(half)))


# Panels of integers.


@inner
def _codes_of_rows(codes: int, stride: int, rows: int, count: int, bits: int, panel: int) -> None:
    """16 rows and ``count`` 4-byte lanes of a weight [N, ...] into a vector of a panel."""
    for start in range(0, count, 16):
        place = codes + start * 4
        for row in range(16):
            prefetch(place + row * stride + _AHEAD)
        if bits == 4:
            transpose_u4(place, stride, rows, count - start, panel + start * 256)
        elif bits == 8:
            transpose_u8(place, stride, rows, count - start, panel + start * 128)
        else:
            transpose_u2(place, stride, rows, count - start, panel + start * 512)


@inner
def _codes_of_columns(codes: int, stride: int, rows: int, steps: int, bits: int, flip: int, panel: int, pair_bytes: int) -> None:
    """A strip of a weight [K, N], four rows to a step, into a panel; past the last row nothing is written."""
    for step in range(min(steps, (rows + 3) // 4)):
        place, left, target = codes + step * 4 * stride, rows - step * 4, panel + step * 128
        for row in range(32, 36):
            prefetch(place + row * stride)
        if bits == 4:
            interleave_u4(place, stride, left, flip, target, pair_bytes)
        elif bits == 8:
            interleave_u8(place, stride, left, flip, target, pair_bytes)
        else:
            interleave_u2(place, stride, left, flip, target, pair_bytes)


@inner
def _add_steps(products: Any, panel: int, x: int, x_planes: int, steps: int, stride: int) -> Any:
    """Products of six rows of activations with ``steps`` 4-byte lanes of a block."""
    if x_planes == 1:
        for step in range(steps):
            products = _add_products(products, panel + step * 128, x + step * 4, stride)
    elif x_planes == 2:
        for step in range(steps):
            products = _add_products(products, panel + step * 256, x + step * 4, stride)
            products = _add_products(products, panel + step * 256 + 128, x + step * 4 + 64, stride)
    else:
        for step in range(4 * steps):
            products = _add_products(products, panel + step * 128, x + (step >> 2) * 4 + (step & 3) * 64, stride)
    return products


@inner
def _tile_i8(
    panel: int,
    s_panel: int,
    z_panel: int,
    x: int,
    x_planes: int,
    lanes: int,
    first: int,
    count: int,
    x_scales: int,
    x_sums: int,
    x_stride: int,
    b_stride: int,
    tile: Any,
) -> Any:
    """Products of six rows of activations with a pair of a panel."""
    piece = min(lanes, 16)
    for block in range(count):
        products = _zero_products()
        for start in range((first + block) * lanes, (first + block + 1) * lanes, piece):
            place = x + (start >> 4) * 64 * x_planes + (start & 15) * 4
            products = _add_steps(products, panel, place, x_planes, piece, x_stride)
            panel += piece * x_planes * 128
        offset = (first + block) * 4
        tile = _add_scaled(
            tile, products, s_panel + block * 128, z_panel + block * 128, x_scales + offset, x_sums + offset, b_stride
        )
    return tile


# Panels of float32.


@inner
def _value(codes: Any, shift: int, bits: int, table: Any, half: Any) -> Any:
    """Codes that start at bit ``shift`` of each lane, less half their range."""
    if bits == 8:
        return subtract(to_f32(shift_right(shift_left(codes, 24 - shift), 24)), half)
    return lookup(table, shift_right(codes, shift))


@inner
def _values_of_rows(
    codes: int,
    stride: int,
    rows: int,
    count: int,
    lanes: int,
    bits: int,
    table: Any,
    s_panel: int,
    z_panel: int,
    panel: int,
    spare: int,
) -> None:
    """16 rows and ``count`` 4-byte lanes of a weight [N, ...] into a vector of a panel."""
    per_lane, half = 32 // bits, splat_f32(np.float32(1 << (bits - 1)))
    piece = min(lanes, 16)
    for start in range(0, count, piece):
        if start & 15 == 0:
            for row in range(16):
                prefetch(codes + start * 4 + row * stride + _AHEAD)
            transpose_rows(codes + start * 4, stride, rows, count - start, spare)
        place = start // lanes * 128
        scale, zero = load_f32(s_panel + place), load_f32(z_panel + place)
        for lane in range(start, start + piece):
            value = load_i32(spare + (lane & 15) * 64)
            for part in range(per_lane):
                number = multiply(subtract(_value(value, part * bits, bits, table, half), zero), scale)
                store_f32(panel + (lane * per_lane + part) * 128, number)


@inner
def _values_of_columns(
    codes: int,
    stride: int,
    rows: int,
    block: int,
    bits: int,
    flip: int,
    table: Any,
    count: int,
    s_panel: int,
    z_panel: int,
    panel: int,
    pair_bytes: int,
) -> None:
    """A strip of ``rows`` rows of a weight [K, N] into a panel."""
    planes, half = 8 // bits, splat_f32(np.float32(1 << (bits - 1)))
    flips = splat_i32(flip)
    for first in range(0, rows, block):
        last = min(first + block, rows)
        for row in range(first, last):
            prefetch(codes + (row + block) * stride)
        for vector in range(4 * planes):
            place = (vector >> 1) * count * 128 + first // block * 128 + (vector & 1) * 64
            scale, zero = load_f32(s_panel + place), load_f32(z_panel + place)
            source, shift = codes + vector // planes * 16, vector % planes * bits
            target = panel + (vector >> 1) * pair_bytes + (vector & 1) * 64
            for row in range(first, last):
                value = bit_xor(load_u8(source + row * stride), flips)
                number = multiply(subtract(_value(value, shift, bits, table, half), zero), scale)
                store_f32(target + row * 128, number)


@inner
def _tile_f32(panel: int, x: int, count: int, tile: Any) -> Any:
    """Products of twelve rows of activations with a pair of a panel."""
    for step in range(count):
        tile = _add_outer(tile, panel + step * 128, x + step * 48)
    return tile


@inner
def _gather_rows(x: int, k: int, rows: int, target: int, spare: int) -> None:
    """Twelve rows of activations as [K, 12]; the last of ``rows`` stands for those missing."""
    for start in range(0, k, 16):
        transpose_rows(x + start * 4, k * 4, rows, k - start, spare)
        for step in range(start, min(start + 16, k)):
            store_f32(target + step * 48, load_f32(spare + (step & 15) * 64))


# Results of a strip.


@inner
def _write_results(sums: int, vectors: int, rows: int, planes: int, bias: int, out: int, n: int, column: int, spare: int) -> None:
    """Rows of ``vectors`` vectors, with the columns that share a byte brought together, into the result."""
    for row in range(rows):
        for start in range(0, vectors, planes):
            place = interleave(sums + (row * vectors + start) * 64, spare, spare + 1024, planes, planes)
            for plane in range(planes):
                first = column + (start + plane) * 16
                if first < n:
                    value = load_f32(place + plane * 64)
                    if bias:
                        value = add(value, load_f32_first(bias + first * 4, n - first))
                    store_f32_first(out + (row * n + first) * 4, value, n - first)


@inner
def _strip_of_rows(
    scales: int,
    zeros: int,
    z_stride: int,
    column: int,
    n: int,
    blocks: int,
    first: int,
    count: int,
    bits: int,
    kind: int,
    start: Any,
    s_panel: int,
    z_panel: int,
    spare: int,
) -> None:
    """Scales and zero points of a strip of a weight [N, ...]."""
    for half in range(2):
        row = min(column + half * 16, n - 1)
        _scales_of_rows(
            scales + row * blocks * 4,
            zeros + row * z_stride,
            z_stride,
            min(n - row, 16),
            blocks,
            first,
            count,
            bits,
            kind,
            start,
            s_panel + half * 64,
            z_panel + half * 64,
            spare,
        )


@kernel(f"void({', '.join(['intp'] * 28)})", parallel=True)
def panels_i8(
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
    zeros_kind: int,
    default_zero: int,
    by_columns: int,
    flip: int,
    chunk: int,
    x_codes: int,
    x_scales: int,
    x_sums: int,
    x_stride: int,
    b_stride: int,
    m_step: int,
    work: int,
    work_stride: int,
    parts: int,
) -> None:
    """Result [m, n] of float32 activations [m, k] and a weight, in products of 8-bit integers.

    Args:
        x, codes, scales, zeros, bias, out: addresses; ``bias`` may be 0.
        c_stride: bytes from row to row of the codes.
        s_stride: bytes from block to block of [K, N]'s scales.
        z_stride: the same for zero points; from row to row of [N, ...]'s.
        m, n, k: sizes of the product.
        block: elements that share a scale.
        bits: bits of an element.
        zeros_kind: 0 for ``default_zero``, 1 for packed ones, 2 for float32.
        default_zero: zero point of all.
        by_columns: whether the weight is [K, N]; ``n`` is then at least a strip's width and its rows are whole bytes.
        flip: bits to turn over in each 4 bytes of a weight [K, N] and its zero points.
        chunk: blocks to a panel; it and the activations' spans end together.
        x_codes, x_scales, x_sums: memory for ``arrange_i8``, of whole tiles' rows.
        x_stride, b_stride: bytes from row to row of the first and of the others.
        m_step: rows of activations a panel is used for at once, a multiple of a tile's.
        work: working memory of ``work_stride`` bytes for each part.
        work_stride: see ``work``.
        parts: tasks the strips are shared out to.
    """
    blocks, planes = (k + block - 1) // block, 8 // bits
    x_planes = 1 if by_columns else planes
    lanes = block // (4 * x_planes)
    pairs = 2 * planes if by_columns else 1
    width, pair_bytes, start = 32 * pairs, chunk * block * 32 + _SLACK, np.float32(default_zero)
    strips = (n + width - 1) // width
    for row in numba.prange(m):
        place = row * b_stride
        arrange_i8(x + row * k * 4, k, block, x_planes, x_codes + row * x_stride, x_scales + place, x_sums + place)
    for part in numba.prange(parts):
        spare = work + part * work_stride
        sums = spare + 4096
        s_panel = sums + m_step * width * 4
        z_panel = s_panel + pairs * chunk * 128
        panel = z_panel + pairs * chunk * 128
        for task in range(strips * part // parts, strips * (part + 1) // parts):
            column = min(task * width, n - width) if by_columns else task * width
            for m_first in range(0, m, m_step):
                m_count = min(m - m_first, m_step)
                for first in range(0, blocks, chunk):
                    count = min(chunk, blocks - first)
                    if by_columns:
                        place, z_place = scales + first * s_stride + column * 4, zeros + first * z_stride + column // planes
                        _scales_of_columns(
                            place,
                            s_stride,
                            z_place,
                            z_stride,
                            count,
                            bits,
                            zeros_kind,
                            start,
                            flip & 255,
                            s_panel,
                            z_panel,
                            spare,
                        )
                        place, rows = codes + first * block * c_stride + column // planes, k - first * block
                        _codes_of_columns(place, c_stride, rows, count * lanes, bits, flip, panel, pair_bytes)
                    else:
                        _strip_of_rows(
                            scales,
                            zeros,
                            z_stride,
                            column,
                            n,
                            blocks,
                            first,
                            count,
                            bits,
                            zeros_kind,
                            start,
                            s_panel,
                            z_panel,
                            spare,
                        )
                        for half in range(2):
                            row = min(column + half * 16, n - 1)
                            place = codes + row * c_stride + first * lanes * 4
                            _codes_of_rows(place, c_stride, min(n - row, 16), count * lanes, bits, panel + half * 64)
                    _scale_zeros(s_panel, z_panel, pairs * count * 2)
                    for pair in range(pairs):
                        for row in range(0, m_count, ROWS_I8):
                            target = sums + row * width * 4 + pair * 128
                            tile = _zero_6() if first == 0 else _load_6(target, width * 4)
                            place = (m_first + row) * b_stride
                            tile = _tile_i8(
                                panel + pair * pair_bytes,
                                s_panel + pair * count * 128,
                                z_panel + pair * count * 128,
                                x_codes + (m_first + row) * x_stride,
                                x_planes,
                                lanes,
                                first,
                                count,
                                x_scales + place,
                                x_sums + place,
                                x_stride,
                                b_stride,
                                tile,
                            )
                            _store_6(target, width * 4, tile)
                result_planes = planes if by_columns else 1
                _write_results(sums, 2 * pairs, m_count, result_planes, bias, out + m_first * n * 4, n, column, spare)


@kernel(f"void({', '.join(['intp'] * 26)})", parallel=True)
def panels_f32(
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
    zeros_kind: int,
    default_zero: int,
    by_columns: int,
    flip: int,
    chunk: int,
    x_rows: int,
    x_stride: int,
    table: int,
    m_step: int,
    work: int,
    work_stride: int,
    parts: int,
) -> None:
    """Result [m, n] of float32 activations [m, k] and a weight, in products of float32.

    Args:
        x, codes, scales, zeros, bias, out: addresses; ``bias`` may be 0.
        c_stride: bytes from row to row of the codes.
        s_stride: bytes from block to block of [K, N]'s scales.
        z_stride: the same for zero points; from row to row of [N, ...]'s.
        m, n, k: sizes of the product.
        block: elements that share a scale.
        bits: bits of an element.
        zeros_kind: 0 for ``default_zero``, 1 for packed ones, 2 for float32.
        default_zero: zero point of all.
        by_columns: whether the weight is [K, N]; ``n`` is then at least a strip's width and its rows are whole bytes.
        flip: bits to turn over in each 4 bytes of a weight [K, N] and its zero points.
        chunk: blocks to a panel; it and the activations' spans end together.
        x_rows: memory for the activations by tiles, ``x_stride`` bytes each: 48 to an element of K, and 1088.
        x_stride: see ``x_rows``.
        table: float32 values of the 16 codes of an element and bits above it, from half their range.
        m_step: rows of activations a panel is used for at once, a multiple of a tile's.
        work: working memory of ``work_stride`` bytes for each part.
        work_stride: see ``work``.
        parts: tasks the strips are shared out to.
    """
    blocks, planes = (k + block - 1) // block, 8 // bits
    lanes = block // (4 * planes)
    pairs = 2 * planes if by_columns else 1
    width, pair_bytes, start = 32 * pairs, chunk * block * 128, np.float32(default_zero)
    half_range = np.float32(1 << (bits - 1))
    strips = (n + width - 1) // width
    for index in numba.prange((m + ROWS_F32 - 1) // ROWS_F32):
        first_row, target = index * ROWS_F32, x_rows + index * x_stride
        _gather_rows(x + first_row * k * 4, k, min(m - first_row, 16), target, target + k * 48 + 64)
    for part in numba.prange(parts):
        values = load_f32(table)
        spare = work + part * work_stride
        sums = spare + 4096
        s_panel = sums + m_step * width * 4
        z_panel = s_panel + pairs * chunk * 128
        panel = z_panel + pairs * chunk * 128
        for task in range(strips * part // parts, strips * (part + 1) // parts):
            column = min(task * width, n - width) if by_columns else task * width
            for m_first in range(0, m, m_step):
                m_count = min(m - m_first, m_step)
                for first in range(0, blocks, chunk):
                    count = min(chunk, blocks - first)
                    steps = min(count * block, k - first * block)
                    if by_columns:
                        place, z_place = scales + first * s_stride + column * 4, zeros + first * z_stride + column // planes
                        _scales_of_columns(
                            place,
                            s_stride,
                            z_place,
                            z_stride,
                            count,
                            bits,
                            zeros_kind,
                            start,
                            flip & 255,
                            s_panel,
                            z_panel,
                            spare,
                        )
                        _center_zeros(z_panel, pairs * count * 2, half_range)
                        place = codes + first * block * c_stride + column // planes
                        _values_of_columns(
                            place, c_stride, steps, block, bits, flip & 255, values, count, s_panel, z_panel, panel, pair_bytes
                        )
                    else:
                        _strip_of_rows(
                            scales,
                            zeros,
                            z_stride,
                            column,
                            n,
                            blocks,
                            first,
                            count,
                            bits,
                            zeros_kind,
                            start,
                            s_panel,
                            z_panel,
                            spare,
                        )
                        _center_zeros(z_panel, count * 2, half_range)
                        for half in range(2):
                            row, offset = min(column + half * 16, n - 1), half * 64
                            place, rows = codes + row * c_stride + first * lanes * 4, min(n - row, 16)
                            _values_of_rows(
                                place,
                                c_stride,
                                rows,
                                count * lanes,
                                lanes,
                                bits,
                                values,
                                s_panel + offset,
                                z_panel + offset,
                                panel + offset,
                                spare,
                            )
                    for pair in range(pairs):
                        for row in range(0, m_count, ROWS_F32):
                            target = sums + row * width * 4 + pair * 128
                            tile = _zero_12() if first == 0 else _load_12(target, width * 4)
                            place = x_rows + (m_first + row) // ROWS_F32 * x_stride + first * block * 48
                            _store_12(target, width * 4, _tile_f32(panel + pair * pair_bytes, place, steps, tile))
                result_planes = planes if by_columns else 1
                _write_results(sums, 2 * pairs, m_count, result_planes, bias, out + m_first * n * 4, n, column, spare)
