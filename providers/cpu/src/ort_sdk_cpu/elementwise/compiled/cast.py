"""Floats of two bytes from and to float32, and whole numbers in float32 as int32, (x, out, count)."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.arithmetic import to_i32
from ort_sdk_cpu.simd.fp16 import load_f16, load_f16_first
from ort_sdk_cpu.simd.memory import emit_store, emit_store_first, load_f32, load_f32_first, store_f32, store_f32_first, store_i32
from ort_sdk_cpu.simd.vector_types import LANES, f32x16, i32x16, operation

__all__ = ["from_halves", "to_halves", "to_integers"]

_HALVES, _WORDS = ir.VectorType(ir.HalfType(), LANES), ir.VectorType(ir.IntType(16), LANES)


@operation(types.none, types.intp, f32x16)
def _store(builder: Any, address: Any, value: Any) -> None:
    emit_store(builder, address, builder.fptrunc(value, _HALVES))


@operation(types.none, types.intp, i32x16, types.intp)
def _store_i32_first(builder: Any, address: Any, value: Any, count: Any) -> None:
    emit_store_first(builder, address, value, count, "v16i32")


@operation(types.none, types.intp, f32x16, types.intp)
def _store_first(builder: Any, address: Any, value: Any, count: Any) -> None:
    words = builder.bitcast(builder.fptrunc(value, _HALVES), _WORDS)
    emit_store_first(builder, address, words, count, "v16i16")


@inner
def _bounds(count: int, part: int, parts: int) -> tuple[int, int]:
    """Elements of a part: whole vectors, but for the last."""
    vectors = (count + 15) // 16
    return vectors * part // parts * 16, min(vectors * (part + 1) // parts * 16, count)


@task
def from_halves(record: int, part: int, parts: int) -> None:
    """Float32 of float16."""
    x, out = argument(record, 0), argument(record, 1)
    start, stop = _bounds(argument(record, 2), part, parts)
    whole = start + (stop - start) // 16 * 16
    for element in range(start, whole, 16):
        store_f32(out + element * 4, load_f16(x + element * 2))
    if whole < stop:
        store_f32_first(out + whole * 4, load_f16_first(x + whole * 2, stop - whole), stop - whole)


@task
def to_halves(record: int, part: int, parts: int) -> None:
    """Float16 of float32, rounded to the nearest, and to the even one of two."""
    x, out = argument(record, 0), argument(record, 1)
    start, stop = _bounds(argument(record, 2), part, parts)
    whole = start + (stop - start) // 16 * 16
    for element in range(start, whole, 16):
        _store(out + element * 2, load_f32(x + element * 4))
    if whole < stop:
        _store_first(out + whole * 2, load_f32_first(x + whole * 4, stop - whole), stop - whole)


@task
def to_integers(record: int, part: int, parts: int) -> None:
    """Int32 of float32."""
    x, out = argument(record, 0), argument(record, 1)
    start, stop = _bounds(argument(record, 2), part, parts)
    whole = start + (stop - start) // 16 * 16
    for element in range(start, whole, 16):
        store_i32(out + element * 4, to_i32(load_f32(x + element * 4)))
    if whole < stop:
        _store_i32_first(out + whole * 4, to_i32(load_f32_first(x + whole * 4, stop - whole)), stop - whole)
