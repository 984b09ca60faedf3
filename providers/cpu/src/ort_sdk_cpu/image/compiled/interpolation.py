"""Linear and cubic Resize of float32 and of bytes: rows and columns of the output are weighted sums of the input's."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.image.arguments.interpolation import Interpolation, InterpolationOfBytes
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.simd.arithmetic import (
    bit_xor,
    fused_multiply_add,
    maximum,
    minimum,
    multiply,
    splat_f32,
    splat_i32,
    subtract,
    to_f32,
    to_i32,
)
from ort_sdk_cpu.simd.int8 import store_i8_masked
from ort_sdk_cpu.simd.memory import (
    emit_load,
    load_f32,
    load_f32_masked,
    load_i32_masked,
    load_u8_masked,
    read_f32,
    store_f32,
    store_f32_masked,
)
from ort_sdk_cpu.simd.vector_types import F32, I32, LANES, VF32, call, f32x16, i32x16, operation

__all__ = ["interpolate_nchw", "interpolate_nhwc", "interpolate_nhwc_bytes"]

_I64 = ir.IntType(64)
_LARGEST_BYTE = 255


@operation(types.intp, types.intp)
def _index(builder: Any, address: Any) -> Any:
    return builder.sext(emit_load(builder, address, I32), _I64)


@operation(f32x16, types.intp, i32x16)
def _gathered(builder: Any, base: Any, indices: Any) -> Any:
    """Sixteen float32 of a row."""
    wide = ir.VectorType(_I64, LANES)
    whole = ir.Constant(ir.VectorType(I32, LANES), [0] * LANES)
    first = builder.insert_element(ir.Constant(wide, ir.Undefined), base, ir.Constant(I32, 0))
    bases = builder.shuffle_vector(first, ir.Constant(wide, ir.Undefined), whole)
    addresses = builder.add(bases, builder.shl(builder.sext(indices, wide), ir.Constant(wide, [2] * LANES)))
    pointers = builder.inttoptr(addresses, ir.VectorType(F32.as_pointer(), LANES))
    mask = ir.Constant(ir.VectorType(ir.IntType(1), LANES), [1] * LANES)
    return call(builder, "llvm.masked.gather.v16f32.v16p0", VF32, pointers, ir.Constant(I32, 4), mask, ir.Constant(VF32, None))


@inline
def _mix(target: int, source: int, pitch: int, taps: int, weights: int, count: int, width: int) -> None:
    """The weighted sum of ``count`` rows, ``pitch`` bytes apart.

    The first two taps, all that linear interpolation has, are out of the loop over taps: their addresses and weights stay in
    registers along the row.
    """
    # Whole vectors first: the last one needs masks, which the loop does without.
    whole, one, two = width // 16 * 16, splat_f32(read_f32(weights)), splat_f32(read_f32(weights + (count > 1) * 4))
    first, second = source + _index(taps) * pitch, source + _index(taps + (count > 1) * 4) * pitch
    for element in range(0, whole, 16):
        total = multiply(load_f32(first + element * 4), one)
        if count > 1:
            total = fused_multiply_add(load_f32(second + element * 4), two, total)
        for tap in range(2, count):
            address = source + _index(taps + tap * 4) * pitch + element * 4
            total = fused_multiply_add(load_f32(address), splat_f32(read_f32(weights + tap * 4)), total)
        store_f32(target + element * 4, total)
    if whole < width:
        left = width - whole
        total = multiply(load_f32_masked(first + whole * 4, left), one)
        if count > 1:
            total = fused_multiply_add(load_f32_masked(second + whole * 4, left), two, total)
        for tap in range(2, count):
            address = source + _index(taps + tap * 4) * pitch + whole * 4
            total = fused_multiply_add(load_f32_masked(address, left), splat_f32(read_f32(weights + tap * 4)), total)
        store_f32_masked(target + whole * 4, total, left)


@inline
def _interpolated_row(args: Interpolation, line: int, target: int) -> None:
    """A row of the output's height and the input's width."""
    # All channels of a row are one vector loop: rows are weighted alike in each.
    width, count = args.width * args.channels, args.rows.count
    source, offset = args.x + line // args.out_height * args.height * width * 4, line % args.out_height * count * 4
    _mix(target, source, width * 4, args.rows.indices + offset, args.rows.weights + offset, count, width)


@inline
def _workspace(args: Interpolation, thread: int) -> int:
    # A vector more than the row, so that whole vectors may be stored and gathered at its end.
    row: int = args.workspace + thread * ((args.width * args.channels + 31) // 16 * 64)
    return row


@task
def interpolate_nhwc(args: Interpolation, thread: int, threads: int) -> None:
    """NHWC: each thread has a range of output rows.

    Rows first, as separable filters do: a pixel takes rows + columns operations in place of rows * columns, and the row between
    both is still in the first cache.
    """
    lines, width, channels = args.images * args.out_height, args.out_width, args.channels
    count, row = args.columns.count, _workspace(args, thread)
    for line in range(lines * thread // threads, lines * (thread + 1) // threads):
        target = args.out + line * width * channels * 4
        _interpolated_row(args, line, row)
        for column in range(width):
            offset = column * count * 4
            taps, weights = args.columns.indices + offset, args.columns.weights + offset
            _mix(target + column * channels * 4, row, channels * 4, taps, weights, count, channels)


@task
def interpolate_nchw(args: Interpolation, thread: int, threads: int) -> None:
    """NCHW: vectors are along columns, so their tables are (taps, columns)."""
    lines, width, count = args.images * args.out_height, args.out_width, args.columns.count
    row = _workspace(args, thread)
    for line in range(lines * thread // threads, lines * (thread + 1) // threads):
        target = args.out + line * width * 4
        _interpolated_row(args, line, row)
        for column in range(0, width, 16):
            # A gather per tap: neighbours in the output are at any distance in the input, whose row is in the first cache.
            left, indices, weights = width - column, args.columns.indices + column * 4, args.columns.weights + column * 4
            total = multiply(_gathered(row, load_i32_masked(indices, left)), load_f32_masked(weights, left))
            for tap in range(1, count):
                offset = tap * width * 4
                values = _gathered(row, load_i32_masked(indices + offset, left))
                total = fused_multiply_add(values, load_f32_masked(weights + offset, left), total)
            store_f32_masked(target + column * 4, total, left)


@inline
def _bytes_first(address: int, left: int, sign: int) -> Any:
    """As float32."""
    return to_f32(subtract(bit_xor(load_u8_masked(address, left), splat_i32(sign)), splat_i32(sign)))


@inline
def _mix_of_bytes(target: int, source: int, pitch: int, taps: int, weights: int, count: int, width: int, sign: int) -> None:
    """The weighted sum of ``count`` rows of bytes as float32."""
    for element in range(0, width, 16):
        left = width - element
        # Bytes are widened once for all columns that read the row.
        first = _bytes_first(source + _index(taps) * pitch + element, left, sign)
        total = multiply(first, splat_f32(read_f32(weights)))
        for tap in range(1, count):
            value = _bytes_first(source + _index(taps + tap * 4) * pitch + element, left, sign)
            total = fused_multiply_add(value, splat_f32(read_f32(weights + tap * 4)), total)
        store_f32_masked(target + element * 4, total, left)


@inline
def _mix_to_bytes(target: int, source: int, pitch: int, taps: int, weights: int, count: int, width: int, sign: int) -> None:
    """The same of float32 as bytes, rounded towards zero as NumPy's cast does, within the type's bounds."""
    # Cubic weights may be negative, so that sums leave the type's range.
    low, high = splat_f32(-sign), splat_f32(_LARGEST_BYTE - sign)
    for element in range(0, width, 16):
        left = width - element
        total = multiply(load_f32_masked(source + _index(taps) * pitch + element * 4, left), splat_f32(read_f32(weights)))
        for tap in range(1, count):
            value = load_f32_masked(source + _index(taps + tap * 4) * pitch + element * 4, left)
            total = fused_multiply_add(value, splat_f32(read_f32(weights + tap * 4)), total)
        store_i8_masked(target + element, to_i32(minimum(high, maximum(low, total))), left)


@task
def interpolate_nhwc_bytes(args: InterpolationOfBytes, thread: int, threads: int) -> None:
    """NHWC of bytes. The row between both passes is float32, so that a result is rounded once."""
    width, channels, sign, out_height = args.out_width, args.channels, args.sign, args.out_height
    pitch, row, row_count, count = args.width * channels, _workspace(args, thread), args.rows.count, args.columns.count
    lines = args.images * out_height
    for line in range(lines * thread // threads, lines * (thread + 1) // threads):
        source, offset = args.x + line // out_height * args.height * pitch, line % out_height * row_count * 4
        taps, weights = args.rows.indices + offset, args.rows.weights + offset
        _mix_of_bytes(row, source, pitch, taps, weights, row_count, pitch, sign)
        target = args.out + line * width * channels
        for column in range(width):
            offset = column * count * 4
            taps, weights = args.columns.indices + offset, args.columns.weights + offset
            _mix_to_bytes(target + column * channels, row, channels * 4, taps, weights, count, channels, sign)
