"""Blocks of a weight of packed integers, unpacked to bytes in the order of a panel: four rows of K to a lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.simd.memory import emit_load, emit_store, load_u2_masked, load_u4_masked, load_u8_masked, splat
from ort_sdk_cpu.simd.shuffles import clamped_row_address, emit_interleave, emit_transpose, emit_transpose_quarters
from ort_sdk_cpu.simd.vector_types import LANES, VI32, operation

__all__ = [
    "FIRST_CODES",
    "interleave_u2",
    "interleave_u4",
    "interleave_u8",
    "transpose_u2",
    "transpose_u4",
    "transpose_u8",
    "unpacked",
]

FIRST_CODES = {2: load_u2_masked, 4: load_u4_masked, 8: load_u8_masked}
"""``load(address, count)`` for each number of bits: the first of 16 packed codes, as integers."""

_STEP_BYTES = 128
"""Bytes of a step of a panel: two vectors."""


def unpacked(builder: Any, value: Any, bits: int, flips: Any = None) -> list[Any]:
    """The elements that share a byte, each in its own vector, with bits flipped: the same in each element."""
    if bits == 8:
        return [value if flips is None else builder.xor(value, flips)]
    # All four bytes of a lane at once.
    mask = ir.Constant(VI32, [0x01010101 * ((1 << bits) - 1)] * LANES)
    shifts = [ir.Constant(VI32, [shift] * LANES) for shift in range(0, 8, bits)]
    codes = [builder.and_(builder.lshr(value, shift), mask) for shift in shifts]
    if flips is None:
        return codes
    # Sign bits of signed codes are flipped after the shift, where they are at the same place for all.
    low = builder.and_(flips, mask)
    return [builder.xor(code, low) for code in codes]


def _transpose(bits: int) -> Any:
    def transpose_codes(builder: Any, address: Any, stride: Any, rows: Any, count: Any, target: Any) -> None:
        offset = 0
        for value in emit_transpose(builder, address, stride, rows, count):
            for codes in unpacked(builder, value, bits):
                emit_store(builder, builder.add(target, ir.Constant(target.type, offset)), codes)
                offset += _STEP_BYTES

    return _named(transpose_codes, bits)(operation(types.none, *[types.intp] * 5))


def _interleave(bits: int) -> Any:
    def interleave_codes(builder: Any, address: Any, stride: Any, rows: Any, flip: Any, target: Any, pair_stride: Any) -> None:
        places = [clamped_row_address(builder, address, stride, row, rows) for row in range(4)]
        flips = splat(builder, flip)
        loaded = [emit_load(builder, place, VI32) for place in places]
        # Four rows of K come to a lane, as int8 dot products take them.
        quarters = emit_transpose_quarters(builder, emit_interleave(builder, loaded, 1))
        vectors = [codes for value in quarters for codes in unpacked(builder, value, bits, flips)]
        for index, codes in enumerate(vectors):
            place = builder.add(target, builder.mul(pair_stride, ir.Constant(target.type, index // 2)))
            emit_store(builder, builder.add(place, ir.Constant(target.type, index % 2 * 64)), codes)

    address = types.intp
    return _named(interleave_codes, bits)(operation(types.none, address, address, address, types.int32, address, address))


def _named(emit: Callable[..., Any], bits: int) -> Callable[[Callable[..., Any]], Any]:
    emit.__name__ += f"_u{bits}"
    return lambda declare: declare(emit)


transpose_u2, transpose_u4, transpose_u8 = (_transpose(bits) for bits in (2, 4, 8))
"""``transpose(address, stride, rows, count, target)``: 16 rows of N, ``count`` times 4 bytes of each along K.

Rows are ``stride`` bytes apart; of ``rows``, at least one, the last stands for those missing; zeros stand for missing bytes.
For each 4 bytes and each position in a byte, a vector goes to ``target``, 128 bytes from one to the next.
"""

interleave_u2, interleave_u4, interleave_u8 = (_interleave(bits) for bits in (2, 4, 8))
"""``interleave(address, stride, rows, flip, target, pair_stride)``: four rows of K, 64 bytes of each along N.

As above; ``flip`` is flipped in each 4 bytes read. For each 16 bytes of N and each position in a byte, a vector goes to
``target``: two side by side, then ``pair_stride`` bytes on.
"""
