"""8-bit integers: vectors of 64 bytes from and to memory, table lookups, and dot products of groups of four."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.platform.cpu_features import InstructionSet, has_vbmi, has_vnni, instruction_set

from .ir_builder import constant
from .memory import emit_load, emit_store, emit_store_masked, splat
from .vector_types import I8, I32, LANES, VI32, call, i32x16, operation, pointer

__all__ = [
    "BYTES",
    "I8X64",
    "broadcast_u8",
    "dot_u8_i8",
    "emit_dot_u8_i8",
    "emit_load_bytes_masked",
    "emit_store_bytes_masked",
    "emit_store_prefix",
    "load_bytes_masked",
    "lookup_bytes",
    "store_bytes_masked",
    "store_i8_masked",
]

BYTES = 64
"""Bytes of a vector."""
I8X64 = ir.VectorType(I8, BYTES)
_INDICES = ir.VectorType(I32, BYTES)
_HALF_TABLE = 128
_I16 = ir.IntType(16)
_I16X32 = ir.VectorType(_I16, 2 * LANES)
_I32X8 = ir.VectorType(I32, LANES // 2)


def _mask(builder: Any, count: Any) -> Any:
    """Mask of the first ``count`` of 64 bytes."""
    counts = builder.insert_element(ir.Constant(_INDICES, ir.Undefined), builder.trunc(count, I32), ir.Constant(I32, 0))
    counts = builder.shuffle_vector(counts, counts, ir.Constant(_INDICES, [0] * BYTES))
    return builder.icmp_signed("<", ir.Constant(_INDICES, list(range(BYTES))), counts)


def emit_load_bytes_masked(builder: Any, address: Any, count: Any) -> Any:
    """LLVM code of a load of the first ``count`` of 64 bytes; zeros in the others."""
    source, one = pointer(builder, address, I8X64), ir.Constant(I32, 1)
    return call(builder, "llvm.masked.load.v64i8.p0", I8X64, source, one, _mask(builder, count), ir.Constant(I8X64, None))


def emit_store_bytes_masked(builder: Any, address: Any, value: Any, count: Any) -> None:
    """LLVM code of a store of the first ``count`` of 64 bytes; a plain store where all are written."""
    with builder.if_else(builder.icmp_signed(">=", count, constant(BYTES))) as (whole, part):
        with whole:
            emit_store(builder, address, value)
        with part:
            emit_store_prefix(builder, address, value, count)


def emit_store_prefix(builder: Any, address: Any, value: Any, count: Any) -> None:
    """LLVM code of a masked store of the first ``count`` bytes of a vector of at most 64."""
    lanes = ir.Constant(_INDICES, [min(lane, value.type.count) for lane in range(BYTES)])
    padded = builder.shuffle_vector(value, ir.Constant(value.type, None), lanes)
    target, one = pointer(builder, address, I8X64), ir.Constant(I32, 1)
    call(builder, "llvm.masked.store.v64i8.p0", ir.VoidType(), padded, target, one, _mask(builder, count))


@operation(i32x16, types.intp, types.intp)
def load_bytes_masked(builder: Any, address: Any, count: Any) -> Any:
    """The first ``count`` of 64 bytes (none below 1, all above 64); zeros in the others."""
    return builder.bitcast(emit_load_bytes_masked(builder, address, count), VI32)


@operation(types.none, types.intp, i32x16, types.intp)
def store_bytes_masked(builder: Any, address: Any, value: Any, count: Any) -> None:
    """Write the first ``count`` of 64 bytes."""
    emit_store_bytes_masked(builder, address, builder.bitcast(value, I8X64), count)


@operation(i32x16, types.intp)
def broadcast_u8(builder: Any, address: Any) -> Any:
    """The uint8 at an address in every int32 lane."""
    return splat(builder, builder.zext(emit_load(builder, address, I8), I32))


@operation(types.none, types.intp, i32x16, types.intp)
def store_i8_masked(builder: Any, address: Any, value: Any, count: Any) -> None:
    """Write the low byte of each of the first ``count`` lanes (all above 16)."""
    narrow = builder.trunc(value, ir.VectorType(I8, LANES))
    with builder.if_else(builder.icmp_signed(">=", count, constant(LANES))) as (whole, part):
        with whole:
            emit_store(builder, address, narrow)
        with part:
            emit_store_masked(builder, address, narrow, count, "v16i8")


@operation(i32x16, types.intp, i32x16)
def lookup_bytes(builder: Any, table: Any, value: Any) -> Any:
    """Look each of 64 bytes up in the table of 256 bytes at an address."""
    index = builder.bitcast(value, I8X64)
    if not has_vbmi():
        return builder.bitcast(_lookup_one_by_one(builder, table, index), VI32)
    # vpermi2b looks up in two registers of 64 bytes; the index's top bit selects between the results for the table's halves.
    quarters = [emit_load(builder, builder.add(table, constant(start)), I8X64) for start in range(0, 256, BYTES)]
    name = "llvm.x86.avx512.vpermi2var.qi.512"
    low, high = (call(builder, name, I8X64, quarters[first], index, quarters[first + 1]) for first in (0, 2))
    is_low = builder.icmp_unsigned("<", index, ir.Constant(I8X64, [_HALF_TABLE] * BYTES))
    return builder.bitcast(builder.select(is_low, low, high), VI32)


def _lookup_one_by_one(builder: Any, table: Any, index: Any) -> Any:
    result = ir.Constant(I8X64, ir.Undefined)
    for lane in range(BYTES):
        position = ir.Constant(I32, lane)
        offset = builder.zext(builder.extract_element(index, position), table.type)
        entry = emit_load(builder, builder.add(table, offset), I8)
        result = builder.insert_element(result, entry, position)
    return result


@operation(i32x16, i32x16, i32x16, i32x16)
def dot_u8_i8(builder: Any, total: Any, unsigned: Any, signed: Any) -> Any:
    """Add to each int32 lane the dot product of its four bytes: uint8 of one vector, int8 of the other (VNNI's vpdpbusd)."""
    return emit_dot_u8_i8(builder, total, unsigned, signed)


def emit_dot_u8_i8(builder: Any, total: Any, unsigned: Any, signed: Any) -> Any:
    """LLVM code of ``dot_u8_i8``."""
    if has_vnni():
        return call(builder, "llvm.x86.avx512.vpdpbusd.512", VI32, total, unsigned, signed)
    # Not vpmaddubsw, whose sums of two products saturate at 16 bits.
    add = _pair_sums_avx2 if instruction_set() >= InstructionSet.AVX2 else _pair_sums
    for x, y in zip(_split(builder, unsigned, signed=False), _split(builder, signed, signed=True), strict=True):
        total = builder.add(total, add(builder, x, y))
    return total


def _split(builder: Any, value: Any, *, signed: bool) -> tuple[Any, Any]:
    """Even and odd bytes, widened to 16 bits."""
    words, eight = builder.bitcast(value, _I16X32), ir.Constant(_I16X32, [8] * 2 * LANES)
    shift = builder.ashr if signed else builder.lshr
    return shift(builder.shl(words, eight), eight), shift(words, eight)


def _pair_sums_avx2(builder: Any, x: Any, y: Any) -> Any:
    """Sums of neighbouring products of 16-bit integers, by vpmaddwd on two registers."""
    registers = []
    for start in (0, LANES):
        lanes = ir.Constant(VI32, list(range(start, start + LANES)))
        operands = [builder.shuffle_vector(value, value, lanes) for value in (x, y)]
        registers.append(call(builder, "llvm.x86.avx2.pmadd.wd", _I32X8, *operands))
    return builder.shuffle_vector(*registers, ir.Constant(VI32, list(range(LANES))))


def _pair_sums(builder: Any, x: Any, y: Any) -> Any:
    """The same in generic operations: a product of uint8 and int8 fits 16 bits, the sum of two does not."""
    products = builder.bitcast(builder.mul(x, y), VI32)
    sixteen = ir.Constant(VI32, [16] * LANES)
    low = builder.ashr(builder.shl(products, sixteen), sixteen)
    return builder.add(low, builder.ashr(products, sixteen))
