"""LogSoftmax, ReduceLogSumExp and LpNormalization along rows of float32; CumSum along any axis."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.normalization.arguments.log_softmax import CumSumFloat, CumSumInt64, LogSoftmax, LogSumExp, LpNormalization
from ort_sdk_cpu.simd.arithmetic import (
    absolute,
    add,
    divide,
    fused_multiply_add,
    mask_lanes,
    maximum,
    reduce_add,
    reduce_max,
    splat_f32,
    subtract,
    zero_f32,
)
from ort_sdk_cpu.simd.math import exp_nonpositive
from ort_sdk_cpu.simd.memory import (
    load_f32_masked,
    load_f32_masked_or,
    read_f32,
    read_i64,
    store_f32_masked,
    write_f32,
    write_i64,
)
from ort_sdk_cpu.simd.vector_types import operation

__all__ = ["cum_sum_f32", "cum_sum_i64", "log_softmax", "log_sum_exp", "lp_normalization"]

_I64, _F64 = ir.IntType(64), ir.DoubleType()
_LOG_2 = 0.6931471805599453
_ROOT = 1.4142135623730951
_MANTISSA, _ONE, _BIAS, _EXPONENT_AT = (1 << 52) - 1, 1023 << 52, 1023, 52


@operation(types.intp, types.float64)
def _bits(builder: Any, value: Any) -> Any:
    return builder.bitcast(value, _I64)


@operation(types.float64, types.intp)
def _number(builder: Any, bits: Any) -> Any:
    return builder.bitcast(bits, _F64)


@inline
def _log(x: float) -> float:
    """Logarithm of a sum of powers, the largest of which is 1; others than finite numbers from 1 on are returned as they are."""
    # Once for each row, and in float64, so that LogSoftmax is as exact as float32 can be: log(x) = e log 2 + log(m) for a
    # mantissa near 1, and log(m) = 2 artanh((m - 1) / (m + 1)), whose series needs ten terms for all bits of float64.
    if not 1.0 <= x < np.inf:
        return x
    bits = _bits(x)
    exponent, mantissa = (bits >> _EXPONENT_AT) - _BIAS, _number((bits & _MANTISSA) | _ONE)
    if mantissa > _ROOT:
        exponent, mantissa = exponent + 1, mantissa / 2
    ratio = (mantissa - 1) / (mantissa + 1)
    square, total = ratio * ratio, 0.0
    for order in range(19, 0, -2):
        total = total * square + 1.0 / order
    found: float = exponent * _LOG_2 + 2 * ratio * total
    return found


@inline
def _row_max(x: int, width: int) -> float:
    lowest = splat_f32(np.float32(-np.inf))
    largest = lowest
    for element in range(0, width, 16):
        largest = maximum(load_f32_masked_or(x + element * 4, width - element, lowest), largest)
    found: float = reduce_max(largest)
    return found


@inline
def _log_sum(x: int, width: int, largest: float) -> float:
    """Logarithm of the sum of exp(x - largest)."""
    shift, total = splat_f32(largest), zero_f32()
    for element in range(0, width, 16):
        power = exp_nonpositive(subtract(load_f32_masked_or(x + element * 4, width - element, shift), shift))
        total = add(total, mask_lanes(power, width - element))
    found: float = _log(np.float64(reduce_add(total)))
    return found


@inline
def _log_softmax_row(x: int, out: int, width: int) -> None:
    # Shifted by the largest element, so that no power overflows, and one of them is 1.
    largest = _row_max(x, width)
    shift, log_sum = splat_f32(largest), splat_f32(np.float32(_log_sum(x, width, largest)))
    for element in range(0, width, 16):
        left = width - element
        store_f32_masked(out + element * 4, subtract(subtract(load_f32_masked(x + element * 4, left), shift), log_sum), left)


@task
def log_softmax(args: LogSoftmax, thread: int, threads: int) -> None:
    """LogSoftmax along the last axis; each thread has a range of rows."""
    for row in range(args.rows * thread // threads, args.rows * (thread + 1) // threads):
        offset = row * args.width * 4
        _log_softmax_row(args.x + offset, args.out + offset, args.width)


@inline
def _infinite_sum(x: int, width: int, largest: float) -> float:
    """The logarithm of a sum of powers whose largest exponent is infinite: that one, or NaN if there is one."""
    for element in range(width):
        value: float = read_f32(x + element * 4)
        if np.isnan(value):
            return value
    return largest


@task
def log_sum_exp(args: LogSumExp, thread: int, threads: int) -> None:
    """ReduceLogSumExp along the last axis; each thread has a range of rows."""
    width = args.width
    for row in range(args.rows * thread // threads, args.rows * (thread + 1) // threads):
        x = args.x + row * width * 4
        largest = _row_max(x, width)
        # Infinity less infinity is NaN, which the sum of powers would become.
        if np.isinf(largest):
            found = _infinite_sum(x, width, largest)
        else:
            found = np.float32(np.float64(largest) + _log_sum(x, width, largest))
        write_f32(args.out + row * 4, found)


@task
def lp_normalization(args: LpNormalization, thread: int, threads: int) -> None:
    """LpNormalization along the last axis; each thread has a range of rows."""
    # Two passes, norm and quotients. A row of zeros is divided by 1, and stays zeros, as ONNX Runtime has it.
    width, p = args.width, args.p
    for row in range(args.rows * thread // threads, args.rows * (thread + 1) // threads):
        x, out, total = args.x + row * width * 4, args.out + row * width * 4, zero_f32()
        for element in range(0, width, 16):
            value = load_f32_masked(x + element * 4, width - element)
            total = add(total, absolute(value)) if p == 1 else fused_multiply_add(value, value, total)
        norm = reduce_add(total) if p == 1 else np.sqrt(reduce_add(total))
        divisor = splat_f32(norm if norm != np.float32(0) else np.float32(1))
        for element in range(0, width, 16):
            left = width - element
            store_f32_masked(out + element * 4, divide(load_f32_masked(x + element * 4, left), divisor), left)


@inline
def _offset(args: CumSumFloat | CumSumInt64, unit: int, index: int, itemsize: int) -> int:
    """Bytes to an element of an axis, counted from the end if sums run from there."""
    position = args.size - 1 - index if args.is_reversed else index
    found: int = ((unit // args.inner * args.size + position) * args.inner + unit % args.inner) * itemsize
    return found


@task
def cum_sum_f32(args: CumSumFloat, thread: int, threads: int) -> None:
    """CumSum of float32: each thread has a range of vectors of 16 neighbours, or of rows where sums run along the last axis."""
    # In the order of the axis: a parallel scan would add in another order, and round otherwise than the shared set.
    size, inner, exclusive = args.size, args.inner, args.is_exclusive
    vectors = (inner + 15) // 16
    units = args.outer * vectors
    for unit in range(units * thread // threads, units * (thread + 1) // threads):
        first, left, total = unit // vectors * inner + unit % vectors * 16, inner - unit % vectors * 16, zero_f32()
        if inner == 1:
            number = np.float32(0)
            for index in range(size):
                offset = _offset(args, first, index, 4)
                following = number + read_f32(args.x + offset)
                write_f32(args.out + offset, number if exclusive else following)
                number = following
            continue
        for index in range(size):
            offset = _offset(args, first, index, 4)
            after = add(total, load_f32_masked(args.x + offset, left))
            store_f32_masked(args.out + offset, total if exclusive else after, left)
            total = after


@task
def cum_sum_i64(args: CumSumInt64, thread: int, threads: int) -> None:
    """CumSum of int64: each thread has a range of rows."""
    # One by one: int64 has half the lanes of float32, and shapes and positions, of which such sums are, are short.
    units = args.outer * args.inner
    for unit in range(units * thread // threads, units * (thread + 1) // threads):
        total = 0
        for index in range(args.size):
            offset = _offset(args, unit, index, 8)
            after = total + read_i64(args.x + offset)
            write_i64(args.out + offset, total if args.is_exclusive else after)
            total = after
