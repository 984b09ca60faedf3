"""AMX: eight tile registers of up to 16 rows of up to 64 bytes, used as a 2x2 block of accumulators and its operands.

Tiles 0 to 3 are accumulators, for two groups of rows and two of columns; 4 and 5 are left operands, a group of rows each; 6 and 7
right operands of 16 columns each, in VNNI layout: 4 bytes of K of each column are side by side in a row.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from .ir_builder import constant
from .memory import emit_store
from .vector_types import I8, I32, VI32, call, operation, pointer

__all__ = [
    "LEFT",
    "RIGHT",
    "ROW_BYTES",
    "SUMS",
    "TILE_BYTES",
    "TILE_K_GROUPS",
    "TILE_ROWS",
    "configure_tiles",
    "emit_load_tile",
    "emit_multiply_tiles",
    "emit_store_tile",
    "emit_zero_tile",
    "release_tiles",
]

TILE_ROWS = 16
TILE_K_GROUPS = 16
"""Groups of 4 bytes along K in a row of a left operand."""
ROW_BYTES = 64
TILE_BYTES = TILE_ROWS * ROW_BYTES
SUMS, LEFT, RIGHT = (0, 1, 2, 3), (4, 5), (6, 7)
_FIRST_ROWS = {0, 1, 4}
"""Tiles that have the first group's number of rows."""
_LEFT_LANE = 6
"""Int32 lane of the tile configuration with the row bytes of both left operands."""


@operation(types.none, types.intp, types.intp, types.intp, types.intp)
def configure_tiles(builder: Any, address: Any, first: Any, second: Any, groups: Any) -> None:
    """Set the tiles' sizes (ldtilecfg), which sets the tiles to 0.

    Args:
        builder: of LLVM code.
        address: of 64 bytes for the tile configuration.
        first: rows of the first group, 1 to 16.
        second: rows of the second group.
        groups: groups of 4 bytes along K in a row of a left operand, which are the rows of a right one: 1 to 16.
    """
    whole = ir.Constant(VI32, [1, 0, 0, 0, *[ROW_BYTES << 16 | ROW_BYTES] * 4, *[0] * 8])
    left_bytes = builder.mul(builder.trunc(groups, I32), ir.Constant(I32, 4 << 16 | 4))
    emit_store(builder, address, builder.insert_element(whole, left_bytes, ir.Constant(I32, _LEFT_LANE)))
    for tile in range(8):
        rows = groups if tile in RIGHT else first if tile in _FIRST_ROWS else second
        emit_store(builder, builder.add(address, constant(48 + tile)), builder.trunc(rows, I8))
    call(builder, "llvm.x86.ldtilecfg", ir.VoidType(), pointer(builder, address, I8))


@operation(types.none)
def release_tiles(builder: Any) -> None:
    """Release the tiles (tilerelease): a context switch of a thread with tiles in use takes longer."""
    call(builder, "llvm.x86.tilerelease", ir.VoidType())


def _emit_move(builder: Any, name: str, tile: int, address: Any, stride: Any) -> None:
    call(builder, f"llvm.x86.{name}", ir.VoidType(), ir.Constant(I8, tile), pointer(builder, address, I8), stride)


def emit_load_tile(builder: Any, tile: int, address: Any, stride: Any) -> None:
    """LLVM code of a tile load of rows that are ``stride`` bytes apart."""
    _emit_move(builder, "tileloadd64", tile, address, stride)


def emit_store_tile(builder: Any, tile: int, address: Any, stride: Any) -> None:
    """LLVM code of a tile store of rows that are ``stride`` bytes apart."""
    _emit_move(builder, "tilestored64", tile, address, stride)


def emit_zero_tile(builder: Any, tile: int) -> None:
    """LLVM code that sets a tile to 0."""
    call(builder, "llvm.x86.tilezero", ir.VoidType(), ir.Constant(I8, tile))


def emit_multiply_tiles(builder: Any, name: str, total: int, left: int, right: int) -> None:
    """LLVM code that adds the product of two tiles to an accumulator.

    Args:
        builder: of LLVM code.
        name: the instruction, such as ``tdpbusd``.
        total: number of the accumulator's tile.
        left: number of the left operand's tile.
        right: number of the right operand's tile.
    """
    call(builder, f"llvm.x86.{name}", ir.VoidType(), *(ir.Constant(I8, tile) for tile in (total, left, right)))
