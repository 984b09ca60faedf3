"""Loads and stores of vectors and scalars. Addresses need not be aligned; masked ones access no byte of the other lanes.

A masked load or store takes a ``count`` and accesses the first ``count`` lanes: none below 1, all above 16.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from .ir_builder import emit_prefetch, opaque
from .vector_types import F32, I8, I32, LANES, VF32, VI32, call, f32x16, i32x16, operation, pointer

__all__ = [
    "LAST_BYTE",
    "broadcast_f32",
    "emit_lane_mask",
    "emit_load",
    "emit_load_masked",
    "emit_store",
    "emit_store_masked",
    "load_f32",
    "load_f32_masked",
    "load_f32_masked_or",
    "load_f32_strided",
    "load_i32",
    "load_i32_masked",
    "load_u2_masked",
    "load_u4_masked",
    "load_u8",
    "load_u8_masked",
    "prefetch",
    "prefetch_l2",
    "read_f32",
    "read_f64",
    "read_i32",
    "read_i64",
    "read_u8",
    "splat",
    "store_f32",
    "store_f32_masked",
    "store_i8",
    "store_i32",
    "write_f32",
    "write_f64",
    "write_i8",
    "write_i32",
    "write_i64",
]

_I8X16 = ir.VectorType(I8, LANES)
LAST_BYTE = 63
"""Offset to prefetch a vector at: where it spans two cache lines, the first line was prefetched with the vector before."""


def emit_load(builder: Any, address: Any, llvm: Any) -> Any:
    """LLVM code of a load."""
    value = builder.load(pointer(builder, address, llvm))
    value.align = 1
    return value


def emit_store(builder: Any, address: Any, value: Any) -> None:
    """LLVM code of a store."""
    builder.store(value, pointer(builder, address, value.type)).align = 1


def splat(builder: Any, scalar: Any) -> Any:
    """LLVM vector with a scalar in every lane."""
    vector = ir.VectorType(scalar.type, LANES)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, first, ir.Constant(VI32, [0] * LANES))


def emit_lane_mask(builder: Any, count: Any) -> Any:
    """LLVM code of a mask of the first ``count`` of 16 lanes."""
    lanes = ir.Constant(VI32, list(range(LANES)))
    return builder.icmp_signed("<", lanes, splat(builder, builder.trunc(count, I32)))


def emit_load_masked(builder: Any, address: Any, count: Any, llvm: Any, suffix: str) -> Any:
    """LLVM code of a masked load, with zeros in the other lanes.

    Args:
        builder: of LLVM code.
        address: of the first lane.
        count: lanes to load.
        llvm: type of the vector.
        suffix: name of this type in LLVM's intrinsic functions.
    """
    zeros = ir.Constant(llvm, None)
    source = pointer(builder, address, llvm)
    name = f"llvm.masked.load.{suffix}.p0"
    return call(builder, name, llvm, source, ir.Constant(I32, 1), emit_lane_mask(builder, count), zeros)


def emit_store_masked(builder: Any, address: Any, value: Any, count: Any, suffix: str) -> None:
    """LLVM code of a masked store; arguments as for ``emit_load_masked``.

    LLVM 22.1 miscompiles a masked store of lanes truncated from 32 bits for AVX-512 where a constant mask has one lane: it stores
    all four bytes. So the count is made opaque to it.
    """
    if isinstance(value.type.element, ir.IntType) and value.type.element.width < I32.width:
        count = opaque(builder, count)
    target = pointer(builder, address, value.type)
    name = f"llvm.masked.store.{suffix}.p0"
    call(builder, name, ir.VoidType(), value, target, ir.Constant(I32, 1), emit_lane_mask(builder, count))


@operation(i32x16, types.intp)
def load_i32(builder: Any, address: Any) -> Any:
    """16 int32."""
    return emit_load(builder, address, VI32)


@operation(f32x16, types.intp)
def load_f32(builder: Any, address: Any) -> Any:
    """16 float32."""
    return emit_load(builder, address, VF32)


@operation(i32x16, types.intp)
def load_u8(builder: Any, address: Any) -> Any:
    """16 uint8 as int32."""
    return builder.zext(emit_load(builder, address, _I8X16), VI32)


@operation(i32x16, types.intp, types.intp)
def load_i32_masked(builder: Any, address: Any, count: Any) -> Any:
    """The first ``count`` of 16 int32; zeros in the other lanes."""
    return emit_load_masked(builder, address, count, VI32, "v16i32")


@operation(f32x16, types.intp, types.intp)
def load_f32_masked(builder: Any, address: Any, count: Any) -> Any:
    """The first ``count`` of 16 float32; zeros in the other lanes."""
    return emit_load_masked(builder, address, count, VF32, "v16f32")


@operation(f32x16, types.intp, types.intp, f32x16)
def load_f32_masked_or(builder: Any, address: Any, count: Any, other: Any) -> Any:
    """The first ``count`` of 16 float32; another vector's lanes in the others."""
    source = pointer(builder, address, VF32)
    name, one = "llvm.masked.load.v16f32.p0", ir.Constant(I32, 1)
    return call(builder, name, VF32, source, one, emit_lane_mask(builder, count), other)


@operation(f32x16, types.intp, types.intp, types.intp)
def load_f32_strided(builder: Any, address: Any, stride: Any, count: Any) -> Any:
    """The first ``count`` of 16 float32 that are ``stride`` bytes apart; the last of them in the other lanes."""
    vector, one = ir.Constant(VF32, ir.Undefined), ir.Constant(count.type, 1)
    last = builder.sub(count, one)
    for lane in range(LANES):
        index = ir.Constant(count.type, lane)
        bounded = builder.select(builder.icmp_signed("<", index, last), index, last)
        value = builder.load(pointer(builder, builder.add(address, builder.mul(bounded, stride)), F32))
        vector = builder.insert_element(vector, value, ir.Constant(I32, lane))
    return vector


@operation(i32x16, types.intp, types.intp)
def load_u8_masked(builder: Any, address: Any, count: Any) -> Any:
    """The first ``count`` of 16 uint8 as int32; zeros in the other lanes."""
    return builder.zext(emit_load_masked(builder, address, count, _I8X16, "v16i8"), VI32)


def _load_codes_first(builder: Any, address: Any, count: Any, bits: int) -> Any:
    """The first ``count`` of 16 packed codes, lowest bits first; other codes of the last byte are loaded, too."""
    per_byte = 8 // bits
    llvm = ir.VectorType(I8, LANES // per_byte)
    lanes = ir.Constant(ir.VectorType(I32, LANES // per_byte), list(range(0, LANES, per_byte)))
    limit = builder.insert_element(ir.Constant(lanes.type, ir.Undefined), builder.trunc(count, I32), ir.Constant(I32, 0))
    limit = builder.shuffle_vector(limit, limit, ir.Constant(lanes.type, [0] * (LANES // per_byte)))
    mask = builder.icmp_signed("<", lanes, limit)
    source, one = pointer(builder, address, llvm), ir.Constant(I32, 1)
    found = call(builder, f"llvm.masked.load.v{LANES // per_byte}i8.p0", llvm, source, one, mask, ir.Constant(llvm, None))
    spread = builder.shuffle_vector(found, found, ir.Constant(VI32, [lane // per_byte for lane in range(LANES)]))
    shifts = ir.Constant(VI32, [lane % per_byte * bits for lane in range(LANES)])
    return builder.and_(builder.lshr(builder.zext(spread, VI32), shifts), ir.Constant(VI32, [(1 << bits) - 1] * LANES))


@operation(i32x16, types.intp, types.intp)
def load_u4_masked(builder: Any, address: Any, count: Any) -> Any:
    """The first ``count`` of 16 uint4, two to a byte, the low one first, as int32; other lanes are undefined."""
    return _load_codes_first(builder, address, count, 4)


@operation(i32x16, types.intp, types.intp)
def load_u2_masked(builder: Any, address: Any, count: Any) -> Any:
    """The first ``count`` of 16 uint2, four to a byte, the lowest first, as int32; other lanes are undefined."""
    return _load_codes_first(builder, address, count, 2)


@operation(types.float32, types.intp)
def read_f32(builder: Any, address: Any) -> Any:
    """One float32."""
    return emit_load(builder, address, F32)


@operation(types.none, types.intp, types.float32)
def write_f32(builder: Any, address: Any, value: Any) -> None:
    """Write one float32."""
    emit_store(builder, address, value)


@operation(types.intp, types.intp)
def read_i32(builder: Any, address: Any) -> Any:
    """One int32."""
    return builder.sext(emit_load(builder, address, I32), ir.IntType(64))


@operation(types.none, types.intp, types.intp)
def write_i32(builder: Any, address: Any, value: Any) -> None:
    """Write the low 4 bytes of an integer."""
    emit_store(builder, address, builder.trunc(value, I32))


@operation(types.intp, types.intp)
def read_u8(builder: Any, address: Any) -> Any:
    """One uint8."""
    return builder.zext(emit_load(builder, address, I8), ir.IntType(64))


@operation(types.none, types.intp, types.intp)
def write_i8(builder: Any, address: Any, value: Any) -> None:
    """Write the low byte of an integer."""
    emit_store(builder, address, builder.trunc(value, I8))


@operation(types.intp, types.intp)
def read_i64(builder: Any, address: Any) -> Any:
    """One int64."""
    return emit_load(builder, address, ir.IntType(64))


@operation(types.float64, types.intp)
def read_f64(builder: Any, address: Any) -> Any:
    """One float64."""
    return emit_load(builder, address, ir.DoubleType())


@operation(types.none, types.intp, types.float64)
def write_f64(builder: Any, address: Any, value: Any) -> None:
    """Write one float64."""
    emit_store(builder, address, value)


@operation(types.none, types.intp, types.intp)
def write_i64(builder: Any, address: Any, value: Any) -> None:
    """Write one int64."""
    emit_store(builder, address, value)


@operation(f32x16, types.intp)
def broadcast_f32(builder: Any, address: Any) -> Any:
    """The float32 at an address in every lane."""
    return splat(builder, emit_load(builder, address, F32))


@operation(types.none, types.intp, f32x16)
def store_f32(builder: Any, address: Any, value: Any) -> None:
    """Write 16 float32."""
    emit_store(builder, address, value)


@operation(types.none, types.intp, i32x16)
def store_i32(builder: Any, address: Any, value: Any) -> None:
    """Write 16 int32."""
    emit_store(builder, address, value)


@operation(types.none, types.intp, i32x16)
def store_i8(builder: Any, address: Any, value: Any) -> None:
    """Write the low byte of each of 16 lanes."""
    emit_store(builder, address, builder.trunc(value, _I8X16))


@operation(types.none, types.intp, f32x16, types.intp)
def store_f32_masked(builder: Any, address: Any, value: Any, count: Any) -> None:
    """Write the first ``count`` float32."""
    emit_store_masked(builder, address, value, count, "v16f32")


@operation(types.none, types.intp)
def prefetch(builder: Any, address: Any) -> None:
    """Prefetch the cache line of an address, which need not be mapped, into L1."""
    emit_prefetch(builder, address)


@operation(types.none, types.intp)
def prefetch_l2(builder: Any, address: Any) -> None:
    """Prefetch a cache line that is read much later into L2: L1 would evict it before."""
    emit_prefetch(builder, address, into_l2=True)
