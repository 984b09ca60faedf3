"""8-bit and 16-bit tensors: made and taken apart, with one scale and one zero point or with those of rows or columns.

Elements are read as unsigned ones. ``flip`` is half the range of signed ones, which makes them unsigned and so much larger; their
zero points are given as much larger, too.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument, number
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
    load_i32,
    load_i32_first,
    load_u8,
    load_u8_first,
    read_f32,
    read_i32,
    read_u8,
    store_f32,
    store_f32_first,
)
from ort_sdk_cpu.simd.vector_types import LANES, VI32, i32x16, operation

__all__ = [
    "dequantize",
    "dequantize_rows",
    "dequantize_sum_rows",
    "dequantize_word_rows",
    "dequantize_words",
    "quantize",
    "quantize_rows",
    "quantize_word_rows",
    "quantize_words",
    "requantize_sums",
]

_PIECE = 4096
"""Elements of a row that a thread computes at a time."""

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


@inner
def _read_word(address: int) -> int:
    found: int = read_u8(address) + read_u8(address + 1) * 256
    return found


@inner
def _rows(record: int) -> tuple[int, int, int, int]:
    """(rows, elements of one, whether each column has parameters of its own, pieces of a row) of outer, own and inner sizes."""
    outer, own, inside = argument(record, 4), argument(record, 5), argument(record, 6)
    rows, count = (outer, own) if inside == 1 else (outer * own, inside)
    return rows, count, int(inside == 1), (count + _PIECE - 1) // _PIECE


def _quantize_rows(store_first: Any, load_first: Any, read: Any, item: int) -> Any:
    """Quantization to elements of some bytes, by what stores, loads and reads them."""

    @inner
    def quantized_row(record: int, row: int, count: int, by_column: int, first: int) -> None:
        scales, zeros = argument(record, 2), argument(record, 3)
        flip, low, high = splat_i32(argument(record, 7)), splat_f32(number(record, 8)), splat_f32(number(record, 9))
        place = row % argument(record, 5)
        scale = splat_f32(read_f32(scales + place * 4))
        zero = splat_i32(read(zeros + place * item) if zeros else 0)
        x, out = argument(record, 0) + row * count * 4, argument(record, 1) + row * count * item
        for column in range(first, min(count, first + _PIECE), 16):
            left = count - column
            if by_column:
                scale = load_f32_first(scales + column * 4, left)
                zero = load_first(zeros + column * item, left) if zeros else zero
            value = load_f32(x + column * 4) if left >= 16 else load_f32_first(x + column * 4, left)
            shift = to_f32(subtract(bit_xor(zero, flip), flip))
            store_first(out + column * item, _steps(value, scale, shift, low, high), left)

    @inner
    def quantized(record: int, part: int, parts: int) -> None:
        rows, count, by_column, pieces = _rows(record)
        units = rows * pieces
        for unit in range(units * part // parts, units * (part + 1) // parts):
            quantized_row(record, unit // pieces, count, by_column, unit % pieces * _PIECE)

    return quantized


_to_byte_rows = _quantize_rows(store_i8_first, load_u8_first, read_u8, 1)
_to_word_rows = _quantize_rows(_store_words_first, _load_words_first, _read_word, 2)


@task
def quantize_rows(record: int, part: int, parts: int) -> None:
    """Each row, or column, by its own scale.

    Arguments: addresses of x, out, the scales and the zero points (0: there are none); sizes before, of and behind the axis the
    scales run along; flip, lowest, highest.
    """
    _to_byte_rows(record, part, parts)


@task
def quantize_word_rows(record: int, part: int, parts: int) -> None:
    """The same to 16 bits."""
    _to_word_rows(record, part, parts)


def _dequantize_rows(load: Any, load_first: Any, read: Any, item: int) -> Any:
    """The real numbers of elements of some bytes, by what loads and reads them."""

    @inner
    def dequantized_row(record: int, row: int, count: int, by_column: int, first: int) -> None:
        scales, zeros, flip = argument(record, 2), argument(record, 3), splat_i32(argument(record, 7))
        place = row % argument(record, 5)
        scale = splat_f32(read_f32(scales + place * 4))
        zero = splat_i32(read(zeros + place * item) if zeros else 0)
        x, out = argument(record, 0) + row * count * item, argument(record, 1) + row * count * 4
        for column in range(first, min(count, first + _PIECE), 16):
            left = count - column
            if by_column:
                scale = load_f32_first(scales + column * 4, left)
                zero = load_first(zeros + column * item, left) if zeros else zero
            value = load(x + column * item) if left >= 16 else load_first(x + column * item, left)
            centred = subtract(bit_xor(value, flip), bit_xor(zero, flip))
            store_f32_first(out + column * 4, multiply(to_f32(centred), scale), left)

    @inner
    def dequantized(record: int, part: int, parts: int) -> None:
        rows, count, by_column, pieces = _rows(record)
        units = rows * pieces
        for unit in range(units * part // parts, units * (part + 1) // parts):
            dequantized_row(record, unit // pieces, count, by_column, unit % pieces * _PIECE)

    return dequantized


_of_byte_rows = _dequantize_rows(load_u8, load_u8_first, read_u8, 1)
_of_word_rows = _dequantize_rows(_load_words, _load_words_first, _read_word, 2)
_of_sum_rows = _dequantize_rows(load_i32, load_i32_first, read_i32, 4)


@task
def dequantize_rows(record: int, part: int, parts: int) -> None:
    """Each row, or column, by its own scale.

    Arguments: addresses of x, out, the scales and the zero points (0: there are none); sizes before, of and behind the axis the
    scales run along; flip.
    """
    _of_byte_rows(record, part, parts)


@task
def dequantize_word_rows(record: int, part: int, parts: int) -> None:
    """The same of 16 bits."""
    _of_word_rows(record, part, parts)


@task
def dequantize_sum_rows(record: int, part: int, parts: int) -> None:
    """The same of int32, whose ``flip`` is 0."""
    _of_sum_rows(record, part, parts)


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
