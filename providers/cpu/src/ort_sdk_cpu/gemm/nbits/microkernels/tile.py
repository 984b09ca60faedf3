"""Register tiles of GEMMs of MatMulNBits: some rows by two vectors."""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from ort_sdk_cpu.simd.int8 import emit_dot_u8_i8
from ort_sdk_cpu.simd.ir_builder import emit_multiply_add
from ort_sdk_cpu.simd.memory import emit_load, emit_store, splat
from ort_sdk_cpu.simd.vector_types import F32, I32, VF32, VI32, Vector, operation

__all__ = ["COLUMNS", "TileOperations", "tile_operations"]

# Each broadcast of an activation serves two vectors.
COLUMNS = 2
"""Vectors in a row of a tile."""


class TileOperations(NamedTuple):
    """Operations on tiles of some number of rows. In compiled code, each needs a global name."""

    zero_i32: Any
    """``zero_i32()``: tile of integers."""
    zero_f32: Any
    """``zero_f32()``: tile of float32."""
    load: Any
    """``load(address, stride)``: tile of float32; ``stride`` bytes from row to row."""
    store: Any
    """``store(address, stride, tile)``."""
    add_products: Any
    """``add_products(total, panel, x, stride)``: add one step of the product of int8 and uint8 numbers: for each row, the four
    int8 at its ``x`` times those of each lane of the two vectors at ``panel``."""
    add_outer: Any
    """``add_outer(total, panel, x)``: add one step of the product of float32 numbers: for each row, the float32 at ``x``,
    which follow each other, times the two vectors at ``panel``."""
    add_scaled: Any
    """``add_scaled(total, products, scales, offsets, x_scales, x_sums, stride)``: for each row, add products * scales * x_scale
    and take off offsets * x_sum; ``scales`` and ``offsets`` are two vectors each, of a row's x there is one float32,
    ``stride`` bytes apart."""


def tile_operations(rows: int) -> TileOperations:
    """Operations on tiles of that many rows."""
    tiles = _Tiles(rows)
    integers, floats, address = tiles.integers, tiles.floats, types.intp
    return TileOperations(
        operation(integers)(tiles.zero_i32),
        operation(floats)(tiles.zero_f32),
        operation(floats, address, address)(tiles.load),
        operation(types.none, address, address, floats)(tiles.store),
        operation(integers, integers, address, address, address)(tiles.add_products),
        operation(floats, floats, address, address)(tiles.add_outer),
        operation(floats, floats, integers, address, address, address, address, address)(tiles.add_scaled),
    )


def _moved(builder: Any, address: Any, count: int, stride: Any) -> Any:
    """Address ``count`` strides on."""
    step = ir.Constant(address.type, stride) if isinstance(stride, int) else stride
    return builder.add(address, builder.mul(step, ir.Constant(address.type, count)))


class _Tiles:
    """LLVM code of the operations."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.integers = Vector(f"i32x16[{rows}, {COLUMNS}]", ir.ArrayType(VI32, rows * COLUMNS))
        self.floats = Vector(f"f32x16[{rows}, {COLUMNS}]", ir.ArrayType(VF32, rows * COLUMNS))

    def zero_i32(self, builder: Any) -> Any:
        return ir.Constant(self.integers.llvm, None)

    def zero_f32(self, builder: Any) -> Any:
        return ir.Constant(self.floats.llvm, None)

    def load(self, builder: Any, address: Any, stride: Any) -> Any:
        tile = ir.Constant(self.floats.llvm, ir.Undefined)
        for row in range(self.rows):
            place = _moved(builder, address, row, stride)
            for column in range(COLUMNS):
                value = emit_load(builder, _moved(builder, place, column, 64), VF32)
                tile = builder.insert_value(tile, value, row * COLUMNS + column)
        return tile

    def store(self, builder: Any, address: Any, stride: Any, tile: Any) -> None:
        for row in range(self.rows):
            place = _moved(builder, address, row, stride)
            for column in range(COLUMNS):
                emit_store(builder, _moved(builder, place, column, 64), builder.extract_value(tile, row * COLUMNS + column))

    def add_products(self, builder: Any, total: Any, panel: Any, x: Any, stride: Any) -> Any:
        # Vectors of the panel stay in registers for all rows.
        weights = [emit_load(builder, _moved(builder, panel, column, 64), VI32) for column in range(COLUMNS)]
        for row in range(self.rows):
            value = splat(builder, emit_load(builder, _moved(builder, x, row, stride), I32))
            for column, weight in enumerate(weights):
                index = row * COLUMNS + column
                product = emit_dot_u8_i8(builder, builder.extract_value(total, index), weight, value)
                total = builder.insert_value(total, product, index)
        return total

    def add_outer(self, builder: Any, total: Any, panel: Any, x: Any) -> Any:
        # Vectors of the panel stay in registers for all rows.
        weights = [emit_load(builder, _moved(builder, panel, column, 64), VF32) for column in range(COLUMNS)]
        for row in range(self.rows):
            value = splat(builder, emit_load(builder, _moved(builder, x, row, 4), F32))
            for column, weight in enumerate(weights):
                index = row * COLUMNS + column
                product = emit_multiply_add(builder, value, weight, builder.extract_value(total, index))
                total = builder.insert_value(total, product, index)
        return total

    def add_scaled(
        self, builder: Any, total: Any, products: Any, scales: Any, offsets: Any, x_scales: Any, x_sums: Any, stride: Any
    ) -> Any:
        pairs = [
            tuple(emit_load(builder, _moved(builder, place, column, 64), VF32) for place in (scales, offsets))
            for column in range(COLUMNS)
        ]
        for row in range(self.rows):
            x_scale, x_sum = (
                splat(builder, emit_load(builder, _moved(builder, place, row, stride), F32)) for place in (x_scales, x_sums)
            )
            for column, (scale, offset) in enumerate(pairs):
                index = row * COLUMNS + column
                product = builder.sitofp(builder.extract_value(products, index), VF32)
                # Scales of both operands, then the offset: two multiply-adds for a block.
                value = emit_multiply_add(builder, product, builder.fmul(scale, x_scale), builder.extract_value(total, index))
                value = emit_multiply_add(builder, builder.fneg(offset), x_sum, value)
                total = builder.insert_value(total, value, index)
        return total
