"""Tiles of a float32 product kept in registers over a whole loop along K, with both operands read where they lie.

A tile has rows, and columns of 16 lanes each. Each step multiplies one number per row, ``x_step`` bytes apart from row to row,
with vectors of another operand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from ort_sdk_cpu.instruction_set import InstructionSet, instruction_set

from .memory import emit_load, emit_load_first, emit_store, splat
from .vector_types import F32, I8, I32, VF32, call, operation, pointer

__all__ = ["COLUMNS", "DOTS", "FEW_ROWS", "ROWS", "copying_tile", "dots", "narrow_tile", "tile", "wide_columns", "wide_tile"]

ROWS, COLUMNS = (12, 2) if instruction_set() >= InstructionSet.AVX512 else (6, 1)
"""What the registers hold beside the operands: 32 of 16 lanes, or 16 of 8."""
FEW_ROWS = 4
"""Most rows of a wide tile, and of dots."""
DOTS = 4
"""Rows of the second operand that dots meet at a time."""

_Address = Any
_FLOAT_BYTES, _VECTOR_BYTES = 4, 64
_ROWS_OF_POINTER = 3
"""Rows whose addresses an instruction computes from one pointer: without a distance, with one, with two."""
_READ, _KEEP, _DATA = (ir.Constant(I32, value) for value in (0, 3, 1))


class _Operands(NamedTuple):
    """Sizes, and LLVM values: addresses and distances in bytes."""

    rows: int
    columns: int
    b: Any
    b_step: Any
    """From step to step along K."""
    b_column: Any
    """From vector to vector."""
    x: Any
    x_row: Any
    """From row to row; steps follow each other."""
    count: Any
    """Steps, at least two."""
    source: Any
    """Vectors that are brought into the cache."""
    source_step: Any
    slowness: Any
    """Those of one step in the course of ``2 ** slowness`` steps."""
    copy: Any = None
    """Where the vectors are written, one step behind the other; None: nowhere."""


class _Place(NamedTuple):
    """Pointers that go along K."""

    b: Any
    x: list[Any]
    """One for some rows that follow each other."""
    copy: Any


def _place(builder: Any, given: _Operands, pointers: list[Any]) -> _Place:
    if given.copy is not None:
        return _Place(pointers[0], [_opaque(builder, pointer) for pointer in pointers[1:-1]], pointers[-1])
    return _Place(pointers[0], [_opaque(builder, pointer) for pointer in pointers[1:]], None)


def wide_columns(rows: int) -> int:
    """Vectors in a wide tile of so many rows."""
    return ROWS * COLUMNS // max(rows, COLUMNS)


def _constant(value: int) -> Any:
    return ir.Constant(ir.IntType(64), value)


def _moved(builder: Any, address: _Address, count: int, stride: Any) -> _Address:
    return address if not count else builder.add(address, builder.mul(stride, _constant(count)))


def _switch(builder: Any, value: Any, cases: Sequence[int], emit: Callable[[int], None]) -> None:
    """One block of code for each value; nothing is done for others."""
    done = builder.append_basic_block("tile.done")
    switch = builder.switch(value, done)
    for case in cases:
        block = builder.append_basic_block(f"tile.{case}")
        switch.add_case(ir.Constant(value.type, case), block)
        builder.position_at_end(block)
        emit(case)
        builder.branch(done)
    builder.position_at_end(done)


def _loop(builder: Any, initial: list[Any], count: Any, body: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
    """``count`` times, at least once, ``body(index, values)``, which returns the next values; what they are at last."""
    before, loop, done = builder.block, builder.append_basic_block("tile.loop"), builder.append_basic_block("tile.end")
    builder.branch(loop)
    builder.position_at_end(loop)
    index, values = builder.phi(count.type), [builder.phi(value.type) for value in initial]
    found, following = body(index, values), builder.add(index, _constant(1))
    for phi, first, value in zip((index, *values), (_constant(0), *initial), (following, *found), strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(value, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, count), loop, done)
    builder.position_at_end(done)
    return found


def _if(builder: Any, condition: Any, values: list[Any], body: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """``body(values)`` where the condition holds, else the values."""
    before = builder.block
    with builder.if_then(condition):
        found, after = body(values), builder.block
    joined = []
    for value, other in zip(values, found, strict=True):
        phi = builder.phi(value.type)
        phi.add_incoming(value, before)
        phi.add_incoming(other, after)
        joined.append(phi)
    return joined


def _opaque(builder: Any, value: Any) -> Any:
    """The value, of which the compiler does not know where it is from: it would compute each address from another one."""
    return builder.asm(ir.FunctionType(value.type, [value.type]), "", "=r,0", (value,), side_effect=False)


def _write(builder: Any, places: list[_Address], sums: list[Any], is_first: Any) -> None:
    """Store the sums, or add them to what is there."""
    with builder.if_else(builder.icmp_signed("!=", is_first, _constant(0))) as (store, add):
        with store:
            for place, value in zip(places, sums, strict=True):
                emit_store(builder, place, value)
        with add:
            for place, value in zip(places, sums, strict=True):
                emit_store(builder, place, builder.fadd(value, emit_load(builder, place, VF32)))


def _multiply_add(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """Rounded once where the machine does that in one instruction."""
    return builder.fadd(builder.fmul(x, y, flags=("contract",)), z, flags=("contract",))


def _ask_for(builder: Any, address: _Address) -> None:
    call(builder, "llvm.prefetch.p0", ir.VoidType(), pointer(builder, address, I8), _READ, _KEEP, _DATA)


def _step(builder: Any, given: _Operands, at: _Place, sums: list[Any], step: int) -> list[Any]:
    """Sums after one step, ``step`` steps behind the place."""
    place = _moved(builder, at.b, step, given.b_step)
    vectors = [emit_load(builder, _moved(builder, place, column, given.b_column), VF32) for column in range(given.columns)]
    if at.copy is not None:
        for column, vector in enumerate(vectors):
            offset = (step * given.columns + column) * _VECTOR_BYTES
            emit_store(builder, builder.add(at.copy, _constant(offset)), vector)
    found: list[Any] = []
    for row in range(given.rows):
        start = _moved(builder, at.x[row // _ROWS_OF_POINTER], row % _ROWS_OF_POINTER, given.x_row)
        value = splat(builder, emit_load(builder, builder.add(start, _constant(step * _FLOAT_BYTES)), F32))
        found += [_multiply_add(builder, value, vector, sums[len(found) + column]) for column, vector in enumerate(vectors)]
    return found


def _advanced(builder: Any, given: _Operands, at: _Place, steps: int) -> list[Any]:
    """The pointers some steps behind the place."""
    pointers = [_moved(builder, at.b, 1, builder.mul(given.b_step, _constant(steps)))]
    pointers += [builder.add(pointer, _constant(steps * _FLOAT_BYTES)) for pointer in at.x]
    if at.copy is not None:
        pointers.append(builder.add(at.copy, _constant(steps * given.columns * _VECTOR_BYTES)))
    return pointers


def _bring(builder: Any, given: _Operands, index: Any) -> None:
    """Ask for the vectors that are needed later."""
    soon = builder.add(given.source, builder.mul(builder.lshr(index, given.slowness), given.source_step))
    for place in (soon, builder.add(soon, given.source_step)):
        for column in range(given.columns):
            _ask_for(builder, builder.add(place, _constant(column * _VECTOR_BYTES)))


def _emit_tile(builder: Any, given: _Operands, target: _Address, row_stride: Any, is_first: Any) -> None:
    rows, columns = given.rows, given.columns
    pointers = [given.b, *(_moved(builder, given.x, row, given.x_row) for row in range(0, rows, _ROWS_OF_POINTER))]
    pointers += [] if given.copy is None else [given.copy]
    count = len(pointers)

    def body(index: Any, values: list[Any], steps: int) -> list[Any]:
        at = _place(builder, given, values[:count])
        sums = values[count:]
        _bring(builder, given, builder.mul(index, _constant(steps)))
        for step in range(steps):
            sums = _step(builder, given, at, sums, step)
        return _advanced(builder, given, at, steps) + sums

    values = pointers + [ir.Constant(VF32, None)] * (rows * columns)
    values = _loop(builder, values, builder.lshr(given.count, _constant(1)), lambda index, values: body(index, values, 2))
    is_odd = builder.trunc(given.count, ir.IntType(1))
    sums = _if(builder, is_odd, values, lambda values: body(_constant(0), values, 1))[count:]
    places = [
        builder.add(_moved(builder, target, row, row_stride), _constant(column * _VECTOR_BYTES))
        for row in range(rows)
        for column in range(columns)
    ]
    _write(builder, places, sums, is_first)


_TILE = operation(types.none, *[types.intp] * 13)


@_TILE
def tile(
    builder: Any,
    rows: Any,
    b: Any,
    b_step: Any,
    b_column: Any,
    x: Any,
    x_row: Any,
    count: Any,
    target: Any,
    target_row: Any,
    is_first: Any,
    source: Any,
    source_step: Any,
    slowness: Any,
) -> None:
    """Add the product of up to ``ROWS`` rows and ``COLUMNS`` vectors to a target, or write it there.

    Args:
        builder: of LLVM code.
        rows: how many.
        b: address of the vectors.
        b_step: bytes from step to step along K.
        b_column: bytes from vector to vector.
        x: address of the first row's numbers, which follow each other.
        x_row: bytes from row to row.
        count: steps, at least two.
        target: address of the first row's vectors, which follow each other.
        target_row: bytes from row to row.
        is_first: whether what is there does not count.
        source: address of vectors to bring into the cache.
        source_step: bytes from step to step.
        slowness: ``count >> slowness`` steps of them are asked for.
    """

    def emit(case: int) -> None:
        given = _Operands(case, COLUMNS, b, b_step, b_column, x, x_row, count, source, source_step, slowness)
        _emit_tile(builder, given, target, target_row, is_first)

    _switch(builder, rows, range(1, ROWS + 1), emit)


@_TILE
def narrow_tile(
    builder: Any,
    rows: Any,
    b: Any,
    b_step: Any,
    b_column: Any,
    x: Any,
    x_row: Any,
    count: Any,
    target: Any,
    target_row: Any,
    is_first: Any,
    source: Any,
    source_step: Any,
    slowness: Any,
) -> None:
    """As ``tile``, with one vector to a row."""

    def emit(case: int) -> None:
        given = _Operands(case, 1, b, b_step, b_column, x, x_row, count, source, source_step, slowness)
        _emit_tile(builder, given, target, target_row, is_first)

    _switch(builder, rows, range(1, ROWS + 1), emit)


@_TILE
def copying_tile(
    builder: Any,
    rows: Any,
    b: Any,
    b_step: Any,
    copy: Any,
    x: Any,
    x_row: Any,
    count: Any,
    target: Any,
    target_row: Any,
    is_first: Any,
    source: Any,
    source_step: Any,
    slowness: Any,
) -> None:
    """As ``tile``, of vectors that follow each other and are written to ``copy``; of half as many rows or more."""

    def emit(case: int) -> None:
        given = _Operands(
            case, COLUMNS, b, b_step, _constant(_VECTOR_BYTES), x, x_row, count, source, source_step, slowness, copy
        )
        _emit_tile(builder, given, target, target_row, is_first)

    _switch(builder, rows, range(ROWS // 2, ROWS + 1), emit)


@_TILE
def wide_tile(
    builder: Any,
    rows: Any,
    b: Any,
    b_step: Any,
    b_column: Any,
    x: Any,
    x_row: Any,
    count: Any,
    target: Any,
    target_row: Any,
    is_first: Any,
    source: Any,
    source_step: Any,
    slowness: Any,
) -> None:
    """As ``tile``, of up to ``FEW_ROWS`` rows and ``wide_columns`` vectors."""

    def emit(case: int) -> None:
        given = _Operands(case, wide_columns(case), b, b_step, b_column, x, x_row, count, source, source_step, slowness)
        _emit_tile(builder, given, target, target_row, is_first)

    _switch(builder, rows, range(1, FEW_ROWS + 1), emit)


def _dot_step(
    builder: Any, load: Callable[[_Address], Any], b_rows: list[_Address], x_rows: list[_Address], sums: list[Any]
) -> list[Any]:
    weights, numbers = [load(row) for row in b_rows], [load(row) for row in x_rows]
    products = [(number, weight) for number in numbers for weight in weights]
    return [_multiply_add(builder, *pair, total) for pair, total in zip(products, sums, strict=True)]


def _emit_dots(builder: Any, rows: int, b_rows: list[_Address], x: _Address, x_row: Any, k: Any) -> list[Any]:
    """Sums, by rows of x, of as many dot products as there are addresses."""
    x_rows = [_moved(builder, x, row, x_row) for row in range(rows)]
    zeros = [ir.Constant(VF32, None)] * (rows * len(b_rows))
    whole = builder.ashr(k, _constant(4))

    def body(index: Any, sums: list[Any]) -> list[Any]:
        offset = builder.shl(index, _constant(6))
        load = lambda row: emit_load(builder, builder.add(row, offset), VF32)  # noqa: E731
        return _dot_step(builder, load, b_rows, x_rows, sums)

    sums = _loop(builder, zeros, whole, body)
    offset, left = builder.shl(whole, _constant(6)), builder.and_(k, _constant(15))
    rest = lambda row: emit_load_first(builder, builder.add(row, offset), left, VF32, "v16f32")  # noqa: E731
    sums = _dot_step(builder, rest, b_rows, x_rows, sums)
    return [
        call(builder, "llvm.vector.reduce.fadd.v16f32", F32, ir.Constant(F32, 0.0), total, fastmath=("reassoc",))
        for total in sums
    ]


@operation(types.none, *[types.intp] * 9)
def dots(
    builder: Any, rows: Any, b: Any, b_row: Any, b_rows: Any, x: Any, x_row: Any, k: Any, target: Any, target_row: Any
) -> None:
    """Dot products of up to ``FEW_ROWS`` rows with up to ``DOTS`` rows of another matrix.

    Args:
        builder: of LLVM code.
        rows: how many.
        b: address of the other matrix's rows.
        b_row: bytes from row to row.
        b_rows: how many of them there are, at least one.
        x: address of the first row.
        x_row: bytes from row to row.
        k: numbers in a row, at least 16.
        target: address of the first row's results, which follow each other.
        target_row: bytes from row to row.
    """
    last = builder.sub(b_rows, _constant(1))
    indices = [builder.select(builder.icmp_signed("<", _constant(row), last), _constant(row), last) for row in range(DOTS)]
    starts = [builder.add(b, builder.mul(index, b_row)) for index in indices]

    def emit(case: int) -> None:
        found = _emit_dots(builder, case, starts, x, x_row, k)
        for position, value in enumerate(found):
            row, column = divmod(position, DOTS)
            place = builder.add(_moved(builder, target, row, target_row), builder.mul(indices[column], _constant(_FLOAT_BYTES)))
            emit_store(builder, place, value)

    _switch(builder, rows, range(1, FEW_ROWS + 1), emit)
