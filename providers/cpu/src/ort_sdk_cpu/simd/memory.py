"""Vectors from and to memory. Addresses need not be aligned; a load or store of ``count`` lanes touches no byte of the others."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from .vector_types import F32, I8, I32, LANES, VF32, VI32, call, f32x16, i32x16, operation, pointer

__all__ = [
    "broadcast_f32",
    "broadcast_i32",
    "load_f32",
    "load_f32_first",
    "load_i32",
    "load_i32_first",
    "load_u8",
    "load_u8_first",
    "prefetch",
    "store_f32",
    "store_f32_first",
    "store_i8",
    "store_i32",
    "store_i32_first",
]

_I8X16 = ir.VectorType(I8, LANES)
_FOR_READING, _INTO_ALL_CACHES, _DATA = (ir.Constant(I32, value) for value in (0, 3, 1))


def _load(builder: Any, address: Any, llvm: Any) -> Any:
    value = builder.load(pointer(builder, address, llvm))
    value.align = 1
    return value


def _store(builder: Any, address: Any, value: Any) -> None:
    builder.store(value, pointer(builder, address, value.type)).align = 1


def splat(builder: Any, scalar: Any) -> Any:
    """LLVM vector with a scalar in every lane."""
    vector = ir.VectorType(scalar.type, LANES)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, first, ir.Constant(VI32, [0] * LANES))


def _mask(builder: Any, count: Any) -> Any:
    lanes = ir.Constant(VI32, list(range(LANES)))
    return builder.icmp_signed("<", lanes, splat(builder, builder.trunc(count, I32)))


def _load_first(builder: Any, address: Any, count: Any, llvm: Any, suffix: str) -> Any:
    rest = ir.Constant(llvm, None)
    source = pointer(builder, address, llvm)
    name = f"llvm.masked.load.{suffix}.p0"
    return call(builder, name, llvm, source, ir.Constant(I32, 1), _mask(builder, count), rest)


def _store_first(builder: Any, address: Any, value: Any, count: Any, suffix: str) -> None:
    target = pointer(builder, address, value.type)
    name = f"llvm.masked.store.{suffix}.p0"
    call(builder, name, ir.VoidType(), value, target, ir.Constant(I32, 1), _mask(builder, count))


@operation(i32x16, types.intp)
def load_i32(builder: Any, address: Any) -> Any:
    """64 bytes."""
    return _load(builder, address, VI32)


@operation(f32x16, types.intp)
def load_f32(builder: Any, address: Any) -> Any:
    """16 float32."""
    return _load(builder, address, VF32)


@operation(i32x16, types.intp)
def load_u8(builder: Any, address: Any) -> Any:
    """16 bytes as integers from 0 to 255."""
    return builder.zext(_load(builder, address, _I8X16), VI32)


@operation(i32x16, types.intp, types.intp)
def load_i32_first(builder: Any, address: Any, count: Any) -> Any:
    """The first ``count`` of 16 int32 (none below 1, all above 16); zeros in the other lanes."""
    return _load_first(builder, address, count, VI32, "v16i32")


@operation(f32x16, types.intp, types.intp)
def load_f32_first(builder: Any, address: Any, count: Any) -> Any:
    """The first ``count`` of 16 float32; zeros in the other lanes."""
    return _load_first(builder, address, count, VF32, "v16f32")


@operation(i32x16, types.intp, types.intp)
def load_u8_first(builder: Any, address: Any, count: Any) -> Any:
    """The first ``count`` of 16 bytes as integers; zeros in the other lanes."""
    return builder.zext(_load_first(builder, address, count, _I8X16, "v16i8"), VI32)


@operation(i32x16, types.intp)
def broadcast_i32(builder: Any, address: Any) -> Any:
    """The 4 bytes at an address in every lane."""
    return splat(builder, _load(builder, address, I32))


@operation(f32x16, types.intp)
def broadcast_f32(builder: Any, address: Any) -> Any:
    """The float32 at an address in every lane."""
    return splat(builder, _load(builder, address, F32))


@operation(types.none, types.intp, f32x16)
def store_f32(builder: Any, address: Any, value: Any) -> None:
    """Write 16 float32."""
    _store(builder, address, value)


@operation(types.none, types.intp, i32x16)
def store_i32(builder: Any, address: Any, value: Any) -> None:
    """Write 64 bytes."""
    _store(builder, address, value)


@operation(types.none, types.intp, i32x16)
def store_i8(builder: Any, address: Any, value: Any) -> None:
    """Write the low byte of each lane: 16 bytes."""
    _store(builder, address, builder.trunc(value, _I8X16))


@operation(types.none, types.intp, f32x16, types.intp)
def store_f32_first(builder: Any, address: Any, value: Any, count: Any) -> None:
    """Write the first ``count`` float32."""
    _store_first(builder, address, value, count, "v16f32")


@operation(types.none, types.intp, i32x16, types.intp)
def store_i32_first(builder: Any, address: Any, value: Any, count: Any) -> None:
    """Write the first ``count`` int32."""
    _store_first(builder, address, value, count, "v16i32")


@operation(types.none, types.intp)
def prefetch(builder: Any, address: Any) -> None:
    """Ask for the cache line of an address, which need not be mapped."""
    place = pointer(builder, address, I8)
    call(builder, "llvm.prefetch.p0", ir.VoidType(), place, _FOR_READING, _INTO_ALL_CACHES, _DATA)
