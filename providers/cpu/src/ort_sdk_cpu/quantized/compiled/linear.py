"""QuantizeLinear and DequantizeLinear of 8-bit and 16-bit tensors, with one scale or per axis; requantization of int32 sums.

Elements are read as unsigned ones. Exclusive or with ``sign``, the sign bit of signed types, makes these unsigned and so much
larger; their zero points are given as much larger, too. So one task serves both types.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.quantized.arguments.linear import Dequantize, DequantizePerAxis, Quantize, QuantizePerAxis, Requantize
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
from ort_sdk_cpu.simd.int8 import store_i8_masked
from ort_sdk_cpu.simd.memory import (
    emit_load,
    emit_load_masked,
    emit_store_masked,
    load_f32,
    load_f32_masked,
    load_i32,
    load_i32_masked,
    load_u8,
    load_u8_masked,
    read_f32,
    read_i32,
    read_u8,
    store_f32,
    store_f32_masked,
)
from ort_sdk_cpu.simd.vector_types import LANES, VI32, i32x16, operation

__all__ = [
    "dequantize_8",
    "dequantize_16",
    "dequantize_per_axis_8",
    "dequantize_per_axis_16",
    "dequantize_per_axis_32",
    "quantize_8",
    "quantize_16",
    "quantize_per_axis_8",
    "quantize_per_axis_16",
    "requantize",
]

_PIECE = 4096
"""Elements of a row that a thread computes at a time: enough to share rows of any length out evenly."""

_WORDS = ir.VectorType(ir.IntType(16), LANES)


@operation(i32x16, types.intp)
def _load_words(builder: Any, address: Any) -> Any:
    return builder.zext(emit_load(builder, address, _WORDS), VI32)


@operation(i32x16, types.intp, types.intp)
def _load_words_first(builder: Any, address: Any, count: Any) -> Any:
    return builder.zext(emit_load_masked(builder, address, count, _WORDS, "v16i16"), VI32)


@operation(types.none, types.intp, i32x16, types.intp)
def _store_words_first(builder: Any, address: Any, value: Any, count: Any) -> None:
    emit_store_masked(builder, address, builder.trunc(value, _WORDS), count, "v16i16")


@inline
def _quantized(value: Any, scale: Any, zero_point: Any, low: Any, high: Any) -> Any:
    # A division, and no multiplication by the reciprocal: ONNX defines x / scale, and ties would fall to the other side.
    rounded = add(round_to_even(divide(value, scale)), zero_point)
    return to_i32(minimum(maximum(rounded, low), high))


def _quantize_of(store_first: Any, itemsize: int) -> Any:
    """Quantization to elements of some bytes, by what stores 16 of them."""

    @inline
    def quantize(args: Quantize, thread: int, threads: int) -> None:
        x, out, count = args.x, args.out, args.count
        zero, scale = splat_f32(args.zero_point), splat_f32(args.scale)
        low, high = splat_f32(args.lowest), splat_f32(args.highest)
        vectors = (count + 15) // 16
        for vector in range(vectors * thread // threads, vectors * (thread + 1) // threads):
            first, left = vector * 16, count - vector * 16
            value = load_f32(x + first * 4) if left >= 16 else load_f32_masked(x + first * 4, left)
            store_first(out + first * itemsize, _quantized(value, scale, zero, low, high), left)

    return quantize


_quantize_8, _quantize_16 = _quantize_of(store_i8_masked, 1), _quantize_of(_store_words_first, 2)


@task
def quantize_8(args: Quantize, thread: int, threads: int) -> None:
    """QuantizeLinear with one scale, to 8 bits: each thread has a range of vectors."""
    _quantize_8(args, thread, threads)


@task
def quantize_16(args: Quantize, thread: int, threads: int) -> None:
    """The same to 16 bits."""
    _quantize_16(args, thread, threads)


def _dequantize_of(load: Any, load_first: Any, itemsize: int) -> Any:
    """The real numbers of elements of some bytes, by what loads 16 of them, and fewer."""

    @inline
    def dequantize(args: Dequantize, thread: int, threads: int) -> None:
        x, out, count = args.x, args.out, args.count
        # Unsigned elements less a zero point that is as much larger: the sign needs no branch in the loop.
        sign, zero, scale = splat_i32(args.sign), splat_f32(args.zero_point), splat_f32(args.scale)
        vectors = (count + 15) // 16
        for vector in range(vectors * thread // threads, vectors * (thread + 1) // threads):
            first, left = vector * 16, count - vector * 16
            value = load(x + first * itemsize) if left >= 16 else load_first(x + first * itemsize, left)
            real = multiply(subtract(to_f32(bit_xor(value, sign)), zero), scale)
            if left >= 16:
                store_f32(out + first * 4, real)
            else:
                store_f32_masked(out + first * 4, real, left)

    return dequantize


_dequantize_8 = _dequantize_of(load_u8, load_u8_masked, 1)
_dequantize_16 = _dequantize_of(_load_words, _load_words_first, 2)


@task
def dequantize_8(args: Dequantize, thread: int, threads: int) -> None:
    """DequantizeLinear with one scale, of 8 bits: each thread has a range of vectors."""
    _dequantize_8(args, thread, threads)


@task
def dequantize_16(args: Dequantize, thread: int, threads: int) -> None:
    """The same of 16 bits."""
    _dequantize_16(args, thread, threads)


@inline
def _read_word(address: int) -> int:
    # Two bytes: zero points of 16 bits need not be aligned.
    found: int = read_u8(address) + read_u8(address + 1) * 256
    return found


@inline
def _rows(args: QuantizePerAxis | DequantizePerAxis) -> tuple[int, int, int, int]:
    """(rows, elements of one, whether each column has a scale of its own, pieces of a row).

    Scales along the last axis are loaded as vectors; along another one, each row has one for all of its elements.
    """
    by_column = int(args.inner == 1)
    rows, count = (args.outer, args.size) if args.inner == 1 else (args.outer * args.size, args.inner)
    return rows, count, by_column, (count + _PIECE - 1) // _PIECE


def _quantize_per_axis_of(store_first: Any, load_first: Any, read: Any, itemsize: int) -> Any:
    """Quantization to elements of some bytes, by what stores, loads and reads them."""

    @inline
    def piece(args: QuantizePerAxis, row: int, count: int, by_column: int, first: int) -> None:
        scales, zeros, index = args.scales, args.zero_points, row % args.size
        sign, low, high = splat_i32(args.sign), splat_f32(args.lowest), splat_f32(args.highest)
        scale = splat_f32(read_f32(scales + index * 4))
        zero = splat_i32(read(zeros + index * itemsize) if zeros else 0)
        x, out = args.x + row * count * 4, args.out + row * count * itemsize
        for column in range(first, min(count, first + _PIECE), 16):
            left = count - column
            # Scales of columns are loaded with each vector: they are in the first cache.
            if by_column:
                scale = load_f32_masked(scales + column * 4, left)
                zero = load_first(zeros + column * itemsize, left) if zeros else zero
            value = load_f32(x + column * 4) if left >= 16 else load_f32_masked(x + column * 4, left)
            # Sign extension of what was loaded as unsigned.
            shift = to_f32(subtract(bit_xor(zero, sign), sign))
            store_first(out + column * itemsize, _quantized(value, scale, shift, low, high), left)

    @inline
    def quantize(args: QuantizePerAxis, thread: int, threads: int) -> None:
        rows, count, by_column, pieces = _rows(args)
        # Pieces of rows, so that a single long row is shared as well as many short ones.
        units = rows * pieces
        for unit in range(units * thread // threads, units * (thread + 1) // threads):
            piece(args, unit // pieces, count, by_column, unit % pieces * _PIECE)

    return quantize


_quantize_per_axis_8 = _quantize_per_axis_of(store_i8_masked, load_u8_masked, read_u8, 1)
_quantize_per_axis_16 = _quantize_per_axis_of(_store_words_first, _load_words_first, _read_word, 2)


@task
def quantize_per_axis_8(args: QuantizePerAxis, thread: int, threads: int) -> None:
    """QuantizeLinear per axis, to 8 bits: each thread has a range of pieces of rows."""
    _quantize_per_axis_8(args, thread, threads)


@task
def quantize_per_axis_16(args: QuantizePerAxis, thread: int, threads: int) -> None:
    """The same to 16 bits."""
    _quantize_per_axis_16(args, thread, threads)


def _dequantize_per_axis_of(load: Any, load_first: Any, read: Any, itemsize: int) -> Any:
    """The real numbers of elements of some bytes, by what loads and reads them."""

    @inline
    def piece(args: DequantizePerAxis, row: int, count: int, by_column: int, first: int) -> None:
        scales, zeros, sign, index = args.scales, args.zero_points, splat_i32(args.sign), row % args.size
        scale = splat_f32(read_f32(scales + index * 4))
        zero = splat_i32(read(zeros + index * itemsize) if zeros else 0)
        x, out = args.x + row * count * itemsize, args.out + row * count * 4
        for column in range(first, min(count, first + _PIECE), 16):
            left = count - column
            if by_column:
                scale = load_f32_masked(scales + column * 4, left)
                zero = load_first(zeros + column * itemsize, left) if zeros else zero
            value = load(x + column * itemsize) if left >= 16 else load_first(x + column * itemsize, left)
            # The difference of integers is exact, as ONNX defines it; float32 does not hold all int32.
            centered = subtract(bit_xor(value, sign), bit_xor(zero, sign))
            store_f32_masked(out + column * 4, multiply(to_f32(centered), scale), left)

    @inline
    def dequantize(args: DequantizePerAxis, thread: int, threads: int) -> None:
        rows, count, by_column, pieces = _rows(args)
        units = rows * pieces
        for unit in range(units * thread // threads, units * (thread + 1) // threads):
            piece(args, unit // pieces, count, by_column, unit % pieces * _PIECE)

    return dequantize


_dequantize_per_axis_8 = _dequantize_per_axis_of(load_u8, load_u8_masked, read_u8, 1)
_dequantize_per_axis_16 = _dequantize_per_axis_of(_load_words, _load_words_first, _read_word, 2)
_dequantize_per_axis_32 = _dequantize_per_axis_of(load_i32, load_i32_masked, read_i32, 4)


@task
def dequantize_per_axis_8(args: DequantizePerAxis, thread: int, threads: int) -> None:
    """DequantizeLinear per axis, of 8 bits: each thread has a range of pieces of rows."""
    _dequantize_per_axis_8(args, thread, threads)


@task
def dequantize_per_axis_16(args: DequantizePerAxis, thread: int, threads: int) -> None:
    """The same of 16 bits."""
    _dequantize_per_axis_16(args, thread, threads)


@task
def dequantize_per_axis_32(args: DequantizePerAxis, thread: int, threads: int) -> None:
    """The same of int32, whose ``sign`` is 0."""
    _dequantize_per_axis_32(args, thread, threads)


@task
def requantize(args: Requantize, thread: int, threads: int) -> None:
    """(sum + bias) * scale, rounded, and the zero point added, saturated: each thread has a range of rows."""
    sums, out, scales, bias = args.sums, args.out, args.scales, args.bias
    rows, columns, zero = args.rows, args.columns, splat_f32(args.zero_point)
    low, high = splat_f32(args.lowest), splat_f32(args.highest)
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        for column in range(0, columns, 16):
            left, offset = columns - column, row * columns + column
            # Integers are added before they are scaled: no rounding comes between sum and bias.
            value = load_i32_masked(sums + offset * 4, left)
            if bias:
                value = add(value, load_i32_masked(bias + column * 4, left))
            rounded = round_to_even(multiply(to_f32(value), load_f32_masked(scales + column * 4, left)))
            store_i8_masked(out + offset, to_i32(minimum(maximum(add(rounded, zero), low), high)), left)
