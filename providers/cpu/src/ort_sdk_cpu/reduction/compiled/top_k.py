"""TopK of float32: a heap of the k largest elements so far.

The least of them is on top, and most elements are compared with that one only, 16 at a time: of random ones, element n is put in
with probability k / n, so that k * log(size / k) of them ever move the heap. Sorting would touch all of them log(size) times.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.reduction.arguments.top_k import TopK
from ort_sdk_cpu.simd.arithmetic import multiply, splat_f32
from ort_sdk_cpu.simd.heap import sift_down, sift_up, sort_key, trailing_zeros
from ort_sdk_cpu.simd.memory import load_f32, read_f32, read_i64, write_f32, write_i64
from ort_sdk_cpu.simd.vector_types import LANES, f32x16, operation

__all__ = ["top_k"]

_I64 = ir.IntType(64)
_INDEX = 0xFFFFFFFF
"""Bits of a key that hold an index."""


@operation(types.intp, f32x16, f32x16)
def _not_below(builder: Any, x: Any, y: Any) -> Any:
    """A bit for each lane in which x > y, or one of them is NaN."""
    found = builder.fcmp_unordered(">", x, y)
    return builder.zext(builder.bitcast(found, ir.IntType(LANES)), _I64)


@inline
def _key(value: Any, index: int) -> int:
    """Larger for what comes before."""
    # Value and index in one integer make one comparison of two: of equal values, that at the lower index comes first, as ONNX
    # says. Floats are mapped to integers that compare as they do, NaN above all.
    order: int = sort_key(value)
    return (order << 32) | (_INDEX - index)


@inline
def _value_of(x: int, key: int) -> Any:
    return read_f32(x + (_INDEX - (key & _INDEX)) * 4)


@inline
def _select(x: int, size: int, count: int, sign: Any, heap: int) -> None:
    """Fill the heap with the keys of the ``count`` largest products with the sign."""
    # The first k are all among the best so far; from then on one comparison decides for 16 elements, mostly that none is.
    for index in range(count):
        sift_up(heap, index, _key(sign * read_f32(x + index * 4), index))
    signs, index = splat_f32(sign), count
    while index < size:
        least = read_i64(heap)
        if index + 16 <= size:
            bits = _not_below(multiply(load_f32(x + index * 4), signs), splat_f32(sign * _value_of(x, least)))
            if not bits:
                index += 16
                continue
            index += trailing_zeros(bits)
        key = _key(sign * read_f32(x + index * 4), index)
        if key > least:
            sift_down(heap, count, 0, key)
        index += 1


@inline
def _write(x: int, count: int, heap: int, values: int, indices: int, stride: int) -> None:
    """The heap's elements in descending order; the heap is empty then."""
    for left in range(count - 1, -1, -1):
        key = read_i64(heap)
        if values:
            write_f32(values + left * stride * 4, _value_of(x, key))
        if indices:
            write_i64(indices + left * stride * 8, _INDEX - (key & _INDEX))
        if left:
            sift_down(heap, left, 0, read_i64(heap + left * 8))


@task
def top_k(args: TopK, thread: int, threads: int) -> None:
    """The largest elements along an axis; each thread has a range of rows along it."""
    size, stride, count = args.size, args.inner, args.k
    heap, sign = args.workspace + thread * args.workspace_bytes, args.sign
    row = heap + count * 8
    units = args.outer * stride
    for unit in range(units * thread // threads, units * (thread + 1) // threads):
        outer, column = unit // stride, unit % stride
        x = args.x + (outer * size * stride + column) * 4
        # Along an axis that others follow, the row is copied: it is read by vectors, and again for each element of the heap.
        if stride > 1:
            for index in range(size):
                write_f32(row + index * 4, read_f32(x + index * stride * 4))
            x = row
        _select(x, size, count, sign, heap)
        start = outer * count * stride + column
        values, indices = args.values, args.indices
        _write(x, count, heap, values + start * 4 if values else 0, indices + start * 8 if indices else 0, stride)
