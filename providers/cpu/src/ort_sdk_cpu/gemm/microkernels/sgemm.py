"""Micro-kernels of GEMM of float32: a register tile of C stays in registers over all steps along K, as in BLIS.

A tile has ``MR`` rows and ``NR_VECTORS`` vectors of 16 lanes (NR columns). Each step is an outer product: one
number of each row of A, ``x_row`` bytes apart, broadcast, times the vectors of one row of B.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set
from ort_sdk_cpu.simd.ir_builder import (
    advance,
    constant,
    emit_fma,
    emit_fma_broadcast,
    emit_if,
    emit_loop,
    emit_prefetch,
    emit_switch,
    opaque,
)
from ort_sdk_cpu.simd.memory import emit_load, emit_store, splat
from ort_sdk_cpu.simd.vector_types import F32, VF32, operation

__all__ = [
    "HAS_BROADCAST_OPERAND",
    "MR",
    "NR_VECTORS",
    "UNPACKED_ROWS",
    "Element",
    "Operands",
    "direct_packing_tile",
    "direct_tile",
    "emit_step",
    "emit_sums",
    "emit_target",
    "narrow_tile",
    "packing_tile",
    "strided_tile",
    "tile",
]

# 12 * 2 sums, 2 vectors of B and a broadcast number are 27 of AVX-512's 32 registers; 6 rows of two halves, and 3, are 15 of
# AVX2's 16.
MR, NR_VECTORS = (12, 2) if instruction_set() >= InstructionSet.AVX512 else (6, 1)
"""Rows of a register tile, and vectors in each."""
# Two tiles of rows, of which the second finds B in the first cache.
UNPACKED_ROWS = MR * NR_VECTORS
"""Rows up to which B is read in place, and not packed."""

_Address = Any
_FLOAT_BYTES, _VECTOR_BYTES = 4, 64
HAS_BROADCAST_OPERAND = instruction_set() >= InstructionSet.AVX512
"""Whether a multiply-add takes a number of memory, broadcast, as an operand (AVX-512's embedded broadcast)."""
# Addresses are base + index * scale, with scales of 1 and 2 for a stride in a register: a pointer for three rows saves
# additions.
_ROWS_OF_POINTER = 3
"""Rows whose addresses an instruction computes from one pointer: without a stride, with one, with two."""


# One object: ``_reads_from_memory`` tells by identity that elements follow each other.
_NEXT = constant(_FLOAT_BYTES)
"""From one number to the next."""


class Operands(NamedTuple):
    """Of a tile: sizes, and LLVM values: addresses and strides in bytes."""

    rows: int
    columns: int
    b: Any
    b_step: Any
    """From step to step along K."""
    b_column: Any
    """From vector to vector."""
    x: Any
    x_row: Any
    """From row to row."""
    count: Any
    """Steps."""
    source: Any = None
    """Vectors that are prefetched; None: none."""
    source_step: Any = None
    prefetch_shift: Any = None
    """Those of one step in the course of ``2 ** prefetch_shift`` steps."""
    x_step: Any = _NEXT
    """From step to step along K."""
    copy: Any = None
    """Where the vectors are written, one step behind the other; None: nowhere."""
    into_l2: bool = False
    """Whether vectors are prefetched into the second cache only: those of more steps than the first one has room for."""
    written: Any = None
    """Vectors that are written later, with the same stride; None: none."""
    line: Any = None
    """What is read later of other memory: it comes into the second cache, ``line_step`` bytes on with each two steps."""
    line_step: Any = None
    """0, or a cache line's, or two lines'."""


class _Pointers(NamedTuple):
    """Pointers that go along K."""

    b: Any
    x: list[Any]
    """One for some rows that follow each other."""
    copy: Any


def _pointers_at(builder: Any, given: Operands, pointers: list[Any]) -> _Pointers:
    if given.copy is not None:
        return _Pointers(pointers[0], [opaque(builder, pointer) for pointer in pointers[1:-1]], pointers[-1])
    return _Pointers(pointers[0], [opaque(builder, pointer) for pointer in pointers[1:]], None)


def _write(builder: Any, places: list[_Address], sums: list[Any], is_first: Any) -> None:
    """Store the sums, or add them to what is there."""
    # One branch for each tile, so that the first block of K needs no zeros in C.
    with builder.if_else(builder.icmp_signed("!=", is_first, constant(0))) as (store, add):
        with store:
            for place, value in zip(places, sums, strict=True):
                emit_store(builder, place, value)
        with add:
            for place, value in zip(places, sums, strict=True):
                emit_store(builder, place, builder.fadd(value, emit_load(builder, place, VF32)))


class Element(NamedTuple):
    """Where a row's element of A for one step is."""

    address: Any
    offset: int = 0
    """Bytes behind the address."""
    is_memory_operand: bool = False
    """Whether each multiply-add reads it from memory; see ``HAS_BROADCAST_OPERAND``."""


def emit_step(builder: Any, vectors: list[Any], elements: list[Element], sums: list[Any]) -> list[Any]:
    """LLVM code of a tile's sums, row by row, after one step more: each row's number times the vectors is added."""
    found: list[Any] = []
    for address, offset, is_memory_operand in elements:
        # Row after row: each number is broadcast once, and is dead after its vectors.
        last = sums[len(found) : len(found) + len(vectors)]
        if is_memory_operand:
            found += [emit_fma_broadcast(builder, address, offset, *each) for each in zip(vectors, last, strict=True)]
            continue
        value = splat(builder, emit_load(builder, builder.add(address, constant(offset)), F32))
        found += [emit_fma(builder, value, *each) for each in zip(vectors, last, strict=True)]
    return found


def _reads_from_memory(given: Operands) -> bool:
    """Whether the instructions that multiply read a row's elements themselves, where its address is a pointer.

    That saves the one that would read them before: a core's two threads share how many instructions it takes at a time. Where an
    address is a sum it saves none, as the processor makes two of such an instruction.
    """
    return HAS_BROADCAST_OPERAND and given.columns > 1 and given.x_step is _NEXT


def _step(builder: Any, given: Operands, at: _Pointers, sums: list[Any], step: int) -> list[Any]:
    """Sums after one step, ``step`` steps behind the place."""
    place = advance(builder, at.b, step, given.b_step)
    vectors = [emit_load(builder, advance(builder, place, column, given.b_column), VF32) for column in range(given.columns)]
    if at.copy is not None:
        for column, vector in enumerate(vectors):
            offset = (step * given.columns + column) * _VECTOR_BYTES
            emit_store(builder, builder.add(at.copy, constant(offset)), vector)
    elements, reads_from_memory = [], _reads_from_memory(given)
    for row in range(given.rows):
        start, distance = at.x[row // _ROWS_OF_POINTER], row % _ROWS_OF_POINTER
        if distance == 0 and reads_from_memory:
            elements.append(Element(start, step * _FLOAT_BYTES, is_memory_operand=True))
        else:
            elements.append(Element(advance(builder, advance(builder, start, distance, given.x_row), step, given.x_step)))
    return emit_step(builder, vectors, elements, sums)


def _advanced(builder: Any, given: Operands, at: _Pointers, steps: int) -> list[Any]:
    """The pointers some steps behind the place."""
    # Pointers are moved once for all steps of an unrolled body; within it, steps are constant offsets.
    pointers = [advance(builder, at.b, 1, builder.mul(given.b_step, constant(steps)))]
    pointers += [advance(builder, pointer, steps, given.x_step) for pointer in at.x]
    if at.copy is not None:
        pointers.append(builder.add(at.copy, constant(steps * given.columns * _VECTOR_BYTES)))
    return pointers


def _prefetch(builder: Any, given: Operands, index: Any) -> None:
    """Prefetch what is read later."""
    if given.line is not None:
        # With each two steps one line, or both of two: every line of what comes next is prefetched once.
        place = builder.add(given.line, builder.mul(builder.lshr(index, constant(1)), given.line_step))
        other = builder.and_(builder.lshr(given.line_step, constant(1)), constant(_VECTOR_BYTES))
        for each in (place, builder.add(place, other)):
            emit_prefetch(builder, each, into_l2=True)
    if given.source is None:
        return
    # Each of several tiles prefetches a part of what comes next, so that memory is busy all the time.
    offset = builder.mul(builder.lshr(index, given.prefetch_shift), given.source_step)
    places = [
        (builder.add(start, offset), start is given.written) for start in (given.source, given.written) if start is not None
    ]
    for place, is_written in places:
        for start in (place, builder.add(place, given.source_step)):
            for column in range(given.columns):
                line = builder.add(start, constant(column * _VECTOR_BYTES))
                emit_prefetch(builder, line, into_l2=given.into_l2, is_written=is_written)


def emit_sums(builder: Any, given: Operands, initial: list[Any]) -> list[Any]:
    """LLVM code of a tile's sums, row by row, added to those at first."""
    pointers = [given.b, *(advance(builder, given.x, row, given.x_row) for row in range(0, given.rows, _ROWS_OF_POINTER))]
    pointers += [] if given.copy is None else [given.copy]
    count = len(pointers)

    def body(index: Any, values: list[Any], steps: int) -> list[Any]:
        at = _pointers_at(builder, given, values[:count])
        sums = values[count:]
        if given.source is not None or given.line is not None:
            _prefetch(builder, given, builder.mul(index, constant(steps)))
        for step in range(steps):
            sums = _step(builder, given, at, sums, step)
        return _advanced(builder, given, at, steps) + sums

    values = pointers + initial
    # Two steps to a turn of the loop: half of the loop's own instructions, and code stays small for 12 cases of rows.
    pairs = builder.lshr(given.count, constant(1))
    loop = lambda values: emit_loop(builder, values, pairs, lambda index, values: body(index, values, 2))  # noqa: E731
    # ``emit_loop`` runs at least once.
    values = emit_if(builder, builder.icmp_signed(">", pairs, constant(0)), values, loop)
    is_odd = builder.trunc(given.count, ir.IntType(1))
    return emit_if(builder, is_odd, values, lambda values: body(constant(0), values, 1))[count:]


def emit_target(
    builder: Any, sizes: tuple[int, int], target: _Address, row_stride: Any, is_first: Any, make: Callable[[], list[Any]]
) -> None:
    """LLVM code that makes sums of (rows, columns), row by row, and stores them, or adds them to what is there."""
    rows, columns = sizes
    places = [
        builder.add(advance(builder, target, row, row_stride), constant(column * _VECTOR_BYTES))
        for row in range(rows)
        for column in range(columns)
    ]
    # Other rows were in the first cache since these were: they are there again by the time the sums are.
    for place in places:
        emit_prefetch(builder, place, into_l2=False, is_written=True)
    _write(builder, places, make(), is_first)


def _emit_tile(builder: Any, given: Operands, target: _Address, row_stride: Any, is_first: Any) -> None:
    sizes = given.rows, given.columns
    zeros = [ir.Constant(VF32, None)] * (given.rows * given.columns)
    emit_target(builder, sizes, target, row_stride, is_first, lambda: emit_sums(builder, given, zeros))


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
    prefetch_shift: Any,
) -> None:
    """Add the product of up to ``MR`` rows of A and ``NR_VECTORS`` vectors of B to a tile of C, or write it there.

    Args:
        builder: of LLVM code.
        rows: how many.
        b: address of the vectors.
        b_step: bytes from step to step along K.
        b_column: bytes from vector to vector.
        x: address of the first row's elements, which follow each other.
        x_row: bytes from row to row.
        count: steps.
        target: address of the first row's vectors, which follow each other.
        target_row: bytes from row to row.
        is_first: whether what is there does not count.
        source: address of vectors to prefetch.
        source_step: bytes from step to step.
        prefetch_shift: ``count >> prefetch_shift`` steps of them are prefetched.
    """

    def emit(case: int) -> None:
        given = Operands(case, NR_VECTORS, b, b_step, b_column, x, x_row, count, source, source_step, prefetch_shift)
        _emit_tile(builder, given, target, target_row, is_first)

    # Code for each number of rows: sums are registers only where their number is known.
    emit_switch(builder, rows, range(1, MR + 1), emit)


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
    prefetch_shift: Any,
) -> None:
    """As ``tile``, with one vector to a row."""

    def emit(case: int) -> None:
        given = Operands(case, 1, b, b_step, b_column, x, x_row, count, source, source_step, prefetch_shift)
        _emit_tile(builder, given, target, target_row, is_first)

    emit_switch(builder, rows, range(1, MR + 1), emit)


@operation(types.none, *[types.intp] * 10)
def direct_tile(
    builder: Any,
    rows: Any,
    b: Any,
    b_step: Any,
    x: Any,
    x_row: Any,
    count: Any,
    target: Any,
    target_row: Any,
    is_first: Any,
    source: Any,
) -> None:
    """As ``tile``, of B in place, which is read once; prefetches into the second cache.

    The first one would not keep that many, and must not wait for memory while tiles need it.
    """

    def emit(case: int) -> None:
        vectors = (NR_VECTORS, b, b_step, constant(_VECTOR_BYTES))
        given = Operands(case, *vectors, x, x_row, count, source, b_step, constant(0), into_l2=True)
        _emit_tile(builder, given, target, target_row, is_first)

    emit_switch(builder, rows, range(1, MR + 1), emit)


@operation(types.none, *[types.intp] * 10)
def direct_packing_tile(
    builder: Any,
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
) -> None:
    """As ``direct_tile``, of ``MR`` rows; the vectors are packed to ``copy``, too, for other rows."""
    vectors = (NR_VECTORS, b, b_step, constant(_VECTOR_BYTES))
    given = Operands(MR, *vectors, x, x_row, count, source, b_step, constant(0), copy=copy, into_l2=True)
    _emit_tile(builder, given, target, target_row, is_first)


@_TILE
def packing_tile(
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
    prefetch_shift: Any,
) -> None:
    """As ``tile``, of B in place, which is packed to ``copy``; of half as many rows or more."""

    def emit(case: int) -> None:
        vectors = (b, b_step, constant(_VECTOR_BYTES))
        given = Operands(case, NR_VECTORS, *vectors, x, x_row, count, source, source_step, prefetch_shift, copy=copy)
        _emit_tile(builder, given, target, target_row, is_first)

    # Rows are shared evenly among tiles, so none of several has fewer than half of the most.
    emit_switch(builder, rows, range(MR // 2, MR + 1), emit)


@operation(types.none, *[types.intp] * 10)
def strided_tile(
    builder: Any,
    rows: Any,
    b: Any,
    b_step: Any,
    x: Any,
    x_row: Any,
    x_step: Any,
    count: Any,
    target: Any,
    target_row: Any,
    is_first: Any,
) -> None:
    """As ``tile``, of vectors that follow each other, with a row's elements ``x_step`` bytes apart; prefetches nothing."""

    def emit(case: int) -> None:
        given = Operands(case, NR_VECTORS, b, b_step, constant(_VECTOR_BYTES), x, x_row, count, x_step=x_step)
        _emit_tile(builder, given, target, target_row, is_first)

    emit_switch(builder, rows, range(1, MR + 1), emit)
