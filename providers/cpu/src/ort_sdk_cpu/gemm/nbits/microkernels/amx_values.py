"""Dequantized weights of 2, 4 or 8 bits, and activations, rounded to tiles of bfloat16, and their products.

What each is rounded to has 8 bits: activations are nearer to theirs than as 8-bit integers with a scale for each block, and sums
of products need no scales any more. For the order of a tile's numbers see ``amx_codes``.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.simd.amx import (
    LEFT,
    RIGHT,
    ROW_BYTES,
    SUMS,
    TILE_BYTES,
    TILE_ROWS,
    emit_load_tile,
    emit_multiply_tiles,
    emit_store_tile,
)
from ort_sdk_cpu.simd.ir_builder import constant, emit_fma, emit_loop
from ort_sdk_cpu.simd.memory import emit_store
from ort_sdk_cpu.simd.vector_types import LANES, VF32, VI32, call, f32x16, operation

from .amx_codes import WIDTHS, columns_operation, lanes_operation
from .amx_split_bf16 import DISTANCES, emit_deinterleaved

__all__ = ["multiply_bf16", "store_bf16", "store_columns", "store_lanes"]

_HALF_BITS, _BYTE_BITS, _TABLE_BITS = 16, 8, 4
_VI16 = ir.VectorType(ir.IntType(16), 2 * LANES)
_ONE_BY_ONE = ir.Constant(ir.VectorType(ir.IntType(32), 2 * LANES), [lane // 2 + lane % 2 * LANES for lane in range(2 * LANES)])


def _of_all(value: int) -> Any:
    return ir.Constant(VI32, [value] * LANES)


def _emit_rounded(builder: Any, low: Any, high: Any) -> Any:
    """LLVM code of two vectors' numbers as bfloat16 side by side."""
    both = ir.FunctionType(_VI16, [VF32, VF32])
    # One instruction rounds two vectors to nearest even.
    rounded = builder.asm(both, "vcvtne2ps2bf16 $1, $2, $0", "=v,v,v", (low, high), side_effect=False)
    return builder.bitcast(builder.shuffle_vector(rounded, rounded, _ONE_BY_ONE), VI32)


def _emit_codes(builder: Any, value: Any, bits: int, start: int) -> Any:
    """LLVM code of the codes at bit ``start`` of 4-byte lanes as float32."""
    shifted = builder.lshr(value, _of_all(start)) if start else value
    # Sixteen entries of a look-up are enough for codes of up to 4 bits.
    if bits == _BYTE_BITS:
        return builder.sitofp(builder.and_(shifted, _of_all((1 << bits) - 1)), VF32)
    table = ir.Constant(VF32, [float(code & (1 << bits) - 1) for code in range(1 << _TABLE_BITS)])
    return call(builder, "llvm.x86.avx512.permvar.sf.512", VF32, table, shifted)


def _emit_pairs(builder: Any, value: Any, bits: int, start: int, scale: Any, offset: Any) -> Any:
    """LLVM code of the numbers at bit ``start`` of both halves of 4-byte lanes; ``offset`` is added to scaled codes."""
    added = builder.bitcast(offset, VF32)
    low, high = (emit_fma(builder, _emit_codes(builder, value, bits, start + half), scale, added) for half in (0, _HALF_BITS))
    return _emit_rounded(builder, low, high)


store_lanes = {bits: lanes_operation(bits, _emit_pairs) for bits in WIDTHS}
store_columns = {bits: columns_operation(bits, _emit_pairs) for bits in WIDTHS}


def _store_rounded(distance: int) -> Any:
    def store_bf16(builder: Any, first: Any, second: Any, target: Any) -> None:
        emit_store(builder, target, _emit_rounded(builder, *emit_deinterleaved(builder, first, second, distance)))

    return operation(types.none, f32x16, f32x16, types.intp)(store_bf16)


store_bf16 = {distance: _store_rounded(distance) for distance in DISTANCES}
"""``store_bf16[distance](first, second, target)``: a tile's row of 32 numbers."""


def _multiply_bf16(groups: int) -> Any:
    def multiply_bf16(builder: Any, steps: Any, x: Any, group_bytes: Any, panel: Any, target: Any, target_row: Any) -> None:
        sums = [(group, column, SUMS[2 * group + column]) for group in range(groups) for column in range(2)]
        places = []
        # Sums stay in tiles for all steps of a chunk: blocks need no scaling any more.
        for group, column, tile in sums:
            rows = builder.mul(target_row, constant(group * TILE_ROWS))
            places.append(builder.add(builder.add(target, rows), constant(column * ROW_BYTES)))
            emit_load_tile(builder, tile, places[-1], target_row)
        row, tile_bytes = constant(ROW_BYTES), constant(TILE_BYTES)

        def step(_index: Any, values: list[Any]) -> list[Any]:
            *lines, right = values
            for column, tile in enumerate(RIGHT):
                emit_load_tile(builder, tile, builder.add(right, constant(column * TILE_BYTES)), row)
            for group, line in enumerate(lines):
                emit_load_tile(builder, LEFT[group], line, row)
                for column, tile in enumerate(RIGHT):
                    emit_multiply_tiles(builder, "tdpbf16ps", SUMS[2 * group + column], LEFT[group], tile)
            return [*(builder.add(line, tile_bytes) for line in lines), builder.add(right, constant(2 * TILE_BYTES))]

        emit_loop(builder, [x, *([builder.add(x, group_bytes)] if groups > 1 else []), panel], steps, step)
        for (_group, _column, tile), place in zip(sums, places, strict=True):
            emit_store_tile(builder, tile, place, target_row)

    return operation(types.none, *[types.intp] * 6)(multiply_bf16)


multiply_bf16 = {groups: _multiply_bf16(groups) for groups in (1, 2)}
"""``multiply_bf16[groups](steps, x, group_bytes, panel, target, target_row)``: add products of groups of 16 rows.

There are 32 columns, and 32 numbers in each of the steps along K. A group's tiles follow each other, ``group_bytes`` behind those
of the group before, as do two of the panel for each step. Sums are ``target_row`` bytes from row to row.
"""
