"""Tiles of a product of 8-bit integers, written as 8-bit integers.

Vector ``v``, lane ``4 * l + j`` of a panel of ``n`` vectors is column ``4 * n * l + 4 * v + j``: sums lie in the order in which
the narrowing instructions leave columns side by side. They narrow four vectors at a time, of one row or of several.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from ort_sdk_cpu.instruction_set import InstructionSet, instruction_set

from .bytes import I8X64, emit_load_bytes_first, emit_store_part
from .emission import constant, emit_choice, moved
from .integer_tiles import PANEL, Operands, emit_columns, emit_sums, less_zero_points, most_rows, most_unit_rows
from .memory import emit_load, emit_store, splat
from .vector_types import F32, I8, I32, LANES, VF32, VI32, call, operation

__all__ = ["quantized_sum_tile_of", "quantized_tile_of", "quantized_unit_tile_of"]

_AT_ONCE = 4
"""Vectors that are narrowed to one."""
_PARTS = 4
"""Of a vector, within which instructions narrow."""
_VECTOR_BYTES = 4 * LANES
_I16X32 = ir.VectorType(ir.IntType(16), 2 * LANES)
_WORD = 8


def _rounded(builder: Any, value: Any) -> Any:
    """Float32 within int32's range as the nearest integers, of two the even ones."""
    if instruction_set() >= InstructionSet.AVX512:
        current = ir.Constant(I32, 4)
        every = ir.Constant(ir.IntType(16), 0xFFFF)
        return call(builder, "llvm.x86.avx512.mask.cvtps2dq.512", VI32, value, ir.Constant(VI32, None), every, current)
    return builder.fptosi(call(builder, "llvm.rint.v16f32", VF32, value), VI32)


def _narrowed(builder: Any, steps: list[Any], zero_point: Any) -> Any:
    """Four vectors of int32, and a zero point added, as uint8 with saturation: a quarter of each, and again."""
    if instruction_set() >= InstructionSet.AVX512:
        zeros = splat(builder, zero_point)
        pairs = builder.or_(zeros, builder.shl(zeros, ir.Constant(VI32, [16] * LANES)))
        shift = builder.bitcast(pairs, _I16X32)
        words = []
        for index in (0, 2):
            packed = call(builder, "llvm.x86.avx512.packssdw.512", _I16X32, steps[index], steps[index + 1])
            words.append(call(builder, "llvm.sadd.sat.v32i16", _I16X32, packed, shift))
        return call(builder, "llvm.x86.avx512.packuswb.512", I8X64, *words)
    low, high = ir.Constant(VI32, None), ir.Constant(VI32, [255] * LANES)
    narrow = []
    for value in steps:
        shifted = builder.add(value, splat(builder, zero_point))
        positive = builder.select(builder.icmp_signed("<", shifted, low), low, shifted)
        limited = builder.select(builder.icmp_signed(">", positive, high), high, positive)
        narrow.append(builder.trunc(limited, ir.VectorType(I8, LANES)))
    return _by_quarters(builder, narrow)


def _by_quarters(builder: Any, vectors: list[Any]) -> Any:
    """Four vectors of bytes in the order that instructions give."""
    pairs = ir.Constant(ir.VectorType(I32, 2 * LANES), list(range(2 * LANES)))
    low, high = (builder.shuffle_vector(*vectors[index : index + 2], pairs) for index in (0, 2))
    lanes = [LANES * vector + 4 * part + j for part in range(_PARTS) for vector in range(_AT_ONCE) for j in range(4)]
    return builder.shuffle_vector(low, high, ir.Constant(ir.VectorType(I32, PANEL), lanes))


def _flipped(builder: Any, narrow: Any, flip: Any) -> Any:
    """Bytes with the bits of the flip's lowest byte turned over."""
    return builder.xor(narrow, builder.bitcast(splat(builder, builder.trunc(flip, I32)), I8X64))


def _scaled(builder: Any, sums: list[Any], scales: list[Any]) -> list[Any]:
    return [builder.fmul(builder.sitofp(value, VF32), scale) for value, scale in zip(sums, scales, strict=True)]


class _Target(NamedTuple):
    """Where 8-bit results go: LLVM values, as ``quantized_tile_of`` tells of them."""

    zero_point: Any
    flip: Any
    out: Any
    row: Any
    left: Any


def _write(builder: Any, rows: list[list[Any]], target: _Target) -> None:
    """LLVM code that writes rows of vectors of steps."""
    vectors, zero = len(rows[0]), builder.trunc(target.zero_point, I32)
    at_once, found = _AT_ONCE // vectors, []
    for first in range(0, len(rows), at_once):
        group = rows[first : first + at_once]
        steps = [value for row in group for value in row]
        rest = [ir.Constant(VI32, None)] * (_AT_ONCE - len(steps))
        narrow = _flipped(builder, _narrowed(builder, [*steps, *rest], zero), target.flip)
        found += [_side_by_side(builder, narrow, index * vectors, vectors) for index in range(len(group))]
    places = [moved(builder, target.out, row, target.row) for row in range(len(found))]
    with builder.if_else(builder.icmp_signed(">=", target.left, constant(vectors * LANES))) as (whole, part):
        with whole:
            for place, value in zip(places, found, strict=True):
                emit_store(builder, place, value)
        with part:
            for place, value in zip(places, found, strict=True):
                emit_store_part(builder, place, value, target.left)


def _side_by_side(builder: Any, narrow: Any, first: int, vectors: int) -> Any:
    """Bytes of some of four vectors, which follow each other, in the order of columns."""
    lanes = [_AT_ONCE * part + first + vector for part in range(_PARTS) for vector in range(vectors)]
    fours = builder.bitcast(narrow, VI32)
    found = builder.shuffle_vector(fours, fours, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))
    return builder.bitcast(found, ir.VectorType(I8, vectors * LANES))


def _widened(builder: Any, narrow: Any, vectors: int) -> list[Any]:
    """Bytes side by side as vectors of integers from 0 to 255."""
    found = []
    for vector in range(vectors):
        places = [4 * (vectors * part + vector) + j for part in range(_PARTS) for j in range(4)]
        order = ir.Constant(ir.VectorType(I32, PANEL), [lane for place in places for lane in (place, *[PANEL] * 3)])
        found.append(builder.bitcast(builder.shuffle_vector(narrow, ir.Constant(I8X64, None), order), VI32))
    return found


def quantized_tile_of(vectors: int, *, is_int8: bool) -> Any:
    """The operation for rows of int8 or uint8 and panels of some vectors of columns."""

    @operation(types.none, *[types.intp] * 16)
    def quantized_tile(
        builder: Any,
        rows: Any,
        x: Any,
        x_row: Any,
        x_line: Any,
        lines: Any,
        steps: Any,
        flip: Any,
        w: Any,
        columns: Any,
        soon: Any,
        soon_step: Any,
        zero_point: Any,
        out_flip: Any,
        out: Any,
        out_row: Any,
        left: Any,
    ) -> None:
        """Multiply, scale and round to 8 bits.

        Args:
            builder: of LLVM code.
            rows: how many, up to ``most_rows``.
            x: address of the first row.
            x_row: bytes from row to row.
            x_line: bytes from line to line of a row: pieces that do not follow each other.
            lines: how many, at least one.
            steps: of four numbers in a line, at least one.
            flip: bits that are turned over in each four int8 to make them uint8.
            w: address of the panel.
            columns: address of the columns' sums to begin with (int32) and, behind them, their scales (float32).
            soon: address of what is brought into the cache meanwhile.
            soon_step: bytes of it in each step.
            zero_point: added to what is rounded, as if the result were uint8.
            out_flip: bits that are turned over in each four results.
            out: address of the first row's results.
            out_row: bytes from row to row.
            left: columns there are from the first on; the others are not written.
        """
        given = Operands(0, x, x_row, x_line, lines, steps, flip if is_int8 else None, w, soon, soon_step)
        target = _Target(zero_point, out_flip, out, out_row, left)
        _quantized(builder, rows, (most_rows(vectors), vectors), given, columns, target)

    return quantized_tile


def _quantized(builder: Any, rows: Any, most: tuple[int, int], given: Operands, columns: Any, target: _Target) -> None:
    """Tiles of any number of rows up to the most, with so many vectors of columns."""
    most_of_rows, vectors = most
    behind = constant(_VECTOR_BYTES * vectors)

    def emit(case: int) -> None:
        sums = emit_sums(builder, given._replace(rows=case), emit_columns(builder, columns, VI32, vectors))
        scales = emit_columns(builder, moved(builder, columns, 1, behind), VF32, vectors)
        if given.units is not None:
            zeros = emit_columns(builder, moved(builder, columns, 2, behind), VI32, vectors)
            sums = [less_zero_points(builder, values, zeros) for values in sums]
        _write(builder, [[_rounded(builder, value) for value in _scaled(builder, row, scales)] for row in sums], target)

    emit_choice(builder, rows, range(1, most_of_rows + 1), emit)


def quantized_unit_tile_of(vectors: int, *, is_int8: bool) -> Any:
    """The operation for rows of int8 or uint8 and panels of some vectors of columns."""

    @operation(types.none, *[types.intp] * 17)
    def quantized_unit_tile(
        builder: Any,
        rows: Any,
        x: Any,
        x_row: Any,
        x_line: Any,
        lines: Any,
        steps: Any,
        flip: Any,
        w: Any,
        columns: Any,
        soon: Any,
        soon_step: Any,
        zero_point: Any,
        out_flip: Any,
        out: Any,
        out_row: Any,
        left: Any,
        units: Any,
    ) -> None:
        """As ``quantized_tile``, for weights that have zero points.

        Args:
            builder: of LLVM code.
            rows: how many, up to ``most_unit_rows``.
            x: as there, like all that is not named below.
            x_row: see there.
            x_line: see there.
            lines: see there.
            steps: see there.
            flip: see there.
            w: see there.
            columns: as there, and behind the scales the zero points (int32).
            soon: see there.
            soon_step: see there.
            zero_point: see there.
            out_flip: see there.
            out: see there.
            out_row: see there.
            left: see there.
            units: address of four bytes for each step of each line: 1 for what belongs to the window, 0 for what does not.
        """
        given = Operands(0, x, x_row, x_line, lines, steps, flip if is_int8 else None, w, soon, soon_step, units)
        target = _Target(zero_point, out_flip, out, out_row, left)
        _quantized(builder, rows, (most_unit_rows(vectors), vectors), given, columns, target)

    return quantized_unit_tile


class _Sum(NamedTuple):
    """Numbers of an addition behind a convolution, in every lane, in the order in which they lie."""

    low: Any
    """Least and greatest of the convolution's steps, without its zero point."""
    high: Any
    scale: Any
    """Of the convolution's result."""
    addend_zero: Any
    addend_scale: Any
    sum_scale: Any
    inverse: Any
    """Of the sum's scale."""


def _added(builder: Any, value: Any, addend: Any, numbers: _Sum) -> Any:
    """Steps of the sum: the convolution's result is rounded as if it were written."""
    value = call(builder, "llvm.rint.v16f32", VF32, value)
    value = builder.select(builder.fcmp_ordered(">", value, numbers.low), value, numbers.low)
    value = builder.select(builder.fcmp_ordered("<", value, numbers.high), value, numbers.high)
    other = builder.fsub(builder.sitofp(addend, VF32), numbers.addend_zero)
    total = builder.fadd(builder.fmul(value, numbers.scale), builder.fmul(other, numbers.addend_scale))
    return _rounded(builder, _quotient(builder, total, numbers.sum_scale, numbers.inverse))


def _quotient(builder: Any, value: Any, divisor: Any, inverse: Any) -> Any:
    """The quotient as division rounds it, by the divisor's inverse and what that leaves."""
    first = builder.fmul(value, inverse)
    rest = call(builder, "llvm.fma.v16f32", VF32, builder.fneg(first), divisor, value)
    return call(builder, "llvm.fma.v16f32", VF32, rest, inverse, first)


def quantized_sum_tile_of(vectors: int, *, is_int8: bool) -> Any:
    """The operation for rows of int8 or uint8 and panels of some vectors of columns."""

    @operation(types.none, *[types.intp] * 19)
    def quantized_sum_tile(
        builder: Any,
        rows: Any,
        x: Any,
        x_row: Any,
        x_line: Any,
        lines: Any,
        steps: Any,
        flip: Any,
        w: Any,
        columns: Any,
        soon: Any,
        soon_step: Any,
        zero_point: Any,
        out_flip: Any,
        out: Any,
        out_row: Any,
        left: Any,
        addend: Any,
        addend_flip: Any,
        numbers: Any,
    ) -> None:
        """As ``quantized_tile``, with 8-bit numbers added to the rounded result; zero point and flip are the sum's.

        Args:
            builder: of LLVM code.
            rows: as there, like all that is not named below.
            x: see there.
            x_row: see there.
            x_line: see there.
            lines: see there.
            steps: see there.
            flip: see there.
            w: see there.
            columns: see there.
            soon: see there.
            soon_step: see there.
            zero_point: see there.
            out_flip: see there.
            out: see there.
            out_row: see there.
            left: see there.
            addend: address of what is added to the first row; rows are ``out_row`` apart.
            addend_flip: bits that are turned over in each four of it to make them uint8.
            numbers: address of float32, each in 8 bytes: least and greatest step of the product, its scale, zero point (as if it
                were uint8) and scale of the addend, scale of the sum and its inverse.
        """
        given = Operands(0, x, x_row, x_line, lines, steps, flip if is_int8 else None, w, soon, soon_step)
        target = _Target(zero_point, out_flip, out, out_row, left)
        _quantized_sums(builder, (rows, vectors), given, columns, target, (addend, addend_flip, numbers))

    return quantized_sum_tile


def _quantized_sums(
    builder: Any, size: tuple[Any, int], given: Operands, columns: Any, target: _Target, added: tuple[Any, Any, Any]
) -> None:
    """Tiles of any number of rows, with vectors of columns; ``added``: address and flip of what is added, the numbers."""
    (rows, vectors), (addend, addend_flip, numbers) = size, added
    width = constant(vectors * LANES)

    def emit(case: int) -> None:
        sums = emit_sums(builder, given._replace(rows=case), emit_columns(builder, columns, VI32, vectors))
        scales = emit_columns(builder, moved(builder, columns, 1, constant(_VECTOR_BYTES * vectors)), VF32, vectors)
        places = [builder.add(numbers, constant(_WORD * index)) for index in range(len(_Sum._fields))]
        found = _Sum(*(splat(builder, emit_load(builder, place, F32)) for place in places))
        count = builder.select(builder.icmp_signed("<", target.left, width), target.left, width)
        steps = []
        for row, values in enumerate(sums):
            narrow = emit_load_bytes_first(builder, moved(builder, addend, row, target.row), count)
            others = _widened(builder, _flipped(builder, narrow, addend_flip), vectors)
            pairs = zip(_scaled(builder, values, scales), others, strict=True)
            steps.append([_added(builder, value, other, found) for value, other in pairs])
        _write(builder, steps, target)

    emit_choice(builder, rows, range(1, most_rows(vectors) + 1), emit)
