"""Pictures whose rows and columns are weighted sums of others: Resize that is linear or cubic, of float32 and of bytes."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument
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
from ort_sdk_cpu.simd.bytes import store_i8_first
from ort_sdk_cpu.simd.memory import (
    emit_load,
    load_f32,
    load_f32_first,
    load_i32_first,
    load_u8_first,
    read_f32,
    store_f32,
    store_f32_first,
)
from ort_sdk_cpu.simd.vector_types import F32, I32, LANES, VF32, call, f32x16, i32x16, operation

__all__ = ["interpolated_byte_pixels", "interpolated_pixels", "interpolated_planes"]

_I64 = ir.IntType(64)
_FIRST_ROWS, _FIRST_COLUMNS = 9, 12
"""Arguments about what makes rows and columns: addresses of indices and weights, and how many of them there are."""
_FLIP = 15
_LARGEST_BYTE = 255


@operation(types.intp, types.intp)
def _index(builder: Any, address: Any) -> Any:
    return builder.sext(emit_load(builder, address, I32), _I64)


@operation(f32x16, types.intp, i32x16)
def _picked(builder: Any, base: Any, indices: Any) -> Any:
    """Sixteen float32 of a row."""
    wide = ir.VectorType(_I64, LANES)
    whole = ir.Constant(ir.VectorType(I32, LANES), [0] * LANES)
    first = builder.insert_element(ir.Constant(wide, ir.Undefined), base, ir.Constant(I32, 0))
    bases = builder.shuffle_vector(first, ir.Constant(wide, ir.Undefined), whole)
    places = builder.add(bases, builder.shl(builder.sext(indices, wide), ir.Constant(wide, [2] * LANES)))
    pointers = builder.inttoptr(places, ir.VectorType(F32.as_pointer(), LANES))
    mask = ir.Constant(ir.VectorType(ir.IntType(1), LANES), [1] * LANES)
    return call(builder, "llvm.masked.gather.v16f32.v16p0", VF32, pointers, ir.Constant(I32, 4), mask, ir.Constant(VF32, None))


@inner
def _mix(target: int, source: int, pitch: int, taps: int, weights: int, count: int, width: int) -> None:
    """The weighted sum of ``count`` rows, which lie ``pitch`` bytes apart."""
    whole, one, two = width // 16 * 16, splat_f32(read_f32(weights)), splat_f32(read_f32(weights + (count > 1) * 4))
    first, second = source + _index(taps) * pitch, source + _index(taps + (count > 1) * 4) * pitch
    for element in range(0, whole, 16):
        total = multiply(load_f32(first + element * 4), one)
        if count > 1:
            total = fused_multiply_add(load_f32(second + element * 4), two, total)
        for tap in range(2, count):
            place = source + _index(taps + tap * 4) * pitch + element * 4
            total = fused_multiply_add(load_f32(place), splat_f32(read_f32(weights + tap * 4)), total)
        store_f32(target + element * 4, total)
    if whole < width:
        left = width - whole
        total = multiply(load_f32_first(first + whole * 4, left), one)
        if count > 1:
            total = fused_multiply_add(load_f32_first(second + whole * 4, left), two, total)
        for tap in range(2, count):
            place = source + _index(taps + tap * 4) * pitch + whole * 4
            total = fused_multiply_add(load_f32_first(place, left), splat_f32(read_f32(weights + tap * 4)), total)
        store_f32_first(target + whole * 4, total, left)


@inner
def _row(record: int, line: int, target: int) -> None:
    """Make a row out of rows of the input."""
    height, out_height = argument(record, 4), argument(record, 6)
    width, count = argument(record, 5) * argument(record, 8), argument(record, _FIRST_ROWS + 2)
    source, offset = argument(record, 0) + line // out_height * height * width * 4, line % out_height * count * 4
    taps, weights = argument(record, _FIRST_ROWS) + offset, argument(record, _FIRST_ROWS + 1) + offset
    _mix(target, source, width * 4, taps, weights, count, width)


@inner
def _room(record: int, part: int) -> int:
    place: int = argument(record, 2) + part * ((argument(record, 5) * argument(record, 8) + 31) // 16 * 64)
    return place


@task
def interpolated_pixels(record: int, part: int, parts: int) -> None:
    """Pictures with channels last.

    Arguments: addresses of the input, the output and working memory, which has room for a row and a vector for each part;
    pictures, height and width of the input, of the output, channels; addresses of int32 indices and float32 weights of what makes
    each row, how many there are, and the same for columns.
    """
    lines, width, channels = argument(record, 3) * argument(record, 6), argument(record, 7), argument(record, 8)
    count, row = argument(record, _FIRST_COLUMNS + 2), _room(record, part)
    for line in range(lines * part // parts, lines * (part + 1) // parts):
        target = argument(record, 1) + line * width * channels * 4
        _row(record, line, row)
        for column in range(width):
            offset = column * count * 4
            taps, weights = argument(record, _FIRST_COLUMNS) + offset, argument(record, _FIRST_COLUMNS + 1) + offset
            _mix(target + column * channels * 4, row, channels * 4, taps, weights, count, channels)


@task
def interpolated_planes(record: int, part: int, parts: int) -> None:
    """Planes of one channel; arguments as above, but of columns the first index of each comes first, then the second of each."""
    lines, width = argument(record, 3) * argument(record, 6), argument(record, 7)
    count, row = argument(record, _FIRST_COLUMNS + 2), _room(record, part)
    indices, weights = argument(record, _FIRST_COLUMNS), argument(record, _FIRST_COLUMNS + 1)
    for line in range(lines * part // parts, lines * (part + 1) // parts):
        target = argument(record, 1) + line * width * 4
        _row(record, line, row)
        for column in range(0, width, 16):
            left, place = width - column, column * 4
            total = multiply(_picked(row, load_i32_first(indices + place, left)), load_f32_first(weights + place, left))
            for _ in range(1, count):
                place += width * 4
                values = _picked(row, load_i32_first(indices + place, left))
                total = fused_multiply_add(values, load_f32_first(weights + place, left), total)
            store_f32_first(target + column * 4, total, left)


@inner
def _bytes_first(place: int, left: int, flip: int) -> Any:
    """As float32."""
    return to_f32(subtract(bit_xor(load_u8_first(place, left), splat_i32(flip)), splat_i32(flip)))


@inner
def _mix_of_bytes(target: int, source: int, pitch: int, taps: int, weights: int, count: int, width: int, flip: int) -> None:
    """The weighted sum of ``count`` rows of bytes as float32."""
    for element in range(0, width, 16):
        left = width - element
        first = _bytes_first(source + _index(taps) * pitch + element, left, flip)
        total = multiply(first, splat_f32(read_f32(weights)))
        for tap in range(1, count):
            value = _bytes_first(source + _index(taps + tap * 4) * pitch + element, left, flip)
            total = fused_multiply_add(value, splat_f32(read_f32(weights + tap * 4)), total)
        store_f32_first(target + element * 4, total, left)


@inner
def _mix_to_bytes(target: int, source: int, pitch: int, taps: int, weights: int, count: int, width: int, flip: int) -> None:
    """The same of float32 as bytes, rounded towards zero."""
    low, high = splat_f32(-flip), splat_f32(_LARGEST_BYTE - flip)
    for element in range(0, width, 16):
        left = width - element
        total = multiply(load_f32_first(source + _index(taps) * pitch + element * 4, left), splat_f32(read_f32(weights)))
        for tap in range(1, count):
            value = load_f32_first(source + _index(taps + tap * 4) * pitch + element * 4, left)
            total = fused_multiply_add(value, splat_f32(read_f32(weights + tap * 4)), total)
        store_i8_first(target + element, to_i32(minimum(high, maximum(low, total))), left)


@task
def interpolated_byte_pixels(record: int, part: int, parts: int) -> None:
    """As ``interpolated_pixels`` of bytes; behind its arguments: 128 if they are signed, else 0."""
    height, width, channels, flip = argument(record, 4), argument(record, 7), argument(record, 8), argument(record, _FLIP)
    out_height, pitch, row = argument(record, 6), argument(record, 5) * channels, _room(record, part)
    row_count, count = argument(record, _FIRST_ROWS + 2), argument(record, _FIRST_COLUMNS + 2)
    lines = argument(record, 3) * out_height
    for line in range(lines * part // parts, lines * (part + 1) // parts):
        source, offset = argument(record, 0) + line // out_height * height * pitch, line % out_height * row_count * 4
        taps, weights = argument(record, _FIRST_ROWS) + offset, argument(record, _FIRST_ROWS + 1) + offset
        _mix_of_bytes(row, source, pitch, taps, weights, row_count, pitch, flip)
        target = argument(record, 1) + line * width * channels
        for column in range(width):
            offset = column * count * 4
            taps, weights = argument(record, _FIRST_COLUMNS) + offset, argument(record, _FIRST_COLUMNS + 1) + offset
            _mix_to_bytes(target + column * channels, row, channels * 4, taps, weights, count, channels, flip)
