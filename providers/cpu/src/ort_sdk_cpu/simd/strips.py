"""Strips of a weight [K, N] of packed integers: the columns of 64 bytes of a row, multiplied with one row of activations.

The columns are kept in ``4 * planes`` vectors, where ``planes`` elements share a byte: for each 16 bytes, one vector for each
position in a byte.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from .codes import unpacked
from .memory import emit_load, emit_store, splat
from .products import emit_products
from .shuffles import emit_interleave, emit_lookup, emit_transpose_quarters, row_address
from .vector_types import F32, I8, I32, LANES, VF32, VI32, Vector, call, f32x16, operation

__all__ = ["StripOperations", "strip_operations"]

_QUARTERS = 4
_I8X16 = ir.VectorType(I8, LANES)


class StripOperations(NamedTuple):
    """Operations for codes of some bits. In compiled code, each needs a global name."""

    zero_i32: Any
    """``zero_i32()``: sums of integers."""
    zero_f32: Any
    """``zero_f32()``: sums of float32."""
    load_i32: Any
    """``load_i32(address)``: sums of integers that were stored."""
    load_f32: Any
    """``load_f32(address)``: the same of float32."""
    store_i32: Any
    """``store_i32(address, sums)``."""
    store_f32: Any
    """``store_f32(address, sums)``."""
    add_products: Any
    """``add_products(total, address, stride, rows, flip, x)``: add four rows of codes, the last of ``rows`` for those missing,
    with ``flip`` turned over in each 4 bytes, times the four int8 at ``x``."""
    add_values: Any
    """``add_values(total, address, table, flip, x)``: add one row of codes times the float32 at ``x``: as
    the table says for 2 and 4 bits, for 8 with ``flip`` turned over and less 128."""
    fill: Any
    """``fill(value)``: a zero point of all columns."""
    load_zeros: Any
    """``load_zeros(address, flip, start)``: the zero points of the columns, packed as a row of codes, less ``start``."""
    finish_i32: Any
    """``finish_i32(sums, total, scales, zeros, x_scale, x_sum)``: add to the float32 at ``sums`` the total times ``x_scale`` less
    zero points times ``x_sum``, all times the scales, which lie as their row has them."""
    finish_f32: Any
    """``finish_f32(sums, total, scales, zeros, x_scale, x_sum)``: the same."""


def strip_operations(bits: int) -> StripOperations:
    """Operations for codes of 2, 4 or 8 bits."""
    strips = _Strips(bits)
    integers, floats, address, number = strips.integers, strips.floats, types.intp, types.float32
    return StripOperations(
        operation(integers)(strips.zero_i32),
        operation(floats)(strips.zero_f32),
        operation(integers, address)(strips.load_i32),
        operation(floats, address)(strips.load_f32),
        operation(types.none, address, integers)(strips.store_i32),
        operation(types.none, address, floats)(strips.store_f32),
        operation(integers, integers, address, address, address, types.int32, address)(strips.add_products),
        operation(floats, floats, address, f32x16, types.int32, address)(strips.add_values),
        operation(floats, number)(strips.fill),
        operation(floats, address, types.int32, number)(strips.load_zeros),
        operation(types.none, address, integers, address, floats, number, number)(strips.finish_i32),
        operation(types.none, address, floats, address, floats, number, number)(strips.finish_f32),
    )


def _at(builder: Any, address: Any, offset: int) -> Any:
    return builder.add(address, ir.Constant(address.type, offset))


class _Strips:
    """LLVM code of the operations."""

    def __init__(self, bits: int) -> None:
        self.bits, self.planes = bits, 8 // bits
        count = _QUARTERS * self.planes
        self.integers = Vector(f"i32x16[{count}]", ir.ArrayType(VI32, count))
        self.floats = Vector(f"f32x16[{count}]", ir.ArrayType(VF32, count))

    def zero_i32(self, builder: Any) -> Any:
        return ir.Constant(self.integers.llvm, None)

    def zero_f32(self, builder: Any) -> Any:
        return ir.Constant(self.floats.llvm, None)

    def load_i32(self, builder: Any, address: Any) -> Any:
        return self._loaded(builder, address, self.integers.llvm)

    def load_f32(self, builder: Any, address: Any) -> Any:
        return self._loaded(builder, address, self.floats.llvm)

    def _loaded(self, builder: Any, address: Any, llvm: Any) -> Any:
        total = ir.Constant(llvm, ir.Undefined)
        for index in range(llvm.count):
            total = builder.insert_value(total, emit_load(builder, _at(builder, address, index * 64), llvm.element), index)
        return total

    def store_i32(self, builder: Any, address: Any, total: Any) -> None:
        for index in range(total.type.count):
            emit_store(builder, _at(builder, address, index * 64), builder.extract_value(total, index))

    def store_f32(self, builder: Any, address: Any, total: Any) -> None:
        self.store_i32(builder, address, total)

    def add_products(self, builder: Any, total: Any, address: Any, stride: Any, rows: Any, flip: Any, x: Any) -> Any:
        places = [row_address(builder, address, stride, row, rows) for row in range(4)]
        flips = splat(builder, flip)
        loaded = [emit_load(builder, place, VI32) for place in places]
        value = splat(builder, emit_load(builder, x, I32))
        vectors = [codes for part in emit_interleave(builder, loaded, 1) for codes in unpacked(builder, part, self.bits, flips)]
        for index, codes in enumerate(vectors):
            product = emit_products(builder, builder.extract_value(total, index), codes, value)
            total = builder.insert_value(total, product, index)
        return total

    def add_values(self, builder: Any, total: Any, address: Any, table: Any, flip: Any, x: Any) -> Any:
        value = splat(builder, emit_load(builder, x, F32))
        for index, codes in enumerate(self._row_codes(builder, address)):
            number = self._number(builder, codes, table, flip)
            product = call(builder, "llvm.fma.v16f32", VF32, number, value, builder.extract_value(total, index))
            total = builder.insert_value(total, product, index)
        return total

    def _row_codes(self, builder: Any, address: Any) -> list[Any]:
        """The codes of 64 bytes, with what lies above them in their byte."""
        found = []
        for quarter in range(_QUARTERS):
            codes = builder.zext(emit_load(builder, _at(builder, address, quarter * LANES), _I8X16), VI32)
            shifts = [ir.Constant(VI32, [plane * self.bits] * LANES) for plane in range(self.planes)]
            found += [builder.lshr(codes, shift) for shift in shifts]
        return found

    def _number(self, builder: Any, codes: Any, table: Any, flip: Any) -> Any:
        if self.bits < 8:
            return emit_lookup(builder, table, codes)
        flipped = builder.xor(codes, splat(builder, flip))
        return builder.fsub(builder.sitofp(flipped, VF32), ir.Constant(VF32, [128.0] * LANES))

    def fill(self, builder: Any, value: Any) -> Any:
        return self._floats(builder, [splat(builder, value)] * (_QUARTERS * self.planes))

    def load_zeros(self, builder: Any, address: Any, flip: Any, start: Any) -> Any:
        flips, mask = splat(builder, flip), ir.Constant(VI32, [(1 << self.bits) - 1] * LANES)
        first = splat(builder, start)
        found = []
        for quarter in range(_QUARTERS):
            codes = builder.xor(builder.zext(emit_load(builder, _at(builder, address, quarter * LANES), _I8X16), VI32), flips)
            shifts = [ir.Constant(VI32, [plane * self.bits] * LANES) for plane in range(self.planes)]
            numbers = [builder.sitofp(builder.and_(builder.lshr(codes, shift), mask), VF32) for shift in shifts]
            found += [builder.fsub(number, first) for number in numbers]
        return self._floats(builder, found)

    def _floats(self, builder: Any, vectors: list[Any]) -> Any:
        total = ir.Constant(self.floats.llvm, ir.Undefined)
        for index, vector in enumerate(vectors):
            total = builder.insert_value(total, vector, index)
        return total

    def finish_i32(self, builder: Any, sums: Any, total: Any, scales: Any, zeros: Any, x_scale: Any, x_sum: Any) -> None:
        parts = [builder.extract_value(total, index) for index in range(_QUARTERS * self.planes)]
        planes = [emit_transpose_quarters(builder, parts[plane :: self.planes]) for plane in range(self.planes)]
        ordered = [planes[index % self.planes][index // self.planes] for index in range(len(parts))]
        floats = self._floats(builder, [builder.sitofp(part, VF32) for part in ordered])
        self.finish_f32(builder, sums, floats, scales, zeros, x_scale, x_sum)

    def finish_f32(self, builder: Any, sums: Any, total: Any, scales: Any, zeros: Any, x_scale: Any, x_sum: Any) -> None:
        factor, taken = splat(builder, x_scale), splat(builder, builder.fneg(x_sum))
        for index in range(_QUARTERS * self.planes):
            place = _at(builder, sums, index * 64)
            value = builder.fmul(builder.extract_value(total, index), factor)
            value = call(builder, "llvm.fma.v16f32", VF32, builder.extract_value(zeros, index), taken, value)
            scale = self._scale(builder, scales, index)
            emit_store(builder, place, call(builder, "llvm.fma.v16f32", VF32, value, scale, emit_load(builder, place, VF32)))

    def _scale(self, builder: Any, scales: Any, index: int) -> Any:
        """Scales of a vector: of its 16 * planes columns, those at its position."""
        quarter, plane = divmod(index, self.planes)
        vectors = [
            emit_load(builder, _at(builder, scales, (quarter * self.planes + part) * 64), VF32) for part in range(self.planes)
        ]
        while len(vectors) > 1:
            lanes = ir.Constant(VI32, list(range(plane % 2, 2 * LANES, 2)))
            vectors = [builder.shuffle_vector(x, y, lanes) for x, y in zip(vectors[::2], vectors[1::2], strict=True)]
            plane //= 2
        return vectors[0]
