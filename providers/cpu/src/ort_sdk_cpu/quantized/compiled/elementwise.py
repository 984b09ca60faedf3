"""Element-wise operators, average pooling and softmax of 8-bit tensors.

Elements are read as unsigned bytes. Exclusive or with ``sign``, 128 for int8, makes signed ones unsigned and 128 larger; zero
points are given 128 larger, too. So one task serves both types.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.pool.compiled.taps import taps_within
from ort_sdk_cpu.quantized.arguments.elementwise import (
    AveragePool,
    Binary,
    GlobalAveragePool,
    InputScale,
    LookUp,
    OutputScale,
    RowLoops,
    RowStrides,
    SoftmaxColumns,
    SoftmaxRows,
)
from ort_sdk_cpu.simd.arithmetic import (
    add,
    bit_xor,
    divide,
    mask_lanes,
    maximum,
    minimum,
    multiply,
    reduce_add,
    reduce_add_i32,
    reduce_max,
    round_to_even,
    splat_f32,
    splat_i32,
    subtract,
    to_f32,
    to_i32,
    zero_f32,
    zero_i32,
)
from ort_sdk_cpu.simd.int8 import broadcast_u8, load_bytes_masked, lookup_bytes, store_bytes_masked, store_i8_masked
from ort_sdk_cpu.simd.math import exp_nonpositive
from ort_sdk_cpu.simd.memory import load_u8, load_u8_masked, read_f32

__all__ = [
    "average_pool_nhwc",
    "binary",
    "global_average_pool",
    "look_up",
    "softmax_columns",
    "softmax_rows",
]

_PIECE = 4096
"""Elements of a row, or of several short ones, that a thread computes at a time."""


@inline
def _look_up_row(x: int, out: int, table: int, first: int, stop: int) -> None:
    for offset in range(first, stop, 64):
        value, left = load_bytes_masked(x + offset, stop - offset), stop - offset
        store_bytes_masked(out + offset, lookup_bytes(table, value) if table else value, left)


@inline
def _offset(loops: RowLoops, strides: RowStrides, line: int) -> int:
    """Bytes to the first row of a line: of all rows along the innermost of the outer dimensions."""
    offset: int = line % loops.size_2 * strides.stride_2
    line //= loops.size_2
    offset += line % loops.size_1 * strides.stride_1 + line // loops.size_1 * strides.stride_0
    return offset


@inline
def _units(loops: RowLoops) -> tuple[int, int, int]:
    """How work is shared out: (units, units of a line, pieces of a row). Short rows are taken several at a time."""
    count, along = loops.columns, loops.size_3
    # Rows of a few elements would be mostly loops: several of them are a piece.
    pieces, at_once = (count + _PIECE - 1) // _PIECE, max(1, _PIECE // count)
    in_line = (along + at_once - 1) // at_once * pieces
    return loops.rows // along * in_line, in_line, pieces


@inline
def _rows_of(loops: RowLoops, unit: int, pieces: int) -> tuple[int, int]:
    """The first row of a unit in its line, and the one behind the last."""
    at_once = max(1, _PIECE // loops.columns)
    first = unit // pieces * at_once
    return first, min(loops.size_3, first + at_once)


@task
def look_up(args: LookUp, thread: int, threads: int) -> None:
    """A function of bytes by its table of 256 results, as in ONNX Runtime and XNNPACK: any function takes a few shuffles."""
    count, table = args.loops.columns, args.table
    units, in_line, pieces = _units(args.loops)
    for unit in range(units * thread // threads, units * (thread + 1) // threads):
        line, first = unit // in_line, unit % pieces * _PIECE
        x, out = args.x + _offset(args.loops, args.x_strides, line), args.out + _offset(args.loops, args.out_strides, line)
        begin, end = _rows_of(args.loops, unit % in_line, pieces)
        for row in range(begin, end):
            x_row, out_row = x + row * args.x_strides.stride_3, out + row * args.out_strides.stride_3
            _look_up_row(x_row, out_row, table, first, min(count, first + _PIECE))


@inline
def _quantized(scale: OutputScale, value: Any) -> Any:
    """Real numbers as int32 in the bounds of 8 bits."""
    # Saturated as float32: a conversion of what int32 does not hold would give its least.
    low, high = splat_f32(scale.lowest), splat_f32(scale.highest)
    rounded = add(round_to_even(divide(value, splat_f32(scale.scale))), splat_f32(scale.zero_point))
    return to_i32(minimum(maximum(rounded, low), high))


@inline
def _real(scale: InputScale, value: Any) -> Any:
    """Bytes as real numbers."""
    unsigned = bit_xor(value, splat_i32(scale.sign))
    return multiply(subtract(to_f32(unsigned), splat_f32(scale.zero_point)), splat_f32(scale.scale))


@inline
def _bytes(address: int, left: int) -> Any:
    return load_u8(address) if left >= 16 else load_u8_masked(address, left)


@inline
def _binary_row(args: Binary, a: int, b: int, out: int, first: int, stop: int) -> None:
    # An operand that is the same along a row is broadcast: its rows have one element.
    a_in_row, b_in_row, is_multiplication = args.a_strides.in_row, args.b_strides.in_row, args.is_multiplication
    for offset in range(first, stop, 16):
        left = stop - offset
        x = _real(args.a_scale, _bytes(a + offset, left) if a_in_row else broadcast_u8(a))
        y = _real(args.b_scale, _bytes(b + offset, left) if b_in_row else broadcast_u8(b))
        result = multiply(x, y) if is_multiplication else add(x, y)
        store_i8_masked(out + offset, _quantized(args.out_scale, result), left)


@task
def binary(args: Binary, thread: int, threads: int) -> None:
    """Sum or product of tensors that broadcast: each thread has a range of pieces of rows."""
    loops = args.loops
    count = loops.columns
    units, in_line, pieces = _units(loops)
    for unit in range(units * thread // threads, units * (thread + 1) // threads):
        line, first = unit // in_line, unit % pieces * _PIECE
        a, b = args.a + _offset(loops, args.a_strides, line), args.b + _offset(loops, args.b_strides, line)
        out, stop = args.out + _offset(loops, args.out_strides, line), min(count, first + _PIECE)
        begin, end = _rows_of(loops, unit % in_line, pieces)
        for row in range(begin, end):
            a_row, b_row = a + row * args.a_strides.stride_3, b + row * args.b_strides.stride_3
            _binary_row(args, a_row, b_row, out + row * args.out_strides.stride_3, first, stop)


@inline
def _sum_of_row(row: int, count: int, sign: int) -> int:
    """Of unsigned bytes."""
    total, signs = zero_i32(), splat_i32(sign)
    for offset in range(0, count, 16):
        total = add(total, bit_xor(load_u8_masked(row + offset, count - offset), signs))
    # Behind the last element zeros are loaded, which exclusive or made the sign.
    found: int = reduce_add_i32(total)
    return found - sign * ((count + 15) // 16 * 16 - count)


@inline
def _mean(args: GlobalAveragePool, sums: Any) -> Any:
    """Sums of unsigned bytes as 8-bit means. Sums are integers: exact, whatever their order."""
    pixels = np.float32(args.pixels)
    centered = subtract(to_f32(sums), splat_f32(pixels * args.x_scale.zero_point))
    return _quantized(args.out_scale, divide(multiply(centered, splat_f32(args.x_scale.scale)), splat_f32(pixels)))


@task
def global_average_pool(args: GlobalAveragePool, thread: int, threads: int) -> None:
    """Mean of each channel: each thread has a range of groups of 16 channels."""
    channels, pixels, pixel, sign = args.channels, args.pixels, args.pixel_stride, args.x_scale.sign
    # Sixteen channels are a vector of NHWC; of NCHW they are sixteen rows, each summed by vectors of its own.
    groups = (channels + 15) // 16
    units = args.samples * groups
    for unit in range(units * thread // threads, units * (thread + 1) // threads):
        sample, first = unit // groups, unit % groups * 16
        left = channels - first
        x = args.x + sample * channels * pixels + first * args.channel_stride
        out = args.out + sample * channels + first
        if args.channel_stride == 1:
            total = zero_i32()
            for index in range(pixels):
                total = add(total, bit_xor(load_u8_masked(x + index * pixel, left), splat_i32(sign)))
            store_i8_masked(out, _mean(args, total), left)
        else:
            for channel in range(min(left, 16)):
                row_sum = _sum_of_row(x + channel * pixels, pixels, sign)
                store_i8_masked(out + channel, _mean(args, splat_i32(row_sum)), 1)


@inline
def _average_row(args: AveragePool, source: int, target: int, row: int) -> None:
    """A row of windows of a sample at ``source``."""
    width, channels = args.w.size, args.channels
    top = row * args.h.stride - args.h.pad
    first_h, stop_h = taps_within(args.h, top)
    for column in range(args.w.out_size):
        begin = column * args.w.stride - args.w.pad
        first_w, stop_w = taps_within(args.w, begin)
        # Counts of both axes: windows at edges have fewer elements, or count padding, as the node says.
        count = splat_f32(read_f32(args.row_counts + row * 4) * read_f32(args.column_counts + column * 4))
        for channel in range(0, channels, 16):
            left, total = channels - channel, zero_f32()
            for h in range(first_h, stop_h):
                for w in range(first_w, stop_w):
                    pixel = (top + h * args.h.dilation) * width + begin + w * args.w.dilation
                    total = add(total, _real(args.x_scale, _bytes(source + pixel * channels + channel, left)))
            store_i8_masked(target + column * channels + channel, _quantized(args.out_scale, divide(total, count)), left)


@task
def average_pool_nhwc(args: AveragePool, thread: int, threads: int) -> None:
    """Means of windows of NHWC: each thread has a range of output rows.

    Real numbers are added: of integers, the zero points of the taps within the input would have to be counted.
    """
    rows, channels = args.h.out_size, args.channels
    lines = args.samples * rows
    for line in range(lines * thread // threads, lines * (thread + 1) // threads):
        source = args.x + line // rows * args.h.size * args.w.size * channels
        _average_row(args, source, args.out + line * args.w.out_size * channels, line % rows)


@inline
def _floats(scale: InputScale, address: int, left: int) -> Any:
    """Unsigned bytes as float32; zeros behind the last."""
    unsigned = bit_xor(load_u8_masked(address, left), splat_i32(scale.sign))
    return mask_lanes(to_f32(unsigned), left)


@inline
def _softmax_row(args: SoftmaxRows, x: int, out: int, count: int) -> None:
    zero, scale = splat_f32(args.x_scale.zero_point), splat_f32(args.x_scale.scale)
    # The maximum of integers: scales are positive, so it is that of the real numbers. Lanes behind the last are 0, the least.
    largest = zero_f32()
    for offset in range(0, count, 16):
        largest = maximum(largest, _floats(args.x_scale, x + offset, count - offset))
    top = multiply(subtract(splat_f32(reduce_max(largest)), zero), scale)
    total = zero_f32()
    for offset in range(0, count, 16):
        value = multiply(subtract(_floats(args.x_scale, x + offset, count - offset), zero), scale)
        total = add(total, mask_lanes(exp_nonpositive(subtract(value, top)), count - offset))
    divisor = splat_f32(reduce_add(total))
    # Exponentials are computed again rather than kept: a row of bytes needs no workspace so.
    for offset in range(0, count, 16):
        value = multiply(subtract(_floats(args.x_scale, x + offset, count - offset), zero), scale)
        share = divide(exp_nonpositive(subtract(value, top)), divisor)
        store_i8_masked(out + offset, _quantized(args.out_scale, share), count - offset)


@task
def softmax_rows(args: SoftmaxRows, thread: int, threads: int) -> None:
    """Softmax along the last axis: each thread has a range of rows."""
    rows, count = args.rows, args.columns
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        _softmax_row(args, args.x + row * count, args.out + row * count, count)


@inline
def _softmax_columns(args: SoftmaxColumns, x: int, out: int, left: int) -> None:
    """Up to 16 columns of a matrix, a lane each."""
    # Three passes down the columns, without workspace: a matrix of bytes is small.
    count, step = args.rows, args.columns
    zero, scale = splat_f32(args.x_scale.zero_point), splat_f32(args.x_scale.scale)
    largest = zero_f32()
    for index in range(count):
        largest = maximum(largest, _floats(args.x_scale, x + index * step, left))
    top, total = multiply(subtract(largest, zero), scale), zero_f32()
    for index in range(count):
        value = multiply(subtract(_floats(args.x_scale, x + index * step, left), zero), scale)
        total = add(total, exp_nonpositive(subtract(value, top)))
    for index in range(count):
        value = multiply(subtract(_floats(args.x_scale, x + index * step, left), zero), scale)
        share = divide(exp_nonpositive(subtract(value, top)), total)
        store_i8_masked(out + index * step, _quantized(args.out_scale, share), left)


@task
def softmax_columns(args: SoftmaxColumns, thread: int, threads: int) -> None:
    """Softmax along another axis: each thread has a range of groups of 16 columns."""
    rows, columns = args.rows, args.columns
    pieces = (columns + 15) // 16
    units = args.matrices * pieces
    for unit in range(units * thread // threads, units * (thread + 1) // threads):
        first = unit % pieces * 16
        offset = unit // pieces * rows * columns + first
        _softmax_columns(args, args.x + offset, args.out + offset, columns - first)
