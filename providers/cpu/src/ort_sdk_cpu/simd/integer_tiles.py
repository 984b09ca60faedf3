"""Tiles of a product of 8-bit integers, kept in registers over a whole loop along K, and written as what follows the sums.

A tile has rows of activations, uint8 or int8 where they lie, and the 64 columns of a panel of the weight, int8. The panel has,
for each step of four along K, four vectors; vector ``v``, lane ``4 * l + j``, holds the four weights of column
``16 * l + 4 * v + j``: so the sums lie in the order in which the narrowing instructions leave columns side by side. What belongs
to columns, such as scales, lies in four vectors in the same order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from ort_sdk_cpu.instruction_set import InstructionSet, instruction_set

from .bytes import I8X64, emit_load_bytes_first, emit_store_bytes_first
from .emission import constant, emit_choice, emit_loop, emit_prefetch, moved, opaque
from .memory import emit_load, emit_store, emit_store_first, splat
from .products import emit_products
from .vector_types import F32, I8, I32, LANES, VF32, VI32, call, operation

__all__ = [
    "PANEL",
    "ROWS",
    "UNIT_ROWS",
    "Operands",
    "emit_columns",
    "emit_store_columns",
    "emit_sums",
    "less_zero_points",
    "quantized_sum_tile",
    "quantized_tile",
    "quantized_unit_tile",
]

PANEL = 64
"""Columns of a panel."""
ROWS = 6 if instruction_set() >= InstructionSet.AVX512 else 2
"""Most rows of a tile."""
UNIT_ROWS = 5 if instruction_set() >= InstructionSet.AVX512 else ROWS
"""Most rows of a tile that sums up what it multiplies, too."""
_VECTORS = PANEL // LANES
_STEP_BYTES = 4 * PANEL
_ROWS_OF_POINTER = 3
_I16X32 = ir.VectorType(ir.IntType(16), PANEL // 2)
_WORD = 8


class Operands(NamedTuple):
    """What is multiplied: LLVM values, distances in bytes."""

    rows: int
    x: Any
    x_row: Any
    """From row to row."""
    x_line: Any
    """From line to line of a row."""
    lines: Any
    steps: Any
    """Steps of four numbers in a line."""
    flip: Any
    """What is turned over in each four numbers, so that they are uint8."""
    w: Any
    soon: Any
    """Address that is asked for in the first step."""
    soon_step: Any
    """How far on in each step."""
    units: Any = None
    """Four weights for each step of each line, the same for all columns: a fifth vector of each row has the sum of the products
    with them in every lane."""


def emit_columns(builder: Any, address: Any, llvm: Any) -> list[Any]:
    """LLVM code of a load of one number for each column: four vectors."""
    return [emit_load(builder, moved(builder, address, vector, constant(64)), llvm) for vector in range(_VECTORS)]


def emit_store_columns(builder: Any, address: Any, values: list[Any], left: Any) -> None:
    """LLVM code of a store of four vectors of 32-bit numbers, of which ``left`` columns are there."""
    places = [moved(builder, address, vector, constant(64)) for vector in range(_VECTORS)]
    with builder.if_else(builder.icmp_signed(">=", left, constant(PANEL))) as (whole, part):
        with whole:
            for place, value in zip(places, values, strict=True):
                emit_store(builder, place, value)
        with part:
            for vector, (place, value) in enumerate(zip(places, values, strict=True)):
                count = builder.sub(left, constant(vector * LANES))
                emit_store_first(builder, place, value, count, "v16f32" if value.type == VF32 else "v16i32")


def emit_sums(builder: Any, given: Operands, start: list[Any]) -> list[list[Any]]:
    """LLVM code of sums of products: for each row, four vectors of int32, which begin with ``start``, and the units' if any."""
    flips = splat(builder, builder.trunc(given.flip, I32))
    lines = [moved(builder, given.x, row, given.x_row) for row in range(0, given.rows, _ROWS_OF_POINTER)]
    begin = [*start, ir.Constant(VI32, None)] if given.units is not None else start
    weighted, count = [constant(0) if given.units is None else given.units, given.w, given.soon], len(lines)
    pointers = len(weighted)
    first = pointers + count

    def step(_index: Any, values: list[Any]) -> list[Any]:
        units, w, soon, *rest = values
        x, sums = [opaque(builder, place) for place in rest[:count]], rest[count:]
        emit_prefetch(builder, soon)
        weights = emit_columns(builder, w, VI32)
        if given.units is not None:
            weights.append(splat(builder, emit_load(builder, units, I32)))
        found: list[Any] = []
        for row in range(given.rows):
            place = moved(builder, x[row // _ROWS_OF_POINTER], row % _ROWS_OF_POINTER, given.x_row)
            value = builder.xor(splat(builder, emit_load(builder, place, I32)), flips)
            for weight in weights:
                found.append(emit_products(builder, sums[len(found)], value, weight))
        moved_on = [builder.add(units, constant(4)), builder.add(w, constant(_STEP_BYTES)), builder.add(soon, given.soon_step)]
        return [*moved_on, *(builder.add(place, constant(4)) for place in x), *found]

    def line(_index: Any, values: list[Any]) -> list[Any]:
        starts = values[pointers:first]
        after = emit_loop(builder, values, given.steps, step)
        return [*after[:pointers], *(builder.add(place, given.x_line) for place in starts), *after[first:]]

    found = emit_loop(builder, [*weighted, *lines, *begin * given.rows], given.lines, line)[first:]
    return [found[row * len(begin) : (row + 1) * len(begin)] for row in range(given.rows)]


def less_zero_points(builder: Any, row: list[Any], zero_points: list[Any]) -> list[Any]:
    """LLVM code of a row's sums of products with weights less their columns' zero points; the units' sums are its last vector."""
    *sums, total = row
    return [builder.sub(value, builder.mul(zero, total)) for value, zero in zip(sums, zero_points, strict=True)]


def _rounded(builder: Any, value: Any) -> Any:
    """Float32 within int32's range as the nearest integers, of two the even ones."""
    if instruction_set() >= InstructionSet.AVX512:
        current = ir.Constant(I32, 4)
        every = ir.Constant(ir.IntType(16), 0xFFFF)
        return call(builder, "llvm.x86.avx512.mask.cvtps2dq.512", VI32, value, ir.Constant(VI32, None), every, current)
    return builder.fptosi(call(builder, "llvm.rint.v16f32", VF32, value), VI32)


def _narrowed(builder: Any, steps: list[Any], zero_point: Any) -> Any:
    """Four vectors of int32, and a zero point added, as uint8 with saturation, columns side by side."""
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
    return _side_by_side(builder, narrow)


def _side_by_side(builder: Any, vectors: list[Any]) -> Any:
    """Lanes of four vectors of bytes in the order of columns."""
    pairs = ir.Constant(ir.VectorType(I32, 2 * LANES), list(range(2 * LANES)))
    low, high = (builder.shuffle_vector(*vectors[index : index + 2], pairs) for index in (0, 2))
    lanes = [LANES * vector + 4 * part + j for part in range(4) for vector in range(_VECTORS) for j in range(4)]
    return builder.shuffle_vector(low, high, ir.Constant(ir.VectorType(I32, PANEL), lanes))


def _widened(builder: Any, narrow: Any) -> list[Any]:
    """Bytes side by side as four vectors of integers from 0 to 255."""
    found = []
    for vector in range(_VECTORS):
        lanes = [index for part in range(4) for j in range(4) for index in (16 * part + 4 * vector + j, *[PANEL] * 3)]
        order = ir.Constant(ir.VectorType(I32, PANEL), lanes)
        found.append(builder.bitcast(builder.shuffle_vector(narrow, ir.Constant(I8X64, None), order), VI32))
    return found


def _flipped(builder: Any, narrow: Any, flip: Any) -> Any:
    """Bytes with the bits of the flip's lowest byte turned over."""
    return builder.xor(narrow, builder.bitcast(splat(builder, builder.trunc(flip, I32)), I8X64))


def _scaled(builder: Any, sums: list[Any], scales: list[Any]) -> list[Any]:
    return [builder.fmul(builder.sitofp(value, VF32), scale) for value, scale in zip(sums, scales, strict=True)]


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
        rows: how many, up to ``ROWS``.
        x: address of the first row.
        x_row: bytes from row to row.
        x_line: bytes from line to line of a row: pieces that do not follow each other.
        lines: how many, at least one.
        steps: of four numbers in a line, at least one.
        flip: bits that are turned over in each four numbers to make them uint8.
        w: address of the panel.
        columns: address of the 64 columns' sums to begin with (int32) and, behind them, their scales (float32).
        soon: address of what is brought into the cache meanwhile.
        soon_step: bytes of it in each step.
        zero_point: added to what is rounded, as if the result were uint8.
        out_flip: bits that are turned over in each four results.
        out: address of the first row's results.
        out_row: bytes from row to row.
        left: columns there are from the first on; the others are not written.
    """
    given = Operands(0, x, x_row, x_line, lines, steps, flip, w, soon, soon_step)
    _quantized(builder, rows, ROWS, given, columns, _Target(zero_point, out_flip, out, out_row, left))


class _Target(NamedTuple):
    """Where 8-bit results go: LLVM values, as ``quantized_tile`` takes them."""

    zero_point: Any
    flip: Any
    out: Any
    row: Any
    left: Any


def _quantized(builder: Any, rows: Any, most_rows: int, given: Operands, columns: Any, target: _Target) -> None:
    """Tiles of any number of rows."""

    def emit(case: int) -> None:
        sums = emit_sums(builder, given._replace(rows=case), emit_columns(builder, columns, VI32))
        scales = emit_columns(builder, builder.add(columns, constant(_STEP_BYTES)), VF32)
        if given.units is not None:
            zeros = emit_columns(builder, builder.add(columns, constant(2 * _STEP_BYTES)), VI32)
            sums = [less_zero_points(builder, values, zeros) for values in sums]
        zero = builder.trunc(target.zero_point, I32)
        for row, values in enumerate(sums):
            found = [_rounded(builder, value) for value in _scaled(builder, values, scales)]
            narrow = _flipped(builder, _narrowed(builder, found, zero), target.flip)
            emit_store_bytes_first(builder, moved(builder, target.out, row, target.row), narrow, target.left)

    emit_choice(builder, rows, range(1, most_rows + 1), emit)


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
        rows: how many, up to ``UNIT_ROWS``.
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
    given = Operands(0, x, x_row, x_line, lines, steps, flip, w, soon, soon_step, units)
    _quantized(builder, rows, UNIT_ROWS, given, columns, _Target(zero_point, out_flip, out, out_row, left))


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
        numbers: address of float32, each in 8 bytes: least and greatest step of the product, its scale, zero point (as if it were
            uint8) and scale of the addend, scale of the sum and its inverse.
    """
    given = Operands(0, x, x_row, x_line, lines, steps, flip, w, soon, soon_step)
    target = _Target(zero_point, out_flip, out, out_row, left)
    _quantized_sums(builder, rows, given, columns, target, (addend, addend_flip, numbers))


def _quantized_sums(builder: Any, rows: Any, given: Operands, columns: Any, target: _Target, added: tuple[Any, Any, Any]) -> None:
    """Tiles of any number of rows; ``added``: address and flip of what is added, address of the numbers."""
    addend, addend_flip, numbers = added

    def emit(case: int) -> None:
        sums = emit_sums(builder, given._replace(rows=case), emit_columns(builder, columns, VI32))
        scales = emit_columns(builder, builder.add(columns, constant(_STEP_BYTES)), VF32)
        places = [builder.add(numbers, constant(_WORD * index)) for index in range(len(_Sum._fields))]
        found = _Sum(*(splat(builder, emit_load(builder, place, F32)) for place in places))
        zero = builder.trunc(target.zero_point, I32)
        for row, values in enumerate(sums):
            narrow = emit_load_bytes_first(builder, moved(builder, addend, row, target.row), target.left)
            pairs = zip(_scaled(builder, values, scales), _widened(builder, _flipped(builder, narrow, addend_flip)), strict=True)
            steps = [_added(builder, value, other, found) for value, other in pairs]
            narrow = _flipped(builder, _narrowed(builder, steps, zero), target.flip)
            emit_store_bytes_first(builder, moved(builder, target.out, row, target.row), narrow, target.left)

    emit_choice(builder, rows, range(1, ROWS + 1), emit)
