"""Products of float32 on a processor's matrix unit (AMX), which multiplies bfloat16 and adds up float32.

Three bfloat16 hold the 24 bits of a float32: the nearest number of 8 bits, that of what is left, and the rest. Of the nine
products of two such triples six count; the others are below what float32 holds (Henry, Tang and Heinecke, "Leveraging the
bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations"). The unit adds up 32 products before it rounds, so
sums round off less than where one product is added after the other.

Operands are split into blocks of 32 steps along K, in which a part of a number is a tile of 16 rows of 64 bytes. A pair of
bfloat16 in 4 bytes is of steps that are 16 apart, in both operands alike: so no lane has to move. Numbers that are not finite
cannot be split: who splits finds that out, and multiplies by vectors then.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from .emission import constant, emit_if, emit_loop, emit_prefetch
from .matrix_unit import LEFT, RIGHT, ROW_BYTES, SUMS, emit_load_tile, emit_multiply_tiles, emit_store_tile, emit_zero_tile
from .memory import LAST_BYTE, emit_load, emit_store
from .vector_types import LANES, VF32, VI32, f32x16, operation

__all__ = ["BLOCK_BYTES", "BLOCK_STEPS", "has_nan", "multiply_blocks", "store_split"]

BLOCK_STEPS = 32
"""Steps along K of a block."""
_TILE_BYTES, _PARTS = 1024, 3
BLOCK_BYTES = _PARTS * _TILE_BYTES
"""Of a block of 16 rows, or of 16 columns."""
_FIRST_BITS = ir.Constant(VI32, [-(1 << 16)] * LANES)
_HALF = ir.Constant(VI32, [1 << 15] * LANES)
_SHIFT = ir.Constant(VI32, [16] * LANES)
_ORDER = ((2, 0), (0, 0), (0, 2), (0, 1), (1, 1), (1, 0))
"""Parts that are multiplied, left and right: in turns one of them stays."""


def _rounded(builder: Any, value: Any) -> Any:
    """To the nearest number of 8 bits, half away from zero; infinite where that is too large for a float32."""
    raised = builder.add(builder.bitcast(value, VI32), _HALF)
    return builder.bitcast(builder.and_(raised, _FIRST_BITS), VF32)


def _paired(builder: Any, low: Any, high: Any) -> Any:
    """The first halves of numbers side by side."""
    below = builder.lshr(builder.bitcast(low, VI32), _SHIFT)
    return builder.or_(below, builder.and_(builder.bitcast(high, VI32), _FIRST_BITS))


def _emit_split(builder: Any, low: Any, high: Any, target: Any, rests: Any) -> Any:
    """LLVM code of ``store_split``."""
    values = [low, high]
    for part in range(_PARTS):
        is_last = part + 1 == _PARTS
        firsts = values if is_last else [_rounded(builder, value) for value in values]
        emit_store(builder, builder.add(target, constant(part * _TILE_BYTES)), _paired(builder, *firsts))
        if not is_last:
            values = [builder.fsub(value, first) for value, first in zip(values, firsts, strict=True)]
    return builder.fadd(rests, builder.fadd(*values))


@operation(f32x16, f32x16, f32x16, types.intp, f32x16)
def store_split(builder: Any, low: Any, high: Any, target: Any, rests: Any) -> Any:
    """Split numbers of steps that are 16 apart: a row of each part, a tile's bytes apart.

    Args:
        builder: of LLVM code.
        low: of the first step.
        high: of the other.
        target: address of the first part's row.
        rests: a sum.

    Returns:
        The sum with the last parts: NaN if one of the numbers is not finite, or too large.
    """
    return _emit_split(builder, low, high, target, rests)


@operation(types.intp, f32x16)
def has_nan(builder: Any, value: Any) -> Any:
    """1 if a lane is NaN, else 0."""
    bits = builder.bitcast(builder.fcmp_unordered("uno", value, value), ir.IntType(LANES))
    return builder.zext(builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0)), ir.IntType(64))


def _emit_products(builder: Any, left: list[Any], right: list[Any]) -> None:
    """LLVM code of the products of one block: addresses of the blocks of each group of rows and of columns."""
    loaded: tuple[int | None, int | None] = (None, None)
    row = constant(ROW_BYTES)
    for parts in _ORDER:
        for tiles, places, part, before in zip((LEFT, RIGHT), (left, right), parts, loaded, strict=True):
            if part != before:
                for tile, place in zip(tiles, places, strict=False):
                    emit_load_tile(builder, tile, builder.add(place, constant(part * _TILE_BYTES)), row)
        loaded = parts
        for index in range(len(left)):
            for column in range(len(right)):
                emit_multiply_tiles(builder, "tdpbf16ps", SUMS[2 * index + column], LEFT[index], RIGHT[column])


class _Next(NamedTuple):
    """A panel of columns that is split while another one is multiplied: LLVM values, as for ``multiply_blocks``."""

    b: Any
    row: Any
    panel: Any
    first: Any
    share: Any
    stop: Any


@operation(f32x16, *[types.intp] * 14, f32x16)
def multiply_blocks(
    builder: Any,
    groups: Any,
    count: Any,
    x: Any,
    x_group: Any,
    b: Any,
    target: Any,
    target_row: Any,
    second: Any,
    next_b: Any,
    next_row: Any,
    next_panel: Any,
    next_first: Any,
    next_share: Any,
    next_stop: Any,
    rests: Any,
) -> Any:
    """Write products of one or two groups of rows and 32 columns; split others meanwhile.

    The unit leaves time for that, as for what comes from memory: columns behind those that are split are asked for.

    Args:
        builder: of LLVM code.
        groups: of rows.
        count: blocks along K.
        x: address of the first group's blocks, which follow each other.
        x_group: bytes to the second group's.
        b: address of the columns' blocks: of the first 16, then of the others, for each block along K.
        target: address of the first row's results.
        target_row: bytes from row to row.
        second: bytes from the first group's results to the second's.
        next_b: address of 32 columns that are split, of whole blocks.
        next_row: bytes from step to step.
        next_panel: where their blocks belong.
        next_first: number of the first pair of steps, of 16 in each block.
        next_share: pairs that are split with each block along K.
        next_stop: number behind the last one.
        rests: as for ``store_split``.
    """
    coming = _Next(next_b, next_row, next_panel, next_first, next_share, next_stop)

    def multiply(number: int, values: list[Any]) -> list[Any]:
        places = [target, builder.add(target, second)][:number]
        for tile in range(2 * number):
            emit_zero_tile(builder, SUMS[tile])
        rests = _emit_blocks(builder, number, count, (x, x_group, b), coming, values[0])
        for index, place in enumerate(places):
            for column in range(2):
                to = builder.add(place, constant(column * ROW_BYTES))
                emit_store_tile(builder, SUMS[2 * index + column], to, target_row)
        return [rests]

    for number in (1, 2):
        is_wanted = builder.icmp_signed("==", groups, constant(number))
        (rests,) = emit_if(builder, is_wanted, [rests], functools.partial(multiply, number))
    return rests


def _emit_blocks(builder: Any, groups: int, count: Any, operands: tuple[Any, Any, Any], coming: _Next, rests: Any) -> Any:
    x, x_group, b = operands

    def block(_index: Any, values: list[Any]) -> list[Any]:
        left, right, number, rests = values
        _emit_products(builder, [left, builder.add(left, x_group)][:groups], [right, builder.add(right, constant(BLOCK_BYTES))])
        stop = builder.add(number, coming.share)
        stop = builder.select(builder.icmp_signed("<", stop, coming.stop), stop, coming.stop)
        has_more = builder.icmp_signed("<", number, stop)
        (rests,) = emit_if(builder, has_more, [rests], lambda values: _emit_pairs(builder, coming, number, stop, values[0]))
        return [builder.add(left, constant(BLOCK_BYTES)), builder.add(right, constant(2 * BLOCK_BYTES)), stop, rests]

    return emit_loop(builder, [x, b, coming.first, rests], count, block)[-1]


def _emit_pairs(builder: Any, coming: _Next, first: Any, stop: Any, rests: Any) -> list[Any]:
    """LLVM code that splits some pairs of steps."""

    def pair(index: Any, values: list[Any]) -> list[Any]:
        number, (rests,) = builder.add(first, index), values
        block, place = builder.lshr(number, constant(4)), builder.and_(number, constant(15))
        step = builder.add(builder.mul(block, constant(BLOCK_STEPS)), place)
        low = builder.add(coming.b, builder.mul(step, coming.row))
        high = builder.add(low, builder.mul(coming.row, constant(16)))
        offset = builder.add(builder.mul(block, constant(2 * BLOCK_BYTES)), builder.mul(place, constant(ROW_BYTES)))
        for column in range(2):
            to = builder.add(coming.panel, builder.add(offset, constant(column * BLOCK_BYTES)))
            numbers = [emit_load(builder, builder.add(row, constant(column * ROW_BYTES)), VF32) for row in (low, high)]
            rests = _emit_split(builder, numbers[0], numbers[1], to, rests)
            for row in (low, high):
                emit_prefetch(builder, builder.add(row, constant((2 + column) * ROW_BYTES + LAST_BYTE)), is_second=True)
        return [rests]

    return emit_loop(builder, [rests], builder.sub(stop, first), pair)
