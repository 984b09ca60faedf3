"""Strips of a weight [K, N] of packed integers: the columns of 64 bytes of a row, multiplied with one row of activations.

The columns are kept in ``4 * planes`` vectors, where ``planes`` elements share a byte: for each 16 bytes, one vector for each
position in a byte. Activations are float32 or int8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from ort_sdk_cpu.simd.int8 import emit_dot_u8_i8
from ort_sdk_cpu.simd.ir_builder import emit_multiply_add
from ort_sdk_cpu.simd.memory import emit_load, emit_store, splat
from ort_sdk_cpu.simd.shuffles import clamped_row_address, emit_interleave, emit_lookup, emit_transpose_quarters
from ort_sdk_cpu.simd.vector_types import F32, I8, I32, LANES, VF32, VI32, Vector, f32x16, operation

from .unpack import unpacked

__all__ = ["STRIP_OPERATIONS", "StripOperations"]

_QUARTERS = 4
_I8X16 = ir.VectorType(I8, LANES)


class StripOperations(NamedTuple):
    """Operations for codes of some bits and a kind of activations. In compiled code, each needs a global name."""

    zero: Any
    """``zero()``: sums of no products."""
    add_kept: Any
    """``add_kept(sums, address)``: with sums that were stored."""
    store: Any
    """``store(address, sums)``."""
    add_rows: Any
    """``add_rows(sums, first, second, third, fourth, offset, rows, flip, x, table)``: add four rows of codes, an offset behind
    their addresses, times the activations at ``x``. Of float32 there are ``rows``; behind int8 there are zeros. ``flip`` is
    flipped in each 4 bytes of codes; a table has the values of codes of 2 and 4 bits as float32."""
    fill: Any
    """``fill(value)``: a zero point of all columns."""
    load_zeros: Any
    """``load_zeros(address, flip, start)``: the zero points of the columns, packed as a row of codes, less ``start``."""
    finish: Any
    """``finish(target, compensation, sums, scales, zeros, x_scale, x_sum)``: add to the float32 at ``target`` the sums times
    ``x_scale`` less zero points times ``x_sum``, all times the scales, in the order of their row. Activations of float32 add to
    those at ``compensation`` what is lost in rounding."""
    settle: Any
    """``settle(target, compensation)``: add a vector of what was lost in rounding, but to sums that became infinite."""
    item: int
    """Bytes from one activation to the next."""


def _at(builder: Any, address: Any, offset: int) -> Any:
    return builder.add(address, ir.Constant(address.type, offset))


class _Strips:
    """LLVM code of the operations that all kinds share."""

    element: Any = VI32
    item = 1

    def __init__(self, bits: int) -> None:
        self.bits, self.planes = bits, 8 // bits
        # All columns of a strip in registers: 16 bytes to a vector for each position in a byte.
        self.count = _QUARTERS * self.planes
        self.sums = Vector(f"{self.element}[{self.count}]", ir.ArrayType(self.element, self.count))
        self.floats = Vector(f"f32x16[{self.count}]", ir.ArrayType(VF32, self.count))

    def operations(self) -> StripOperations:
        sums, floats, address, number, nothing = self.sums, self.floats, types.intp, types.float32, types.none
        places = [address] * 6
        return StripOperations(
            operation(sums)(self.zero),
            operation(sums, sums, address)(self.add_kept),
            operation(nothing, address, sums)(self.store),
            operation(sums, sums, *places, types.int32, address, f32x16)(self.add_rows),
            operation(floats, number)(self.fill),
            operation(floats, address, types.int32, number)(self.load_zeros),
            operation(nothing, address, address, sums, address, floats, number, number)(self.finish),
            operation(nothing, address, address)(self.settle),
            self.item,
        )

    def zero(self, builder: Any) -> Any:
        return ir.Constant(self.sums.llvm, None)

    def add_kept(self, builder: Any, total: Any, address: Any) -> Any:
        for index in range(self.count):
            kept, value = emit_load(builder, _at(builder, address, index * 64), self.element), builder.extract_value(total, index)
            total = builder.insert_value(total, self.plus(builder, kept, value), index)
        return total

    def plus(self, builder: Any, x: Any, y: Any) -> Any:
        return builder.add(x, y)

    def store(self, builder: Any, address: Any, total: Any) -> None:
        for index in range(self.count):
            emit_store(builder, _at(builder, address, index * 64), builder.extract_value(total, index))

    def add_rows(
        self,
        builder: Any,
        total: Any,
        first: Any,
        second: Any,
        third: Any,
        fourth: Any,
        offset: Any,
        rows: Any,
        flip: Any,
        x: Any,
        table: Any,
    ) -> Any:
        loaded = [emit_load(builder, builder.add(place, offset), VI32) for place in (first, second, third, fourth)]
        # Four int8 activations of four rows of K meet codes of four rows interleaved to the same lanes.
        value, flips = splat(builder, emit_load(builder, x, I32)), splat(builder, flip)
        vectors = [codes for part in emit_interleave(builder, loaded, 1) for codes in unpacked(builder, part, self.bits, flips)]
        for index, codes in enumerate(vectors):
            product = emit_dot_u8_i8(builder, builder.extract_value(total, index), codes, value)
            total = builder.insert_value(total, product, index)
        return total

    def numbers(self, builder: Any, total: Any) -> list[Any]:
        """The sums as float32, in the order of the columns."""
        floats = [builder.sitofp(builder.extract_value(total, index), VF32) for index in range(self.count)]
        # Interleaving put columns out of order; once for each block, not for each row.
        planes = [emit_transpose_quarters(builder, floats[plane :: self.planes]) for plane in range(self.planes)]
        return [planes[index % self.planes][index // self.planes] for index in range(self.count)]

    def fill(self, builder: Any, value: Any) -> Any:
        return self._floats(builder, [splat(builder, value)] * self.count)

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

    def finish(
        self, builder: Any, target: Any, compensation: Any, total: Any, scales: Any, zeros: Any, x_scale: Any, x_sum: Any
    ) -> None:
        factor, taken = splat(builder, x_scale), splat(builder, builder.fneg(x_sum))
        for index, number in enumerate(self.numbers(builder, total)):
            place = _at(builder, target, index * 64)
            # Zero points times the activations' sum, taken off the block's sum of products.
            value = emit_multiply_add(builder, builder.extract_value(zeros, index), taken, builder.fmul(number, factor))
            self._add(builder, place, _at(builder, compensation, index * 64), value, self._scale(builder, scales, index))

    def settle(self, builder: Any, target: Any, compensation: Any) -> None:
        lost = emit_load(builder, compensation, VF32)
        # What an infinite sum lost is infinity less infinity.
        is_number = builder.fcmp_ordered("ord", lost, lost)
        total = builder.fadd(emit_load(builder, target, VF32), builder.select(is_number, lost, ir.Constant(VF32, None)))
        emit_store(builder, target, total)

    def _add(self, builder: Any, place: Any, _compensation: Any, value: Any, scale: Any) -> None:
        """Add a product to the sum at a place."""
        emit_store(builder, place, emit_multiply_add(builder, value, scale, emit_load(builder, place, VF32)))

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


class _StripsF32(_Strips):
    """For activations of float32."""

    element = VF32
    item = 4

    def plus(self, builder: Any, x: Any, y: Any) -> Any:
        return builder.fadd(x, y)

    def add_rows(
        self,
        builder: Any,
        total: Any,
        first: Any,
        second: Any,
        third: Any,
        fourth: Any,
        offset: Any,
        rows: Any,
        flip: Any,
        x: Any,
        table: Any,
    ) -> Any:
        item = ir.Constant(x.type, self.item)
        for row, address in enumerate((first, second, third, fourth)):
            # The row that stands for a missing one is multiplied by zero.
            is_there = builder.icmp_signed("<", ir.Constant(rows.type, row), rows)
            number = emit_load(builder, clamped_row_address(builder, x, item, row, rows), F32)
            value = splat(builder, builder.select(is_there, number, ir.Constant(F32, 0.0)))
            for index, codes in enumerate(self._row_codes(builder, builder.add(address, offset))):
                weight = self._number(builder, codes, table, flip)
                product = emit_multiply_add(builder, weight, value, builder.extract_value(total, index))
                total = builder.insert_value(total, product, index)
        return total

    def _row_codes(self, builder: Any, address: Any) -> list[Any]:
        """The codes of 64 bytes, with the bits above them in their byte."""
        found = []
        for quarter in range(_QUARTERS):
            codes = builder.zext(emit_load(builder, _at(builder, address, quarter * LANES), _I8X16), VI32)
            shifts = [ir.Constant(VI32, [plane * self.bits] * LANES) for plane in range(self.planes)]
            found += [builder.lshr(codes, shift) for shift in shifts]
        return found

    def _number(self, builder: Any, codes: Any, table: Any, flip: Any) -> Any:
        # A look-up of 16 entries by the lowest bits; a byte has more.
        if self.bits < 8:
            return emit_lookup(builder, table, codes)
        flipped = builder.and_(builder.xor(codes, splat(builder, flip)), ir.Constant(VI32, [255] * LANES))
        return builder.fsub(builder.sitofp(flipped, VF32), ir.Constant(VF32, [128.0] * LANES))

    def _add(self, builder: Any, place: Any, compensation: Any, value: Any, scale: Any) -> None:
        """The same; what is lost in rounding is added to the compensation (Knuth's two-sum)."""
        # Sums of hundreds of blocks: what each addition loses is kept apart, and added at the end.
        product, total = builder.fmul(value, scale), emit_load(builder, place, VF32)
        found = builder.fadd(total, product)
        part = builder.fsub(found, total)
        lost = builder.fadd(builder.fsub(total, builder.fsub(found, part)), builder.fsub(product, part))
        emit_store(builder, place, found)
        emit_store(builder, compensation, builder.fadd(emit_load(builder, compensation, VF32), lost))

    def numbers(self, builder: Any, total: Any) -> list[Any]:
        return [builder.extract_value(total, index) for index in range(self.count)]


STRIP_OPERATIONS: dict[str, Callable[[int], StripOperations]] = {
    "f32": lambda bits: _StripsF32(bits).operations(),
    "i8": lambda bits: _Strips(bits).operations(),
}
"""Operations for codes of 2, 4 or 8 bits, by the kind of activations."""
