"""Codes of 2, 4 or 8 bits, less their zero points, as tiles of bfloat16 for a processor's matrix unit (AMX).

Such a number has eight bits at most, so one bfloat16 holds it, and its products with bfloat16 add up as exactly as float32 does.
It is kept ``2 ** -shift_of(bits)`` times as large: so a block's sum of products with activations of any size is finite.

A tile's row has pairs of steps along K for 16 columns, in the order of codes in 4 bytes: those that are ``distance`` steps apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from ort_sdk_cpu.simd.amx import ROW_BYTES, TILE_BYTES
from ort_sdk_cpu.simd.ir_builder import constant
from ort_sdk_cpu.simd.memory import emit_load, emit_store, splat
from ort_sdk_cpu.simd.shuffles import clamped_row_address, emit_interleave, emit_transpose_quarters
from ort_sdk_cpu.simd.vector_types import LANES, VF32, VI32, call, f32x16, i32x16, operation

from .amx_split_bf16 import emit_paired

__all__ = [
    "COLUMNS_DISTANCE",
    "WIDTHS",
    "columns_operation",
    "lanes_operation",
    "offset_of",
    "rows_distance",
    "shift_of",
    "store_columns",
    "store_lanes",
]

EmitPairs = Callable[[Any, Any, int, int, Any, Any], Any]
"""``emit_pairs(builder, value, bits, start, scale, offset)``: LLVM code of two bfloat16 in each 4-byte lane, for the codes at bit
``start`` of its halves; scale and offset of the lanes' blocks as they were stored."""

COLUMNS_DISTANCE = 2
"""Steps between those of a pair of a weight [K, N], of which four rows are read at a time."""
_HALF_BITS, _BYTE_BITS = 16, 8
_VI16 = ir.VectorType(ir.IntType(16), 2 * LANES)
# A 16-bit look-up has 32 entries: codes and zero points of up to 4 bits differ by less than 16 either way.
_MOST = 16
"""Above any zero point of 4 bits: so what is looked up has five."""
_FRACTION_BITS, _EXPONENT_BIAS = 23, 127


def rows_distance(bits: int) -> int:
    """Steps between those of a pair of a weight [N, ...]: half of the codes in 4 bytes."""
    return _HALF_BITS // bits


def shift_of(bits: int) -> int:
    """Numbers are over two to the power of this: a block has up to 256 codes."""
    # So a sum of 256 codes times activations of any size stays finite.
    return bits + 8


def _of_all(value: int) -> Any:
    return ir.Constant(VI32, [value] * LANES)


def _magic(bits: int) -> int:
    """The float32, as an integer, whose last bit counts codes as they are kept."""
    return (_EXPONENT_BIAS + _FRACTION_BITS - shift_of(bits)) << _FRACTION_BITS


def _table(bits: int) -> Any:
    """What each code stands for that is raised by ``_MOST`` less its zero point."""
    numbers = np.ldexp(np.arange(-_MOST, _MOST, dtype=np.float32), -shift_of(bits))
    return ir.Constant(_VI16, [int(number) for number in numbers.view(np.uint32) >> _HALF_BITS])


def _emit_pairs(builder: Any, value: Any, bits: int, start: int, _scale: Any, offset: Any) -> Any:
    """LLVM code of the codes at bit ``start`` of both halves of 4-byte lanes; ``offset`` as of ``offset_of``."""
    # Two codes at once, one in each half of a lane.
    if bits < _BYTE_BITS:
        mask = _of_all(((1 << bits) - 1) * ((1 << _HALF_BITS) + 1))
        raised = builder.add(builder.and_(builder.lshr(value, _of_all(start)), mask), offset)
        found = call(builder, "llvm.x86.avx512.permvar.hi.512", _VI16, _table(bits), builder.bitcast(raised, _VI16))
        return builder.bitcast(found, VI32)
    numbers = []
    for shift in (start, start + _HALF_BITS):
        byte = builder.and_(builder.lshr(value, _of_all(shift)), _of_all((1 << bits) - 1))
        # The code as the last bits of a float32 whose exponent makes them count 2 ** -shift: no conversion.
        number = builder.bitcast(builder.or_(byte, _of_all(_magic(bits))), VF32)
        numbers.append(builder.fsub(number, builder.bitcast(offset, VF32)))
    return emit_paired(builder, *numbers)


def _offset_of(bits: int) -> Any:
    def offset_of(builder: Any, zeros: Any) -> Any:
        zero = builder.fptosi(zeros, VI32)
        if bits < _BYTE_BITS:
            return builder.mul(builder.sub(_of_all(_MOST), zero), _of_all((1 << _HALF_BITS) + 1))
        return builder.or_(zero, _of_all(_magic(bits)))

    return operation(i32x16, f32x16)(offset_of)


def lanes_operation(bits: int, emit_pairs: EmitPairs) -> Any:
    """Operation ``store_lanes(value, scales, offsets, target)``.

    It stores 4 bytes along K of 16 rows of N as rows of a tile that follow each other. At ``scales`` and ``offsets`` there is a
    vector each, of a block of the rows.
    """

    def store_lanes(builder: Any, value: Any, scales: Any, offsets: Any, target: Any) -> None:
        scale, offset = emit_load(builder, scales, VF32), emit_load(builder, offsets, VI32)
        for index, start in enumerate(range(0, _HALF_BITS, bits)):
            pairs = emit_pairs(builder, value, bits, start, scale, offset)
            emit_store(builder, builder.add(target, constant(index * ROW_BYTES)), pairs)

    return operation(types.none, i32x16, *[types.intp] * 3)(store_lanes)


def columns_operation(bits: int, emit_pairs: EmitPairs) -> Any:
    """Operation ``store_columns(address, stride, rows, flip, scales, offsets, blocks_bytes, target, pair_bytes)``.

    It stores 64 bytes of four rows of K. Of ``rows``, at least one, the last stands for those missing; ``flip`` is flipped in
    each 4 bytes. For each pair of vectors of columns, ``pair_bytes`` apart, two rows go to a tile and to the one behind it; their
    block's ``scales`` and ``offsets`` are two vectors side by side each, ``blocks_bytes`` apart.
    """
    planes = _BYTE_BITS // bits

    def store_columns(
        builder: Any,
        address: Any,
        stride: Any,
        rows: Any,
        flip: Any,
        scales: Any,
        offsets: Any,
        blocks_bytes: Any,
        target: Any,
        pair_bytes: Any,
    ) -> None:
        places = [clamped_row_address(builder, address, stride, row, rows) for row in range(4)]
        flips = splat(builder, flip)
        loaded = [builder.xor(emit_load(builder, place, VI32), flips) for place in places]
        for quarter, value in enumerate(emit_transpose_quarters(builder, emit_interleave(builder, loaded, 1))):
            for plane in range(planes):
                pair, column = divmod(quarter * planes + plane, 2)
                block = builder.add(builder.mul(blocks_bytes, constant(pair)), constant(column * ROW_BYTES))
                scale = emit_load(builder, builder.add(scales, block), VF32)
                offset = emit_load(builder, builder.add(offsets, block), VI32)
                to = builder.add(target, builder.mul(pair_bytes, constant(pair)))
                for index, start in enumerate((0, _BYTE_BITS)):
                    pairs = emit_pairs(builder, value, bits, start + plane * bits, scale, offset)
                    emit_store(builder, builder.add(to, constant(column * TILE_BYTES + index * ROW_BYTES)), pairs)

    address = types.intp
    return operation(types.none, address, address, address, types.int32, *[address] * 5)(store_columns)


WIDTHS = (2, 4, 8)
"""Bits of a code."""
offset_of = {bits: _offset_of(bits) for bits in WIDTHS}
"""``offset_of[bits](zeros)``: what the other operations take of 16 columns' zero points, which are whole numbers."""
store_lanes = {bits: lanes_operation(bits, _emit_pairs) for bits in WIDTHS}
store_columns = {bits: columns_operation(bits, _emit_pairs) for bits in WIDTHS}
