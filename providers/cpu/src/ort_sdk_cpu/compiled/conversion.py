"""Floats of two bytes from and to float32, (x, out, count)."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit import inner
from ort_sdk_cpu.machine_code import task
from ort_sdk_cpu.simd.memory import (
    emit_load,
    emit_load_first,
    emit_store,
    emit_store_first,
    load_f32,
    load_f32_first,
    store_f32,
    store_f32_first,
)
from ort_sdk_cpu.simd.records import argument
from ort_sdk_cpu.simd.vector_types import LANES, VF32, f32x16, operation

__all__ = ["from_halves", "to_halves"]

_HALVES, _WORDS = ir.VectorType(ir.HalfType(), LANES), ir.VectorType(ir.IntType(16), LANES)


@operation(f32x16, types.intp)
def _load(builder: Any, address: Any) -> Any:
    return builder.fpext(emit_load(builder, address, _HALVES), VF32)


@operation(f32x16, types.intp, types.intp)
def _load_first(builder: Any, address: Any, count: Any) -> Any:
    words = emit_load_first(builder, address, count, _WORDS, "v16i16")
    return builder.fpext(builder.bitcast(words, _HALVES), VF32)


@operation(types.none, types.intp, f32x16)
def _store(builder: Any, address: Any, value: Any) -> None:
    emit_store(builder, address, builder.fptrunc(value, _HALVES))


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
        store_f32(out + element * 4, _load(x + element * 2))
    if whole < stop:
        store_f32_first(out + whole * 4, _load_first(x + whole * 2, stop - whole), stop - whole)


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
