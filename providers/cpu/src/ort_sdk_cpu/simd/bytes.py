"""Vectors of 64 bytes: from and to memory, and looked up in tables."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.platform.cpu_features import has_vbmi

from .ir_builder import constant
from .memory import emit_load, emit_store, emit_store_first, splat
from .vector_types import I8, I32, LANES, VI32, call, i32x16, operation, pointer

__all__ = [
    "BYTES",
    "I8X64",
    "broadcast_u8",
    "emit_load_bytes_first",
    "emit_store_bytes_first",
    "emit_store_part",
    "load_bytes_first",
    "lookup_bytes",
    "store_bytes_first",
    "store_i8_first",
]

BYTES = 64
"""In a vector."""
I8X64 = ir.VectorType(I8, BYTES)
_LANES = ir.VectorType(I32, BYTES)
_HALF_TABLE = 128


def _mask(builder: Any, left: Any) -> Any:
    count = builder.insert_element(ir.Constant(_LANES, ir.Undefined), builder.trunc(left, I32), ir.Constant(I32, 0))
    count = builder.shuffle_vector(count, count, ir.Constant(_LANES, [0] * BYTES))
    return builder.icmp_signed("<", ir.Constant(_LANES, list(range(BYTES))), count)


def emit_load_bytes_first(builder: Any, address: Any, count: Any) -> Any:
    """LLVM code of a load of the first bytes; zeros behind them."""
    source, one = pointer(builder, address, I8X64), ir.Constant(I32, 1)
    return call(builder, "llvm.masked.load.v64i8.p0", I8X64, source, one, _mask(builder, count), ir.Constant(I8X64, None))


def emit_store_bytes_first(builder: Any, address: Any, value: Any, count: Any) -> None:
    """LLVM code of a store of the first bytes."""
    with builder.if_else(builder.icmp_signed(">=", count, constant(BYTES))) as (whole, part):
        with whole:
            emit_store(builder, address, value)
        with part:
            emit_store_part(builder, address, value, count)


def emit_store_part(builder: Any, address: Any, value: Any, count: Any) -> None:
    """LLVM code of a store of the first bytes of 64 or fewer, of which there are more."""
    lanes = ir.Constant(_LANES, [min(lane, value.type.count) for lane in range(BYTES)])
    whole = builder.shuffle_vector(value, ir.Constant(value.type, None), lanes)
    target, one = pointer(builder, address, I8X64), ir.Constant(I32, 1)
    call(builder, "llvm.masked.store.v64i8.p0", ir.VoidType(), whole, target, one, _mask(builder, count))


@operation(i32x16, types.intp, types.intp)
def load_bytes_first(builder: Any, address: Any, count: Any) -> Any:
    """The first ``count`` of 64 bytes (none below 1, all above 64); zeros behind them."""
    return builder.bitcast(emit_load_bytes_first(builder, address, count), VI32)


@operation(types.none, types.intp, i32x16, types.intp)
def store_bytes_first(builder: Any, address: Any, value: Any, count: Any) -> None:
    """Write the first ``count`` of 64 bytes."""
    emit_store_bytes_first(builder, address, builder.bitcast(value, I8X64), count)


@operation(i32x16, types.intp)
def broadcast_u8(builder: Any, address: Any) -> Any:
    """The byte at an address as an integer from 0 to 255 in every lane."""
    return splat(builder, builder.zext(emit_load(builder, address, I8), I32))


@operation(types.none, types.intp, i32x16, types.intp)
def store_i8_first(builder: Any, address: Any, value: Any, count: Any) -> None:
    """Write the low byte of each of the first ``count`` lanes (all above 16)."""
    narrow = builder.trunc(value, ir.VectorType(I8, LANES))
    with builder.if_else(builder.icmp_signed(">=", count, constant(LANES))) as (whole, part):
        with whole:
            emit_store(builder, address, narrow)
        with part:
            emit_store_first(builder, address, narrow, count, "v16i8")


@operation(i32x16, types.intp, i32x16)
def lookup_bytes(builder: Any, table: Any, value: Any) -> Any:
    """Each byte's entry in the table of 256 bytes at an address."""
    index = builder.bitcast(value, I8X64)
    if not has_vbmi():
        return builder.bitcast(_looked_up_singly(builder, table, index), VI32)
    parts = [emit_load(builder, builder.add(table, constant(start)), I8X64) for start in range(0, 256, BYTES)]
    name = "llvm.x86.avx512.vpermi2var.qi.512"
    low, high = (call(builder, name, I8X64, parts[first], index, parts[first + 1]) for first in (0, 2))
    is_low = builder.icmp_unsigned("<", index, ir.Constant(I8X64, [_HALF_TABLE] * BYTES))
    return builder.bitcast(builder.select(is_low, low, high), VI32)


def _looked_up_singly(builder: Any, table: Any, index: Any) -> Any:
    result = ir.Constant(I8X64, ir.Undefined)
    for lane in range(BYTES):
        position = ir.Constant(I32, lane)
        offset = builder.zext(builder.extract_element(index, position), table.type)
        entry = emit_load(builder, builder.add(table, offset), I8)
        result = builder.insert_element(result, entry, position)
    return result
