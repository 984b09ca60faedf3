"""Requantization of int32 sums in registers to 8 bits, with or without another 8-bit tensor added.

Vector ``v``, lane ``4 * l + j`` of ``n`` vectors of a row is column ``4 * n * l + 4 * v + j``: weights are packed in the order in
which the narrowing instructions leave columns in order. They narrow four vectors at a time, of one row or of several.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set
from ort_sdk_cpu.simd.int8 import I8X64, emit_load_bytes_masked, emit_store_prefix
from ort_sdk_cpu.simd.ir_builder import advance, constant
from ort_sdk_cpu.simd.memory import emit_load, emit_store, splat
from ort_sdk_cpu.simd.vector_types import F32, I8, I32, LANES, VF32, VI32, call

__all__ = ["AT_ONCE", "Addend", "Target", "emit_added", "emit_addition", "emit_requantized", "emit_write"]

AT_ONCE = 4
"""Vectors that are narrowed to one."""
_PARTS = 4
"""Of a vector, within which instructions narrow."""
_PANEL = AT_ONCE * LANES
_I16X32 = ir.VectorType(ir.IntType(16), 2 * LANES)
_WORD = 8
# A byte as the lowest bits of the float32 2^23 is 2^23 + byte: a shuffle widens and converts at once.
_MAGIC, _MAGIC_BYTES = float(1 << 23), [0, 0, 0, 0x4B]
"""A float32 whose mantissa counts integers, and its bytes."""


def _rounded(builder: Any, value: Any) -> Any:
    """Float32 within int32's range as the nearest integers, of two the even ones."""
    # The conversion rounds by itself to nearest, ties to even, as ONNX asks for: no separate rounding.
    if instruction_set() >= InstructionSet.AVX512:
        current = ir.Constant(I32, 4)
        every = ir.Constant(ir.IntType(16), 0xFFFF)
        return call(builder, "llvm.x86.avx512.mask.cvtps2dq.512", VI32, value, ir.Constant(VI32, None), every, current)
    return builder.fptosi(call(builder, "llvm.rint.v16f32", VF32, value), VI32)


def _narrowed(builder: Any, rounded: list[Any], zero_point: Any) -> Any:
    """Four vectors of int32, and a zero point added, as uint8 with saturation: quarters of each follow each other."""
    # Saturation is the instructions' own, as in MLAS and oneDNN: to 16 bits, with the zero point, and from there to 8.
    if instruction_set() >= InstructionSet.AVX512:
        zeros = splat(builder, zero_point)
        pairs = builder.or_(zeros, builder.shl(zeros, ir.Constant(VI32, [16] * LANES)))
        shift = builder.bitcast(pairs, _I16X32)
        words = []
        for index in (0, 2):
            packed = call(builder, "llvm.x86.avx512.packssdw.512", _I16X32, rounded[index], rounded[index + 1])
            words.append(call(builder, "llvm.sadd.sat.v32i16", _I16X32, packed, shift))
        return call(builder, "llvm.x86.avx512.packuswb.512", I8X64, *words)
    low, high = ir.Constant(VI32, None), ir.Constant(VI32, [255] * LANES)
    narrow = []
    for value in rounded:
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


def _with_sign(builder: Any, narrow: Any, sign: Any) -> Any:
    """Bytes, exclusive or the sign's lowest byte."""
    return builder.xor(narrow, builder.bitcast(splat(builder, builder.trunc(sign, I32)), I8X64))


def _scaled(builder: Any, sums: list[Any], scales: list[Any]) -> list[Any]:
    return [builder.fmul(builder.sitofp(value, VF32), scale) for value, scale in zip(sums, scales, strict=True)]


def emit_requantized(builder: Any, sums: list[Any], scales: list[Any]) -> list[Any]:
    """LLVM code of a row's sums, scaled and rounded to int32."""
    return [_rounded(builder, value) for value in _scaled(builder, sums, scales)]


class Target(NamedTuple):
    """Where 8-bit results go: LLVM values, described by ``requantize_tile_of``."""

    zero_point: Any
    sign: Any
    out: Any
    row: Any
    left: Any


def emit_write(builder: Any, rows: list[list[Any]], target: Target) -> None:
    """LLVM code that narrows rows of vectors of int32 and writes them."""
    vectors, zero = len(rows[0]), builder.trunc(target.zero_point, I32)
    at_once, found = AT_ONCE // vectors, []
    for first in range(0, len(rows), at_once):
        group = rows[first : first + at_once]
        rounded = [value for row in group for value in row]
        missing = [ir.Constant(VI32, None)] * (AT_ONCE - len(rounded))
        narrow = _with_sign(builder, _narrowed(builder, [*rounded, *missing], zero), target.sign)
        found += [_in_column_order(builder, narrow, index * vectors, vectors) for index in range(len(group))]
    addresses = [advance(builder, target.out, row, target.row) for row in range(len(found))]
    # All panels but the last are whole: their stores need no mask.
    with builder.if_else(builder.icmp_signed(">=", target.left, constant(vectors * LANES))) as (whole, part):
        with whole:
            for address, value in zip(addresses, found, strict=True):
                emit_store(builder, address, value)
        with part:
            for address, value in zip(addresses, found, strict=True):
                emit_store_prefix(builder, address, value, target.left)


def _in_column_order(builder: Any, narrow: Any, first: int, vectors: int) -> Any:
    """Bytes of some of four vectors, which follow each other, in the order of columns."""
    lanes = [AT_ONCE * part + first + vector for part in range(_PARTS) for vector in range(vectors)]
    fours = builder.bitcast(narrow, VI32)
    found = builder.shuffle_vector(fours, fours, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))
    return builder.bitcast(found, ir.VectorType(I8, vectors * LANES))


def _widened(builder: Any, narrow: Any, vectors: int) -> list[Any]:
    """Bytes in the order of columns as vectors of float32, and ``_MAGIC`` added: they become the lowest bits of its mantissa."""
    found, magic = [], ir.Constant(I8X64, _MAGIC_BYTES * LANES)
    for vector in range(vectors):
        sources = [4 * (vectors * part + vector) + j for part in range(_PARTS) for j in range(4)]
        lanes = [
            lane for index, source in enumerate(sources) for lane in (source, *(_PANEL + 4 * index + j for j in range(1, 4)))
        ]
        order = ir.Constant(ir.VectorType(I32, _PANEL), lanes)
        found.append(builder.bitcast(builder.shuffle_vector(narrow, magic, order), VF32))
    return found


class Addend(NamedTuple):
    """What is added: LLVM values, described by ``requantize_add_tile_of``."""

    address: Any
    sign: Any
    addition: Any


class _Addition(NamedTuple):
    """Scalars of an addition behind a convolution, in every lane, in the order that they have in memory."""

    low: Any
    """Least and greatest of the convolution's results, less its zero point."""
    high: Any
    scale: Any
    """Of the convolution's result."""
    addend_zero: Any
    """With ``_MAGIC`` added, as the addend has it."""
    addend_scale: Any
    sum_scale: Any
    inverse: Any
    """Of the sum's scale."""


def _added(builder: Any, values: list[Any], addends: list[Any], scalars: _Addition) -> list[Any]:
    """The sum in int32: the convolution's result is rounded as if it were written.

    Each operation is made of all vectors before the next: processors look ahead too little to find others by themselves.
    """
    values = [call(builder, "llvm.rint.v16f32", VF32, value) for value in values]
    values = [builder.select(builder.fcmp_ordered(">", value, scalars.low), value, scalars.low) for value in values]
    values = [builder.select(builder.fcmp_ordered("<", value, scalars.high), value, scalars.high) for value in values]
    others = [builder.fsub(addend, scalars.addend_zero) for addend in addends]
    values = [builder.fmul(value, scalars.scale) for value in values]
    others = [builder.fmul(other, scalars.addend_scale) for other in others]
    totals = [builder.fadd(value, other) for value, other in zip(values, others, strict=True)]
    return [_rounded(builder, value) for value in _quotients(builder, totals, scalars.sum_scale, scalars.inverse)]


def _quotients(builder: Any, values: list[Any], divisor: Any, inverse: Any) -> list[Any]:
    """The quotients as division rounds them, by the divisor's inverse and what that leaves."""
    # Newton's correction: the remainder of the first quotient by FMA is exact, and so is the corrected quotient rounded as by a
    # division (Markstein 1990), which takes several times as long.
    firsts = [builder.fmul(value, inverse) for value in values]
    pairs = list(zip(firsts, values, strict=True))
    remainders = [call(builder, "llvm.fma.v16f32", VF32, builder.fneg(first), divisor, value) for first, value in pairs]
    return [
        call(builder, "llvm.fma.v16f32", VF32, remainder, inverse, first)
        for remainder, first in zip(remainders, firsts, strict=True)
    ]


def emit_addition(builder: Any, addend: Addend) -> _Addition:
    """LLVM code of a load of an addition's scalars."""
    addresses = [builder.add(addend.addition, constant(_WORD * index)) for index in range(len(_Addition._fields))]
    found = _Addition(*(splat(builder, emit_load(builder, address, F32)) for address in addresses))
    return found._replace(addend_zero=builder.fadd(found.addend_zero, ir.Constant(VF32, [_MAGIC] * LANES)))


def emit_added(
    builder: Any, rows: list[list[Any]], scales: list[Any], addend: Addend, scalars: _Addition, target: Target
) -> list[list[Any]]:
    """LLVM code of rows of sums, requantized with another tensor added, whose rows are as far apart as results."""
    vectors, found = len(scales), []
    for row, values in enumerate(rows):
        narrow = _emit_narrow(builder, advance(builder, addend.address, row, target.row), target.left, vectors)
        others = _widened(builder, _with_sign(builder, narrow, addend.sign), vectors)
        found.append(_added(builder, _scaled(builder, values, scales), others, scalars))
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
            masked = emit_load_bytes_masked(builder, address, left)
            after_part = builder.block
    found = builder.phi(I8X64)
    found.add_incoming(loaded, after_whole)
    found.add_incoming(masked, after_part)
    return found
