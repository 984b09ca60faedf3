"""Activations of float32 as tiles of bfloat16, and their products with tiles of codes, scaled block by block.

Three bfloat16 hold a float32: its first 8 bits, the next, and the last. What is not finite is the first term, and the others are
zeros: as a code is one bfloat16, products are then what they are of float32.

Tiles of 16 rows and 32 steps along K follow each other: terms, and steps. A row's 64 bytes are pairs, as of ``amx_codes``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from ort_sdk_cpu.simd.amx import (
    LEFT,
    RIGHT,
    ROW_BYTES,
    TILE_BYTES,
    TILE_ROWS,
    emit_load_tile,
    emit_multiply_tiles,
    emit_store_tile,
    emit_zero_tile,
)
from ort_sdk_cpu.simd.ir_builder import advance, constant, emit_if, emit_loop
from ort_sdk_cpu.simd.memory import emit_load, emit_store
from ort_sdk_cpu.simd.vector_types import LANES, VF32, VI32, call, f32x16, operation

__all__ = [
    "DISTANCES",
    "STAGE_BYTES",
    "TERMS",
    "TILE_STEPS_BF16",
    "emit_deinterleaved",
    "emit_paired",
    "multiply_codes",
    "store_split",
]

TERMS = 3
TILE_STEPS_BF16 = 32
"""Of bfloat16 in a tile's row: steps along K."""
STAGE_BYTES = 4 * TILE_BYTES
"""Workspace of ``multiply_codes``."""
_FIRST_BITS = ir.Constant(VI32, [-(1 << 16)] * LANES)
_SHIFT = ir.Constant(VI32, [16] * LANES)
_NAN = ir.Constant(VF32, [float("nan")] * LANES)
# Two tiles of sums only: a block's sums leave them soon, and tiles for operands can take turns.
_SUMS = (0, 1)
"""Tiles: of two vectors of columns. Parts of the rows take the left operands' in turns."""


def emit_paired(builder: Any, low: Any, high: Any) -> Any:
    """LLVM code of the first halves of numbers side by side."""
    below = builder.lshr(builder.bitcast(low, VI32), _SHIFT)
    return builder.or_(below, builder.and_(builder.bitcast(high, VI32), _FIRST_BITS))


def emit_deinterleaved(builder: Any, first: Any, second: Any, distance: int) -> tuple[Any, Any]:
    """LLVM code of 32 steps as those that begin pairs, and the others."""
    begins = [lane // distance * 2 * distance + lane % distance for lane in range(LANES)]
    low, high = (
        builder.shuffle_vector(first, second, ir.Constant(VI32, [lane + offset for lane in begins])) for offset in (0, distance)
    )
    return low, high


def _first_bits(builder: Any, value: Any) -> Any:
    return builder.bitcast(builder.and_(builder.bitcast(value, VI32), _FIRST_BITS), VF32)


def _remainder(builder: Any, value: Any) -> Any:
    """What the first bits leave; 0 of what is not finite."""
    # Exact: the first bits are a part of the number.
    remainder = builder.fsub(value, _first_bits(builder, value))
    return builder.select(builder.fcmp_ordered("ord", remainder, remainder), remainder, ir.Constant(VF32, None))


def _store_parts(distance: int) -> Any:
    def store_split(builder: Any, first: Any, second: Any, target: Any) -> None:
        values = list(emit_deinterleaved(builder, first, second, distance))
        # A NaN whose payload is in the last bits would be an infinity in the first 16.
        values = [builder.select(builder.fcmp_unordered("uno", value, value), _NAN, value) for value in values]
        for term in range(TERMS):
            emit_store(builder, builder.add(target, constant(term * TILE_BYTES)), emit_paired(builder, *values))
            values = [_remainder(builder, value) for value in values]

    return operation(types.none, f32x16, f32x16, types.intp)(store_split)


class _Sums(NamedTuple):
    """Where a block's sums of 16 rows go: LLVM values."""

    stage: Any
    """Address of those of the unit."""
    scales: Any
    """Address of two vectors, what the columns' are multiplied by."""
    target: Any
    """Address of the first row's sums of all blocks."""
    row: Any
    """Bytes from row to row of them."""


def _emit_add(builder: Any, sums: _Sums, column: int) -> None:
    """LLVM code that adds a block's sums of one vector of columns, scaled."""
    scale = emit_load(builder, builder.add(sums.scales, constant(column * ROW_BYTES)), VF32)
    stage = builder.add(sums.stage, constant(column * TILE_BYTES))
    for row in range(TILE_ROWS):
        place = builder.add(advance(builder, sums.target, row, sums.row), constant(column * ROW_BYTES))
        products = emit_load(builder, builder.add(stage, constant(row * ROW_BYTES)), VF32)
        emit_store(builder, place, call(builder, "llvm.fma.v16f32", VF32, products, scale, emit_load(builder, place, VF32)))


def _emit_step(builder: Any, x: Any, panel: Any, meanwhile: Callable[[int], None]) -> list[Any]:
    """LLVM code of the products of 32 steps; ``meanwhile(column)`` is what vectors do beside them. Returns the next addresses."""
    row = constant(ROW_BYTES)
    for column, tile in enumerate(RIGHT):
        emit_load_tile(builder, tile, builder.add(panel, constant(column * TILE_BYTES)), row)
    for term in range(TERMS):
        left = LEFT[term % 2]
        emit_load_tile(builder, left, builder.add(x, constant(term * TILE_BYTES)), row)
        for sums, right in zip(_SUMS, RIGHT, strict=True):
            emit_multiply_tiles(builder, "tdpbf16ps", sums, left, right)
        # The vector units scale the block before while the matrix unit multiplies.
        if term < len(_SUMS):
            meanwhile(term)
    return [builder.add(x, constant(TERMS * TILE_BYTES)), builder.add(panel, constant(2 * TILE_BYTES))]


def _emit_block(builder: Any, steps: Any, places: list[Any], meanwhile: Callable[[int], None], stage: Any) -> list[Any]:
    """LLVM code of a block's sums, which go to ``stage``; ``places`` of its tiles. Returns those of the next ones."""
    for tile in _SUMS:
        emit_zero_tile(builder, tile)

    def leading(values: list[Any]) -> list[Any]:
        def step(_index: Any, values: list[Any]) -> list[Any]:
            return _emit_step(builder, values[0], values[1], lambda _column: None)

        return emit_loop(builder, values, builder.sub(steps, constant(1)), step)

    places = emit_if(builder, builder.icmp_signed(">", steps, constant(1)), places, leading)
    places = _emit_step(builder, places[0], places[1], meanwhile)
    for tile in _SUMS:
        emit_store_tile(builder, tile, builder.add(stage, constant(tile * TILE_BYTES)), constant(ROW_BYTES))
    return places


@operation(types.none, *[types.intp] * 8)
def multiply_codes(
    builder: Any, count: Any, steps: Any, x: Any, panel: Any, scales: Any, target: Any, target_row: Any, stage: Any
) -> None:
    """Add products of 16 rows of float32 in three terms with 32 columns: a block's sums while the unit multiplies the next one.

    Args:
        builder: of LLVM code.
        count: blocks along K.
        steps: 32 steps along K each, in a block.
        x: address of the rows' tiles.
        panel: address of the columns' tiles, two for each 32 steps.
        scales: address of their scales, two vectors for each block.
        target: address of the first row's sums.
        target_row: bytes from row to row.
        stage: address of ``STAGE_BYTES``.
    """

    def sums_of(index: Any) -> _Sums:
        # Two stages in turns: one is written while the other is read.
        own_stage = builder.add(stage, builder.mul(builder.and_(index, constant(1)), constant(2 * TILE_BYTES)))
        return _Sums(own_stage, builder.add(scales, builder.mul(index, constant(2 * ROW_BYTES))), target, target_row)

    def block(index: Any, values: list[Any]) -> list[Any]:
        has_before = builder.icmp_signed(">", index, constant(0))

        def meanwhile(column: int) -> None:
            with builder.if_then(has_before):
                _emit_add(builder, sums_of(builder.sub(index, constant(1))), column)

        return _emit_block(builder, steps, values, meanwhile, sums_of(index).stage)

    emit_loop(builder, [x, panel], count, block)
    for column in range(2):
        _emit_add(builder, sums_of(builder.sub(count, constant(1))), column)


DISTANCES = (2, 4, 8)
"""Steps along K between those of a pair."""
store_split = {distance: _store_parts(distance) for distance in DISTANCES}
"""``store_split[distance](first, second, target)``: a row of each term of 32 numbers, a tile's bytes apart."""
