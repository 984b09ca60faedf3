"""LogSoftmax, sums of powers and division by norms along rows of float32; running sums along any axis."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.arithmetic import (
    absolute,
    add,
    divide,
    fused_multiply_add,
    maximum,
    reduce_add,
    reduce_max,
    splat_f32,
    subtract,
    zero_f32,
)
from ort_sdk_cpu.simd.math import exp_of_negative
from ort_sdk_cpu.simd.memory import load_f32_first, read_f32, read_i64, store_f32_first, write_f32, write_i64
from ort_sdk_cpu.simd.remainder import first_lanes, load_f32_first_or
from ort_sdk_cpu.simd.vector_types import operation

__all__ = ["log_softmax", "log_sum_exp", "normalized", "running_floats", "running_integers"]

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


@inner
def _log(x: float) -> float:
    """Logarithm of a number of at least 1, or what is no such number; to some units in the last place of float64."""
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


@inner
def _largest(x: int, width: int) -> float:
    lowest = splat_f32(np.float32(-np.inf))
    largest = lowest
    for element in range(0, width, 16):
        largest = maximum(load_f32_first_or(x + element * 4, width - element, lowest), largest)
    found: float = reduce_max(largest)
    return found


@inner
def _log_sum(x: int, width: int, largest: float) -> float:
    """Logarithm of the sum of powers of what the largest number is more than each."""
    shift, total = splat_f32(largest), zero_f32()
    for element in range(0, width, 16):
        power = exp_of_negative(subtract(load_f32_first_or(x + element * 4, width - element, shift), shift))
        total = add(total, first_lanes(power, width - element))
    found: float = _log(np.float64(reduce_add(total)))
    return found


@inner
def _log_softmax_row(x: int, out: int, width: int) -> None:
    largest = _largest(x, width)
    shift, less = splat_f32(largest), splat_f32(np.float32(_log_sum(x, width, largest)))
    for element in range(0, width, 16):
        left = width - element
        store_f32_first(out + element * 4, subtract(subtract(load_f32_first(x + element * 4, left), shift), less), left)


@task
def log_softmax(record: int, part: int, parts: int) -> None:
    """(x, out, rows, width)."""
    rows, width = argument(record, 2), argument(record, 3)
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        _log_softmax_row(argument(record, 0) + row * width * 4, argument(record, 1) + row * width * 4, width)


@inner
def _infinite_sum(x: int, width: int, largest: float) -> float:
    """The logarithm of a sum of powers whose largest exponent is infinite: that one, or NaN if there is one."""
    for element in range(width):
        value: float = read_f32(x + element * 4)
        if np.isnan(value):
            return value
    return largest


@task
def log_sum_exp(record: int, part: int, parts: int) -> None:
    """(x, out, rows, width): one number of each row."""
    rows, width = argument(record, 2), argument(record, 3)
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        x = argument(record, 0) + row * width * 4
        largest = _largest(x, width)
        if np.isinf(largest):
            found = _infinite_sum(x, width, largest)
        else:
            found = np.float32(np.float64(largest) + _log_sum(x, width, largest))
        write_f32(argument(record, 1) + row * 4, found)


@task
def normalized(record: int, part: int, parts: int) -> None:
    """(x, out, rows, width, p): rows divided by their sum of magnitudes (1) or length (2), if that is not 0."""
    rows, width, p = argument(record, 2), argument(record, 3), argument(record, 4)
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        x, out, total = argument(record, 0) + row * width * 4, argument(record, 1) + row * width * 4, zero_f32()
        for element in range(0, width, 16):
            value = load_f32_first(x + element * 4, width - element)
            total = add(total, absolute(value)) if p == 1 else fused_multiply_add(value, value, total)
        norm = reduce_add(total) if p == 1 else np.sqrt(reduce_add(total))
        by = splat_f32(norm if norm != np.float32(0) else np.float32(1))
        for element in range(0, width, 16):
            left = width - element
            store_f32_first(out + element * 4, divide(load_f32_first(x + element * 4, left), by), left)


@inner
def _place(record: int, unit: int, index: int, itemsize: int) -> int:
    """Bytes to an element of an axis, counted from the end if sums run from there."""
    size, step = argument(record, 3), argument(record, 4)
    at = size - 1 - index if argument(record, 6) else index
    found: int = (unit // step * size * step + at * step + unit % step) * itemsize
    return found


@task
def running_floats(record: int, part: int, parts: int) -> None:
    """Running sums of float32 along an axis.

    (x, out, outer, size, step, exclusive, reverse): x and out of shape (outer, size, step); whether an element's sum is that of
    those before it only; whether they run from the end.
    """
    size, step, exclusive = argument(record, 3), argument(record, 4), argument(record, 5)
    pieces = (step + 15) // 16
    units = argument(record, 2) * pieces
    for unit in range(units * part // parts, units * (part + 1) // parts):
        first, left, total = unit // pieces * step + unit % pieces * 16, step - unit % pieces * 16, zero_f32()
        if step == 1:
            number = np.float32(0)
            for index in range(size):
                place = _place(record, first, index, 4)
                following = number + read_f32(argument(record, 0) + place)
                write_f32(argument(record, 1) + place, number if exclusive else following)
                number = following
            continue
        for index in range(size):
            place = _place(record, first, index, 4)
            after = add(total, load_f32_first(argument(record, 0) + place, left))
            store_f32_first(argument(record, 1) + place, total if exclusive else after, left)
            total = after


@task
def running_integers(record: int, part: int, parts: int) -> None:
    """The same of int64."""
    size, step, exclusive = argument(record, 3), argument(record, 4), argument(record, 5)
    units = argument(record, 2) * step
    for unit in range(units * part // parts, units * (part + 1) // parts):
        total = 0
        for index in range(size):
            place = _place(record, unit, index, 8)
            after = total + read_i64(argument(record, 0) + place)
            write_i64(argument(record, 1) + place, total if exclusive else after)
            total = after
