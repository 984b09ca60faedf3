"""Sums of products of 8-bit integers made 8-bit integers.

Vector ``v``, lane ``4 * l + j`` of ``n`` vectors of a row is column ``4 * n * l + 4 * v + j``: sums lie in the order in which
the narrowing instructions leave columns side by side. They narrow four vectors at a time, of one row or of several.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from ort_sdk_cpu.instruction_set import InstructionSet, instruction_set

from .bytes import I8X64, emit_load_bytes_first, emit_store_part
from .emission import constant, moved
from .memory import emit_load, emit_store, splat
from .vector_types import F32, I8, I32, LANES, VF32, VI32, call

__all__ = ["AT_ONCE", "Addend", "Target", "emit_addition", "emit_steps", "emit_summed_steps", "emit_write"]

AT_ONCE = 4
"""Vectors that are narrowed to one."""
_PARTS = 4
"""Of a vector, within which instructions narrow."""
_PANEL = AT_ONCE * LANES
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
    lanes = [LANES * vector + 4 * part + j for part in range(_PARTS) for vector in range(AT_ONCE) for j in range(4)]
    return builder.shuffle_vector(low, high, ir.Constant(ir.VectorType(I32, _PANEL), lanes))


def _flipped(builder: Any, narrow: Any, flip: Any) -> Any:
    """Bytes with the bits of the flip's lowest byte turned over."""
    return builder.xor(narrow, builder.bitcast(splat(builder, builder.trunc(flip, I32)), I8X64))


def _scaled(builder: Any, sums: list[Any], scales: list[Any]) -> list[Any]:
    return [builder.fmul(builder.sitofp(value, VF32), scale) for value, scale in zip(sums, scales, strict=True)]


def emit_steps(builder: Any, sums: list[Any], scales: list[Any]) -> list[Any]:
    """LLVM code of a row's sums as steps."""
    return [_rounded(builder, value) for value in _scaled(builder, sums, scales)]


class Target(NamedTuple):
    """Where 8-bit results go: LLVM values, as ``quantized_tile_of`` tells of them."""

    zero_point: Any
    flip: Any
    out: Any
    row: Any
    left: Any


def emit_write(builder: Any, rows: list[list[Any]], target: Target) -> None:
    """LLVM code that writes rows of vectors of steps."""
    vectors, zero = len(rows[0]), builder.trunc(target.zero_point, I32)
    at_once, found = AT_ONCE // vectors, []
    for first in range(0, len(rows), at_once):
        group = rows[first : first + at_once]
        steps = [value for row in group for value in row]
        rest = [ir.Constant(VI32, None)] * (AT_ONCE - len(steps))
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
    lanes = [AT_ONCE * part + first + vector for part in range(_PARTS) for vector in range(vectors)]
    fours = builder.bitcast(narrow, VI32)
    found = builder.shuffle_vector(fours, fours, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))
    return builder.bitcast(found, ir.VectorType(I8, vectors * LANES))


def _widened(builder: Any, narrow: Any, vectors: int) -> list[Any]:
    """Bytes side by side as vectors of integers from 0 to 255."""
    found = []
    for vector in range(vectors):
        places = [4 * (vectors * part + vector) + j for part in range(_PARTS) for j in range(4)]
        order = ir.Constant(ir.VectorType(I32, _PANEL), [lane for place in places for lane in (place, *[_PANEL] * 3)])
        found.append(builder.bitcast(builder.shuffle_vector(narrow, ir.Constant(I8X64, None), order), VI32))
    return found


class Addend(NamedTuple):
    """What is added: LLVM values, as ``quantized_sum_tile_of`` tells of them."""

    address: Any
    flip: Any
    numbers: Any


class _Addition(NamedTuple):
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


def _added(builder: Any, value: Any, addend: Any, numbers: _Addition) -> Any:
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


def emit_addition(builder: Any, addend: Addend) -> _Addition:
    """LLVM code of a load of an addition's numbers."""
    places = [builder.add(addend.numbers, constant(_WORD * index)) for index in range(len(_Addition._fields))]
    return _Addition(*(splat(builder, emit_load(builder, place, F32)) for place in places))


def emit_summed_steps(
    builder: Any, rows: list[list[Any]], scales: list[Any], addend: Addend, numbers: _Addition, target: Target
) -> list[list[Any]]:
    """LLVM code of rows of sums as steps of what they are with another tensor added, whose rows are as far apart as results."""
    vectors, found = len(scales), []
    width = constant(vectors * LANES)
    count = builder.select(builder.icmp_signed("<", target.left, width), target.left, width)
    for row, values in enumerate(rows):
        narrow = emit_load_bytes_first(builder, moved(builder, addend.address, row, target.row), count)
        others = _widened(builder, _flipped(builder, narrow, addend.flip), vectors)
        pairs = zip(_scaled(builder, values, scales), others, strict=True)
        found.append([_added(builder, value, other, numbers) for value, other in pairs])
    return found
