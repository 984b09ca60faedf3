"""Casts between float16, float32 and int32."""

from __future__ import annotations

from typing import Any

from numba import types

from ort_sdk_cpu.elementwise.arguments.cast import Cast
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.simd.arithmetic import to_i32
from ort_sdk_cpu.simd.float16_conversions import emit_narrow
from ort_sdk_cpu.simd.fp16 import load_f16, load_f16_masked
from ort_sdk_cpu.simd.memory import (
    emit_store,
    emit_store_masked,
    load_f32,
    load_f32_masked,
    store_f32,
    store_f32_masked,
    store_i32,
)
from ort_sdk_cpu.simd.vector_types import f32x16, i32x16, operation

__all__ = ["f16_to_f32", "f32_to_f16", "f32_to_i32"]


@operation(types.none, types.intp, f32x16)
def _store_f16(builder: Any, address: Any, value: Any) -> None:
    emit_store(builder, address, emit_narrow(builder, value))


@operation(types.none, types.intp, f32x16, types.intp)
def _store_f16_first(builder: Any, address: Any, value: Any, count: Any) -> None:
    # Stored as integers of 16 bits, for which AVX-512 BW has masks.
    emit_store_masked(builder, address, emit_narrow(builder, value), count, "v16i16")


@operation(types.none, types.intp, i32x16, types.intp)
def _store_i32_first(builder: Any, address: Any, value: Any, count: Any) -> None:
    emit_store_masked(builder, address, value, count, "v16i32")


@inline
def _range(count: int, thread: int, threads: int) -> tuple[int, int]:
    """First and last element of a thread."""
    # Threads get whole vectors, so that one of them alone has a remainder.
    vectors = (count + 15) // 16
    return vectors * thread // threads * 16, min(vectors * (thread + 1) // threads * 16, count)


@task
def f16_to_f32(args: Cast, thread: int, threads: int) -> None:
    """float32 of float16, which is exact; each thread has a range of vectors."""
    start, stop = _range(args.count, thread, threads)
    whole = start + (stop - start) // 16 * 16
    for element in range(start, whole, 16):
        store_f32(args.out + element * 4, load_f16(args.x + element * 2))
    if whole < stop:
        store_f32_masked(args.out + whole * 4, load_f16_masked(args.x + whole * 2, stop - whole), stop - whole)


@task
def f32_to_f16(args: Cast, thread: int, threads: int) -> None:
    """float16 of float32, rounded to nearest, ties to even; each thread has a range of vectors."""
    start, stop = _range(args.count, thread, threads)
    whole = start + (stop - start) // 16 * 16
    for element in range(start, whole, 16):
        _store_f16(args.out + element * 2, load_f32(args.x + element * 4))
    if whole < stop:
        _store_f16_first(args.out + whole * 2, load_f32_masked(args.x + whole * 4, stop - whole), stop - whole)


@task
def f32_to_i32(args: Cast, thread: int, threads: int) -> None:
    """int32 of float32; each thread has a range of vectors."""
    # Of integers that float32 holds exactly, as sums of 8-bit products are: NaN and numbers out of range do not come here.
    start, stop = _range(args.count, thread, threads)
    whole = start + (stop - start) // 16 * 16
    for element in range(start, whole, 16):
        store_i32(args.out + element * 4, to_i32(load_f32(args.x + element * 4)))
    if whole < stop:
        _store_i32_first(args.out + whole * 4, to_i32(load_f32_masked(args.x + whole * 4, stop - whole)), stop - whole)
