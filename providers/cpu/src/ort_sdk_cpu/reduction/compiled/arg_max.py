"""ArgMax and ArgMin of float32."""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.reduction.arguments.arg_max import ArgMax
from ort_sdk_cpu.simd.arithmetic import maximum_or_nan, multiply, splat_f32, splat_i32, zero_i32
from ort_sdk_cpu.simd.memory import emit_store, load_f32, read_f32, write_i64
from ort_sdk_cpu.simd.vector_types import LANES, f32x16, i32x16, operation

__all__ = ["arg_max"]


@operation(i32x16, f32x16, f32x16, i32x16, i32x16)
def _index_of_larger(builder: Any, best: Any, value: Any, index: Any, other: Any) -> Any:
    """The other index where the value is larger than the best, or the first NaN."""
    is_larger = builder.and_(builder.fcmp_unordered(">", value, best), builder.fcmp_ordered("ord", best, best))
    return builder.select(is_larger, other, index)


@operation(types.none, types.intp, i32x16)
def _store_i64(builder: Any, address: Any, indices: Any) -> None:
    """Write 16 indices as int64."""
    emit_store(builder, address, builder.sext(indices, ir.VectorType(ir.IntType(64), LANES)))


@inline
def _find_one(x: int, stride: int, count: int, factor: float, out: int) -> None:
    best, index = read_f32(x) * factor, 0
    for other in range(1, count):
        value = read_f32(x + other * stride) * factor
        if value > best or (math.isnan(value) and not math.isnan(best)):
            best, index = value, other
    write_i64(out, index)


@inline
def _find_16(x: int, stride: int, count: int, factor: float, out: int) -> None:
    # ArgMin is ArgMax of the opposites, so that one task does for both. Indices are int32, in the lanes of their values.
    factors = splat_f32(factor)
    best, indices = multiply(load_f32(x), factors), zero_i32()
    for other in range(1, count):
        value = multiply(load_f32(x + other * stride), factors)
        indices = _index_of_larger(best, value, indices, splat_i32(other))
        best = maximum_or_nan(best, value)
    _store_i64(out, indices)


@task
def arg_max(args: ArgMax, thread: int, threads: int) -> None:
    """Index of the first largest element along an axis; each thread has a range of groups of 16 columns."""
    count, inner_size, factor = args.count, args.inner, args.factor
    groups = (inner_size + 15) // 16
    units = args.outer * groups
    for unit in range(units * thread // threads, units * (thread + 1) // threads):
        outer, first = unit // groups, unit % groups * 16
        x = args.x + (outer * count * inner_size + first) * 4
        out = args.out + (outer * inner_size + first) * 8
        # A column for each lane, so that nothing crosses lanes. Fewer columns, which are mostly one (the last axis), go one by
        # one: NumPy is faster for those that are long, and gets them (``MAX_ROW_SEARCHED`` in ``reduction.select``).
        if first + 16 <= inner_size:
            _find_16(x, inner_size * 4, count, factor, out)
            continue
        for column in range(inner_size - first):
            _find_one(x + column * 4, inner_size * 4, count, factor, out + column * 8)
