"""8-bit and 16-bit tensors with one scale and one zero point: made and taken apart.

Elements are read as unsigned ones. ``flip`` is half the range of signed ones, which makes them unsigned and so much larger; their
zero points are given as much larger, too.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit import inner
from ort_sdk_cpu.machine_code import task
from ort_sdk_cpu.simd.arithmetic import (
    add,
    bit_xor,
    divide,
    maximum,
    minimum,
    multiply,
    round_to_even,
    splat_f32,
    splat_i32,
    subtract,
    to_f32,
    to_i32,
)
from ort_sdk_cpu.simd.bytes import store_i8_first
from ort_sdk_cpu.simd.memory import (
    emit_load,
    emit_load_first,
    emit_store_first,
    load_f32,
    load_f32_first,
    load_i32_first,
    load_u8,
    load_u8_first,
    store_f32,
    store_f32_first,
)
from ort_sdk_cpu.simd.records import argument, number
from ort_sdk_cpu.simd.vector_types import LANES, VI32, i32x16, operation

__all__ = ["dequantize", "dequantize_words", "quantize", "quantize_words", "requantize_sums"]

_WORDS = ir.VectorType(ir.IntType(16), LANES)


@operation(i32x16, types.intp)
def _load_words(builder: Any, address: Any) -> Any:
    return builder.zext(emit_load(builder, address, _WORDS), VI32)


@operation(i32x16, types.intp, types.intp)
def _load_words_first(builder: Any, address: Any, count: Any) -> Any:
    return builder.zext(emit_load_first(builder, address, count, _WORDS, "v16i16"), VI32)


@operation(types.none, types.intp, i32x16, types.intp)
def _store_words_first(builder: Any, address: Any, value: Any, count: Any) -> None:
    emit_store_first(builder, address, builder.trunc(value, _WORDS), count, "v16i16")


@inner
def _steps(value: Any, scale: Any, zero_point: Any, low: Any, high: Any) -> Any:
    steps = add(round_to_even(divide(value, scale)), zero_point)
    return to_i32(minimum(maximum(steps, low), high))


def _quantize(store_first: Any, item: int) -> Any:
    """Quantization to elements of some bytes, by what stores 16 of them."""

    @inner
    def quantized(record: int, part: int, parts: int) -> None:
        x, out, count = argument(record, 0), argument(record, 1), argument(record, 2)
        zero, scale = splat_f32(number(record, 3)), splat_f32(number(record, 4))
        low, high = splat_f32(number(record, 5)), splat_f32(number(record, 6))
        vectors = (count + 15) // 16
        for vector in range(vectors * part // parts, vectors * (part + 1) // parts):
            place, left = vector * 16, count - vector * 16
            value = load_f32(x + place * 4) if left >= 16 else load_f32_first(x + place * 4, left)
            store_first(out + place * item, _steps(value, scale, zero, low, high), left)

    return quantized


_to_bytes, _to_words = _quantize(store_i8_first, 1), _quantize(_store_words_first, 2)


@task
def quantize(record: int, part: int, parts: int) -> None:
    """(x, out, count, zero point, scale, lowest, highest)."""
    _to_bytes(record, part, parts)


@task
def quantize_words(record: int, part: int, parts: int) -> None:
    """The same to 16 bits."""
    _to_words(record, part, parts)


def _dequantize(load: Any, load_first: Any, item: int) -> Any:
    """The real numbers of elements of some bytes, by what loads 16 of them, and fewer."""

    @inner
    def dequantized(record: int, part: int, parts: int) -> None:
        x, out, count = argument(record, 0), argument(record, 1), argument(record, 2)
        flip = splat_i32(argument(record, 3))
        zero, scale = splat_f32(number(record, 4)), splat_f32(number(record, 5))
        vectors = (count + 15) // 16
        for vector in range(vectors * part // parts, vectors * (part + 1) // parts):
            place, left = vector * 16, count - vector * 16
            value = load(x + place * item) if left >= 16 else load_first(x + place * item, left)
            real = multiply(subtract(to_f32(bit_xor(value, flip)), zero), scale)
            if left >= 16:
                store_f32(out + place * 4, real)
            else:
                store_f32_first(out + place * 4, real, left)

    return dequantized


_of_bytes, _of_words = _dequantize(load_u8, load_u8_first, 1), _dequantize(_load_words, _load_words_first, 2)


@task
def dequantize(record: int, part: int, parts: int) -> None:
    """(x, out, count, flip, zero point, scale)."""
    _of_bytes(record, part, parts)


@task
def dequantize_words(record: int, part: int, parts: int) -> None:
    """The same of 16 bits."""
    _of_words(record, part, parts)


@task
def requantize_sums(record: int, part: int, parts: int) -> None:
    """Round (sum + bias) * scale to steps from a zero point.

    Arguments: addresses of the sums (int32), of the result, of a scale per column (float32), and of a bias per column (int32) or
    0; rows, columns, zero point, lowest, highest.
    """
    sums, out, scales, bias = argument(record, 0), argument(record, 1), argument(record, 2), argument(record, 3)
    rows, columns, zero = argument(record, 4), argument(record, 5), splat_f32(number(record, 6))
    low, high = splat_f32(number(record, 7)), splat_f32(number(record, 8))
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        for column in range(0, columns, 16):
            left, place = columns - column, row * columns + column
            value = load_i32_first(sums + place * 4, left)
            if bias:
                value = add(value, load_i32_first(bias + column * 4, left))
            steps = round_to_even(multiply(to_f32(value), load_f32_first(scales + column * 4, left)))
            store_i8_first(out + place, to_i32(minimum(maximum(add(steps, zero), low), high)), left)
