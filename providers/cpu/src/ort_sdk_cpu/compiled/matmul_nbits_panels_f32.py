"""MatMulNBits by panels of the weight, as float32. For the order see ``simd.panel_order``.

Arguments: see ``simd.nbits_arguments``; ``X`` has tiles of twelve rows of activations as [K, 12], ``X_STRIDE`` bytes each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit import inner
from ort_sdk_cpu.machine_code import Task, task
from ort_sdk_cpu.simd.arithmetic import bit_xor, multiply, shift_left, shift_right, splat_f32, splat_i32, subtract, to_f32
from ort_sdk_cpu.simd.block_scales import center_zeros, scales_of_columns, scales_of_rows
from ort_sdk_cpu.simd.memory import load_f32, load_i32, load_u8, prefetch, store_f32
from ort_sdk_cpu.simd.nbits_arguments import (
    BLOCK,
    CHUNK,
    CODES,
    CODES_STRIDE,
    DEFAULT_ZERO,
    FLIP,
    SCALES,
    SCALES_STRIDE,
    TABLE,
    X_STRIDE,
    ZEROS,
    ZEROS_KIND,
    ZEROS_STRIDE,
    K,
    N,
    X,
)
from ort_sdk_cpu.simd.panel_order import ask_for, run_jobs
from ort_sdk_cpu.simd.records import argument
from ort_sdk_cpu.simd.shuffles import lookup, transpose_rows
from ort_sdk_cpu.simd.tiles import tile_operations

__all__ = [
    "panels_of_columns_f32_2",
    "panels_of_columns_f32_4",
    "panels_of_columns_f32_8",
    "panels_of_rows_f32_2",
    "panels_of_rows_f32_4",
    "panels_of_rows_f32_8",
]

_LARGE, _SMALL = 12, 4
"""Rows of tiles."""


def _value(bits: int) -> Any:
    """Codes that start at bit ``shift`` of each lane, less half their range."""

    @inner
    def value_of_byte(codes: Any, shift: int, _table: Any) -> Any:
        return subtract(to_f32(shift_right(shift_left(codes, 24 - shift), 24)), splat_f32(np.float32(128)))

    @inner
    def value(codes: Any, shift: int, table: Any) -> Any:
        return lookup(table, shift_right(codes, shift))

    return value_of_byte if bits == 8 else value


def _values_of_rows(bits: int) -> Any:
    """16 rows and ``count`` 4-byte lanes of a weight [N, ...] into a vector of a panel."""
    per_lane, value_of = 32 // bits, _value(bits)

    @inner
    def values_of(
        codes: int,
        stride: int,
        rows: int,
        count: int,
        lanes: int,
        table: Any,
        s_panel: int,
        z_panel: int,
        panel: int,
        spare: int,
        soon: int,
    ) -> None:
        piece = min(lanes, 16)
        for start in range(0, count, piece):
            if start & 15 == 0:
                for line in range(16):
                    prefetch(soon + (start + line) * 64)
                transpose_rows(codes + start * 4, stride, rows, count - start, spare)
            place = start // lanes * 128
            scale, zero = load_f32(s_panel + place), load_f32(z_panel + place)
            for lane in range(start, start + piece):
                value = load_i32(spare + (lane & 15) * 64)
                for part in range(per_lane):
                    number = multiply(subtract(value_of(value, part * bits, table), zero), scale)
                    store_f32(panel + (lane * per_lane + part) * 128, number)

    return values_of


def _make_of_rows(bits: int) -> Any:
    """Panels of a weight [N, ...]: 32 rows, which lie behind each other, so that the next ones are asked for in that order."""
    values_of, scales_of, middle = _values_of_rows(bits), scales_of_rows(bits), np.float32(1 << (bits - 1))

    @inner
    def make(
        record: int,
        column: int,
        first: int,
        count: int,
        s_panel: int,
        z_panel: int,
        panel: int,
        spare: int,
        _strip: int,
        _strips: int,
    ) -> None:
        n, c_stride, z_stride = argument(record, N), argument(record, CODES_STRIDE), argument(record, ZEROS_STRIDE)
        s_stride, kind, start = (
            argument(record, SCALES_STRIDE),
            argument(record, ZEROS_KIND),
            np.float32(argument(record, DEFAULT_ZERO)),
        )
        lanes, table = argument(record, BLOCK) * bits // 32, load_f32(argument(record, TABLE))
        for half in range(2):
            row = min(column + half * 16, n - 1)
            scales, zeros, rows = (
                argument(record, SCALES) + row * s_stride,
                argument(record, ZEROS) + row * z_stride,
                min(n - row, 16),
            )
            s_place, z_place = s_panel + half * 64, z_panel + half * 64
            scales_of(scales, s_stride, zeros, z_stride, rows, first, count, kind, start, s_place, z_place, spare)
        center_zeros(z_panel, count * 2, middle)
        for half in range(2):
            row, offset = min(column + half * 16, n - 1), half * 64
            s_place, z_place, rows = s_panel + offset, z_panel + offset, min(n - row, 16)
            place = argument(record, CODES) + row * c_stride + first * lanes * 4
            soon = argument(record, CODES) + (row + 32) * c_stride + first * lanes * 64
            values_of(place, c_stride, rows, count * lanes, lanes, table, s_place, z_place, panel + offset, spare, soon)

    return make


def _values_of_columns(bits: int) -> Any:
    """A strip of some rows of a weight [K, N] into a panel."""
    planes, value_of = 8 // bits, _value(bits)

    @inner
    def values_of(
        codes: int,
        stride: int,
        rows: int,
        block: int,
        flip: int,
        table: Any,
        count: int,
        s_panel: int,
        z_panel: int,
        panel: int,
        pair_bytes: int,
    ) -> None:
        flips = splat_i32(flip)
        for first in range(0, rows, block):
            last = min(first + block, rows)
            for row in range(first, last):
                for vector in range(4 * planes):
                    place = ((vector >> 1) * count + first // block) * 128 + (vector & 1) * 64
                    codes_of = bit_xor(load_u8(codes + row * stride + vector // planes * 16), flips)
                    value = subtract(value_of(codes_of, vector % planes * bits, table), load_f32(z_panel + place))
                    target = panel + (vector >> 1) * pair_bytes + (vector & 1) * 64 + row * 128
                    store_f32(target, multiply(value, load_f32(s_panel + place)))

    return values_of


def _make_of_columns(bits: int) -> Any:
    """Panels of a weight [K, N]: the next blocks' bytes are asked for in the order in which they lie."""
    values_of, scales_of, planes = _values_of_columns(bits), scales_of_columns(bits), 8 // bits
    pairs, middle = 2 * planes, np.float32(1 << (bits - 1))

    @inner
    def make(
        record: int,
        column: int,
        first: int,
        count: int,
        s_panel: int,
        z_panel: int,
        panel: int,
        spare: int,
        strip: int,
        strips: int,
    ) -> None:
        c_stride, s_stride, z_stride = (
            argument(record, CODES_STRIDE),
            argument(record, SCALES_STRIDE),
            argument(record, ZEROS_STRIDE),
        )
        block, kind, flip, byte = argument(record, BLOCK), argument(record, ZEROS_KIND), argument(record, FLIP), column // planes
        scales = argument(record, SCALES) + first * s_stride + column * 4
        zeros, start = argument(record, ZEROS) + first * z_stride + byte, np.float32(argument(record, DEFAULT_ZERO))
        scales_of(scales, s_stride, zeros, z_stride, count, kind, start, flip & 255, s_panel, z_panel, spare)
        center_zeros(z_panel, pairs * count * 2, middle)
        rows, place = min(count * block, argument(record, K) - first * block), argument(record, CODES) + byte
        soon = place - strip * 64 + (first + count) * block * c_stride
        ask_for(soon, c_stride, strips, strip * rows, rows)
        place, pair_bytes = place + first * block * c_stride, argument(record, CHUNK) * block * 128
        table = load_f32(argument(record, TABLE))
        values_of(place, c_stride, rows, block, flip & 255, table, count, s_panel, z_panel, panel, pair_bytes)

    return make


def _tile(rows: int) -> Any:
    """Products of some rows of activations, gathered, with a pair of a panel."""
    operations = tile_operations(rows)
    zero, load, store, add_outer = operations.zero_f32, operations.load, operations.store, operations.add_outer

    @inner
    def tile(panel: int, x: int, steps: int, sums: int, stride: int, begins: int) -> None:
        total = zero() if begins else load(sums, stride)
        for step in range(steps):
            total = add_outer(total, panel + step * 128, x + step * 48)
        store(sums, stride, total)

    return tile


_large, _small = _tile(_LARGE), _tile(_SMALL)


def _use(pairs: int) -> Any:
    """Products of all rows of activations with a panel."""

    @inner
    def use(
        record: int,
        m_first: int,
        rows: int,
        first: int,
        count: int,
        _s_panel: int,
        _z_panel: int,
        panel: int,
        target: int,
        begins: int,
    ) -> None:
        block, stride = argument(record, BLOCK), pairs * 128
        pair_bytes, steps = argument(record, CHUNK) * block * 128, min(count * block, argument(record, K) - first * block)
        for pair in range(pairs):
            row, place = 0, panel + pair * pair_bytes
            while row < rows:
                sums, index = target + row * stride + pair * 128, m_first + row
                x = argument(record, X) + index // _LARGE * argument(record, X_STRIDE) + index % _LARGE * 4 + first * block * 48
                if rows - row > 2 * _SMALL and index % _LARGE == 0:
                    _large(place, x, steps, sums, stride, begins)
                    row += _LARGE
                else:
                    _small(place, x, steps, sums, stride, begins)
                    row += _SMALL

    return use


def _task(name: str, bits: int, pairs: int, make: Any) -> Task:
    use, planes = _use(pairs), 1 if pairs == 1 else 8 // bits

    def panels(record: int, part: int, parts: int) -> None:
        run_jobs(record, part, parts, pairs, planes, make, use)

    panels.__name__ = f"{name}_{bits}"
    return task(panels)


def _of_rows(bits: int) -> Task:
    return _task("panels_of_rows_f32", bits, 1, _make_of_rows(bits))


def _of_columns(bits: int) -> Task:
    return _task("panels_of_columns_f32", bits, 2 * (8 // bits), _make_of_columns(bits))


panels_of_rows_f32_2, panels_of_rows_f32_4, panels_of_rows_f32_8 = (_of_rows(bits) for bits in (2, 4, 8))
panels_of_columns_f32_2, panels_of_columns_f32_4, panels_of_columns_f32_8 = (_of_columns(bits) for bits in (2, 4, 8))
