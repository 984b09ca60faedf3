"""Sums of products of 8-bit integers made 8-bit integers.

Vector ``v``, lane ``4 * l + j`` of ``n`` vectors of a row is column ``4 * n * l + 4 * v + j``: sums lie in the order in which
the narrowing instructions leave columns side by side. They narrow four vectors at a time, of one row or of several.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set
from ort_sdk_cpu.simd.bytes import I8X64, emit_load_bytes_first, emit_store_part
from ort_sdk_cpu.simd.ir_builder import constant, moved
from ort_sdk_cpu.simd.memory import emit_load, emit_store, splat
from ort_sdk_cpu.simd.vector_types import F32, I8, I32, LANES, VF32, VI32, call

__all__ = ["AT_ONCE", "Addend", "Target", "emit_addition", "emit_steps", "emit_summed_steps", "emit_write"]

AT_ONCE = 4
"""Vectors that are narrowed to one."""
_PARTS = 4
"""Of a vector, within which instructions narrow."""
_PANEL = AT_ONCE * LANES
_I16X32 = ir.VectorType(ir.IntType(16), 2 * LANES)
_WORD = 8
_ABOVE, _ABOVE_BYTES = float(1 << 23), [0, 0, 0, 0x4B]
"""A float32 whose mantissa counts whole numbers, and its bytes."""


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
    """Bytes side by side as vectors of float32, and ``_ABOVE`` added: they become the lowest bits of its mantissa."""
    found, above = [], ir.Constant(I8X64, _ABOVE_BYTES * LANES)
    for vector in range(vectors):
        places = [4 * (vectors * part + vector) + j for part in range(_PARTS) for j in range(4)]
        lanes = [lane for index, place in enumerate(places) for lane in (place, *(_PANEL + 4 * index + j for j in range(1, 4)))]
        order = ir.Constant(ir.VectorType(I32, _PANEL), lanes)
        found.append(builder.bitcast(builder.shuffle_vector(narrow, above, order), VF32))
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
    """With ``_ABOVE`` added, as the addend has it."""
    addend_scale: Any
    sum_scale: Any
    inverse: Any
    """Of the sum's scale."""


def _added(builder: Any, values: list[Any], addends: list[Any], numbers: _Addition) -> list[Any]:
    """Steps of the sum: the convolution's result is rounded as if it were written.

    Each step is made of all vectors before the next: processors look ahead too little to find others by themselves.
    """
    values = [call(builder, "llvm.rint.v16f32", VF32, value) for value in values]
    values = [builder.select(builder.fcmp_ordered(">", value, numbers.low), value, numbers.low) for value in values]
    values = [builder.select(builder.fcmp_ordered("<", value, numbers.high), value, numbers.high) for value in values]
    others = [builder.fsub(addend, numbers.addend_zero) for addend in addends]
    values = [builder.fmul(value, numbers.scale) for value in values]
    others = [builder.fmul(other, numbers.addend_scale) for other in others]
    totals = [builder.fadd(value, other) for value, other in zip(values, others, strict=True)]
    return [_rounded(builder, value) for value in _quotients(builder, totals, numbers.sum_scale, numbers.inverse)]


def _quotients(builder: Any, values: list[Any], divisor: Any, inverse: Any) -> list[Any]:
    """The quotients as division rounds them, by the divisor's inverse and what that leaves."""
    firsts = [builder.fmul(value, inverse) for value in values]
    pairs = list(zip(firsts, values, strict=True))
    rests = [call(builder, "llvm.fma.v16f32", VF32, builder.fneg(first), divisor, value) for first, value in pairs]
    return [call(builder, "llvm.fma.v16f32", VF32, rest, inverse, first) for rest, first in zip(rests, firsts, strict=True)]


def emit_addition(builder: Any, addend: Addend) -> _Addition:
    """LLVM code of a load of an addition's numbers."""
    places = [builder.add(addend.numbers, constant(_WORD * index)) for index in range(len(_Addition._fields))]
    found = _Addition(*(splat(builder, emit_load(builder, place, F32)) for place in places))
    return found._replace(addend_zero=builder.fadd(found.addend_zero, ir.Constant(VF32, [_ABOVE] * LANES)))


def emit_summed_steps(
    builder: Any, rows: list[list[Any]], scales: list[Any], addend: Addend, numbers: _Addition, target: Target
) -> list[list[Any]]:
    """LLVM code of rows of sums as steps of what they are with another tensor added, whose rows are as far apart as results."""
    vectors, found = len(scales), []
    for row, values in enumerate(rows):
        narrow = _emit_narrow(builder, moved(builder, addend.address, row, target.row), target.left, vectors)
        others = _widened(builder, _flipped(builder, narrow, addend.flip), vectors)
        found.append(_added(builder, _scaled(builder, values, scales), others, numbers))
    return found


def _emit_narrow(builder: Any, address: Any, left: Any, vectors: int) -> Any:
    """LLVM code of a load of the bytes of a row of some vectors, of which ``left`` are there; zeros behind them."""
    width = vectors * LANES
    lanes = ir.Constant(ir.VectorType(I32, _PANEL), [min(lane, width) for lane in range(_PANEL)])
    with builder.if_else(builder.icmp_signed(">=", left, constant(width))) as (whole, part):
        with whole:
            bytes_ = emit_load(builder, address, ir.VectorType(I8, width))
            loaded = builder.shuffle_vector(bytes_, ir.Constant(bytes_.type, None), lanes)
            after_whole = builder.block
        with part:
            masked = emit_load_bytes_first(builder, address, left)
            after_part = builder.block
    found = builder.phi(I8X64)
    found.add_incoming(loaded, after_whole)
    found.add_incoming(masked, after_part)
    return found
