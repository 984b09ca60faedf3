"""Binary min-heaps of int64 keys, and keys that sort as float32 numbers do."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit.numba_frontend import inline

from .memory import read_i64, write_i64
from .vector_types import I32, call, operation

__all__ = ["sift_down", "sift_up", "sort_key", "trailing_zeros"]

_I64 = ir.IntType(64)


@operation(types.intp, types.intp)
def trailing_zeros(builder: Any, bits: Any) -> Any:
    """Index of the lowest bit that is set, of a number that is not 0."""
    return call(builder, "llvm.cttz.i64", _I64, bits, ir.Constant(ir.IntType(1), 1))


@operation(types.intp, types.float32)
def sort_key(builder: Any, value: Any) -> Any:
    """An integer that compares with others as the float32 does; NaN is below all numbers, and zeros of both signs are equal.

    Bit patterns of positive floats sort as integers; of negative ones all bits but the sign are flipped.
    """
    bits = builder.bitcast(builder.fadd(value, ir.Constant(value.type, 0.0)), I32)
    flipped = builder.xor(bits, ir.Constant(I32, 0x7FFFFFFF))
    found = builder.select(builder.icmp_signed("<", bits, ir.Constant(I32, 0)), flipped, bits)
    is_number = builder.fcmp_ordered("==", value, value)
    return builder.sext(builder.select(is_number, found, ir.Constant(I32, -0x80000000)), _I64)


@inline
def sift_down(heap: int, count: int, hole: int, key: int) -> None:
    """Put a key at a hole of a heap, or below it, so that the heap order holds.

    Args:
        heap: address of the keys.
        count: number of keys.
        hole: index of the hole.
        key: the key.
    """
    while True:
        child = 2 * hole + 1
        if child >= count:
            break
        found = read_i64(heap + child * 8)
        if child + 1 < count:
            other = read_i64(heap + child * 8 + 8)
            if other < found:
                child, found = child + 1, other
        if found >= key:
            break
        write_i64(heap + hole * 8, found)
        hole = child
    write_i64(heap + hole * 8, key)


@inline
def sift_up(heap: int, count: int, key: int) -> None:
    """Add a key to a heap of ``count`` keys at an address."""
    hole = count
    while hole:
        parent = (hole - 1) // 2
        found = read_i64(heap + parent * 8)
        if found <= key:
            break
        write_i64(heap + hole * 8, found)
        hole = parent
    write_i64(heap + hole * 8, key)
