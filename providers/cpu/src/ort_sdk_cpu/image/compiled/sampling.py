"""Elements of float32 planes weighted and added, or compared: pictures sampled at positions between pixels.

A *table* tells what makes each element of a plane's output, 16 elements at a time: for each tap 16 positions in the plane (int32,
-1 for a zero in place of the element) and 16 weights. It serves all planes of a picture.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set
from ort_sdk_cpu.simd.arguments import argument, number
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, maximum, multiply, zero_f32
from ort_sdk_cpu.simd.memory import (
    broadcast_f32,
    load_f32,
    load_f32_first,
    load_i32,
    read_f32,
    read_i32,
    splat,
    store_f32,
    store_f32_first,
    write_f32,
    write_i32,
)
from ort_sdk_cpu.simd.transpose import transpose_elements
from ort_sdk_cpu.simd.vector_types import I8, I32, LANES, VF32, VI32, call, f32x16, i32x16, operation, pointer

__all__ = ["grid_sample", "roi_align"]

_BLOCK = 256
"""Elements whose table is made at a time: that of 16 taps fits into the first cache."""
_VECTOR, _TAP, _TILE = 16, 128, 1024
"""Elements that share an entry of the table; bytes of an entry, and of such elements of as many channels."""
_NEAREST, _LINEAR = 0, 1
_ZEROS, _BORDER = 0, 1
_ZERO, _HALF, _ONE, _TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)
_A = np.float32(-0.75)
_WIDE = ir.VectorType(ir.IntType(64), LANES)
_PLACES = ir.VectorType(I8.as_pointer(), LANES)


@operation(f32x16, types.intp, i32x16)
def _elements(builder: Any, plane: Any, positions: Any) -> Any:
    """Elements at 16 positions; zeros for negative ones."""
    zeros = ir.Constant(VF32, None)
    is_there = builder.icmp_signed(">=", positions, ir.Constant(VI32, None))
    if instruction_set() >= InstructionSet.AVX512:
        name = "llvm.x86.avx512.mask.gather.dps.512"
        return call(builder, name, VF32, zeros, pointer(builder, plane, I8), positions, is_there, ir.Constant(I32, 4))
    steps = builder.mul(builder.sext(positions, _WIDE), ir.Constant(_WIDE, [4] * LANES))
    places = builder.inttoptr(builder.add(splat(builder, plane), steps), _PLACES)
    return call(builder, "llvm.masked.gather.v16f32.v16p0", VF32, places, ir.Constant(I32, 4), is_there, zeros)


@inner
def _entry(table: int, taps: int, element: int, tap: int) -> int:
    """Where the position of an element's tap is; its weight lies 64 bytes behind."""
    return table + (element // _VECTOR * taps + tap) * _TAP + element % _VECTOR * 4


@inner
def _put(table: int, taps: int, element: int, tap: int, position: int, weight: Any) -> None:
    place = _entry(table, taps, element, tap)
    write_i32(place, position)
    write_f32(place + 64, weight)


@inner
def _weigh(table: int, taps: int, plane: int, out: int, count: int, is_largest: bool) -> None:
    """``count`` elements of one plane's output: sums of weighted elements, or the largest of them."""
    for element in range(0, count, _VECTOR):
        entries = table + element // _VECTOR * taps * _TAP
        total = multiply(_elements(plane, load_i32(entries)), load_f32(entries + 64))
        for entry in range(entries + _TAP, entries + taps * _TAP, _TAP):
            values, weights = _elements(plane, load_i32(entry)), load_f32(entry + 64)
            total = maximum(multiply(values, weights), total) if is_largest else fused_multiply_add(values, weights, total)
        if count - element >= _VECTOR:
            store_f32(out + element * 4, total)
        else:
            store_f32_first(out + element * 4, total, count - element)


@inner
def _weighted(entry: int, taps: int, x: int, step: int, left: int, is_largest: bool) -> Any:
    """Up to 16 channels of one element, whose pixels lie ``step`` bytes apart."""
    total = zero_f32()
    for tap in range(taps):
        position, weight = read_i32(entry + tap * _TAP), broadcast_f32(entry + tap * _TAP + 64)
        if position >= 0:
            values = load_f32_first(x + position * step, left)
            weighted = fused_multiply_add(values, weight, zero_f32() if is_largest else total)
            total = maximum(weighted, total) if is_largest and tap else weighted
    return total


@inner
def _weigh_pixels(
    table: int, taps: int, x: int, channels: int, out: int, step: int, count: int, tile: int, is_largest: bool
) -> None:
    """The same for all channels of a picture, which lie side by side there and ``step`` bytes apart in the output."""
    for element in range(0, count, _VECTOR):
        entries, places = table + element // _VECTOR * taps * _TAP, min(count - element, _VECTOR)
        for channel in range(0, channels, _VECTOR):
            left = min(channels - channel, _VECTOR)
            for place in range(places):
                found = _weighted(entries + place * 4, taps, x + channel * 4, channels * 4, left, is_largest)
                store_f32(tile + place * 64, found)
            transpose_elements(tile, 64, places, left, out + channel * step + element * 4, step)


@inner
def _all_channels(
    record: int, table: int, taps: int, sample: int, out: int, step: int, count: int, last: bool, is_largest: bool
) -> None:
    """``count`` elements of each channel; a tile of 1 KiB lies before the table."""
    channels, area = argument(record, 5), argument(record, 6) * argument(record, 7)
    x = argument(record, 0) + sample * channels * area * 4
    if last:
        _weigh_pixels(table, taps, x, channels, out, step, count, table - _TILE, is_largest)
        return
    for channel in range(channels):
        _weigh(table, taps, x + channel * area * 4, out + channel * step, count, is_largest)


@inner
def _pixels(position: Any, size: int, align: bool) -> Any:
    """A position in pixels of a coordinate from -1 to 1; NaN is outside."""
    from_edge = position + _ONE
    scaled = from_edge * np.float32((size - 1) / 2) if align else (from_edge * np.float32(size) - _ONE) / _TWO
    return scaled if scaled == scaled else -_ONE  # noqa: PLR0124 - not a number


@inner
def _padded(position: Any, size: int, padding: int, align: bool) -> Any:
    """A position brought inside by border or reflection."""
    if padding == _ZEROS:
        return position
    last = np.float32(size - 1)
    if padding == _BORDER:
        return min(max(position, _ZERO), last)
    low, span = (_ZERO, last) if align else (-_HALF, np.float32(size))
    if span == _ZERO:
        return _ZERO
    away = abs(position - low)
    away -= np.floor(away / (_TWO * span)) * (_TWO * span)
    return min(away, _TWO * span - away) + low


@inner
def _pixel(position: Any, size: int, padding: int) -> int:
    """The pixel at a whole position; -1 for a zero."""
    last = np.float32(size - 1)
    if padding == _ZEROS and not _ZERO <= position <= last:
        return -1
    return int(min(max(position, _ZERO), last))


@inner
def _cubic(distance: Any, tap: int) -> Any:
    """Weight of one of four pixels, the second of which is ``distance`` before the position."""
    if 0 < tap < 3:
        d = distance if tap == 1 else _ONE - distance
        return ((_A + _TWO) * d - (_A + np.float32(3))) * d * d + _ONE
    d = distance + _ONE if tap == 0 else _TWO - distance
    return ((_A * d - np.float32(5) * _A) * d + np.float32(8) * _A) * d - np.float32(4) * _A


@inner
def _tap(position: Any, tap: int, size: int, mode: int, padding: int, align: bool) -> tuple[int, Any]:
    """Pixel and weight along one axis."""
    if mode == _NEAREST:
        return _pixel(np.rint(_padded(position, size, padding, align)), size, padding), _ONE
    if mode == _LINEAR:
        inside = _padded(position, size, padding, align)
        low = np.floor(inside)
        fraction = inside - low
        return _pixel(low + np.float32(tap), size, padding), fraction if tap else _ONE - fraction
    low = np.floor(position)
    pixel = _pixel(_padded(low + np.float32(tap - 1), size, padding, align), size, padding)
    return pixel, _cubic(position - low, tap)


@inner
def _put_pixel(table: int, taps: int, point: int, tap: int, width: int, row: Any, column: Any) -> None:
    """What a row's and a column's tap make together."""
    position = row[0] * width + column[0] if row[0] >= 0 and column[0] >= 0 else -1
    _put(table, taps, point, tap, position, row[1] * column[1])


@inner
def _put_point(record: int, table: int, point: int, grid: int, reach: int) -> None:
    """The table's entries of one point of the grid."""
    height, width, mode = argument(record, 6), argument(record, 7), argument(record, 9)
    padding, align = argument(record, 10), argument(record, 11) != 0
    x, y = _pixels(read_f32(grid), width, align), _pixels(read_f32(grid + 4), height, align)
    for column_tap in range(0, reach, 2):
        column = _tap(x, column_tap, width, mode, padding, align)
        following = _tap(x, column_tap + 1, width, mode, padding, align)
        for row_tap in range(reach):
            row, tap = _tap(y, row_tap, height, mode, padding, align), row_tap * reach + column_tap
            _put_pixel(table, reach * reach, point, tap, width, row, column)
            if reach > 1:
                _put_pixel(table, reach * reach, point, tap + 1, width, row, following)


@inner
def _clear(table: int, taps: int, first: int) -> None:
    """Entries of the elements that fill the last vector."""
    for element in range(first, -(-first // _VECTOR) * _VECTOR):
        for tap in range(taps):
            _put(table, taps, element, tap, -1, _ZERO)


@task
def grid_sample(record: int, part: int, parts: int) -> None:
    """Pictures at the positions of a grid.

    Arguments: addresses of x (samples, channels, height, width), the grid (samples, points, 2), the output (samples, channels,
    points) and working memory, 33 KiB per part; samples, channels, height, width, points; mode (0: nearest, 1: linear, 2:
    cubic); padding (0: zeros, 1: border, 2: reflection); whether corners are aligned; whether x lies channels last.
    """
    table, channels, points = (
        argument(record, 3) + part * (_BLOCK * _TAP + _TILE) + _TILE,
        argument(record, 5),
        argument(record, 8),
    )
    mode = argument(record, 9)
    reach = 1 if mode == _NEAREST else 2 * mode
    blocks = (points + _BLOCK - 1) // _BLOCK
    units = argument(record, 4) * blocks
    for unit in range(units * part // parts, units * (part + 1) // parts):
        sample, first = unit // blocks, unit % blocks * _BLOCK
        count = min(points - first, _BLOCK)
        grid = argument(record, 1) + (sample * points + first) * 8
        for point in range(count):
            _put_point(record, table, point, grid + point * 8, reach)
        _clear(table, reach * reach, count)
        out = argument(record, 2) + (sample * channels * points + first) * 4
        _all_channels(record, table, reach * reach, sample, out, points * 4, count, argument(record, 12) != 0, False)


@inner
def _axis_tap(start: Any, step: Any, sample: int, per_bin: int, size: int, tap: int) -> tuple[int, Any]:
    """Pixel and weight on one side of a sample of a region along one axis."""
    index, within = sample // per_bin, sample % per_bin
    at = start + np.float32(index) * step + (np.float32(within) + _HALF) * step / np.float32(per_bin)
    if not -_ONE <= at <= np.float32(size):
        return 0, _ZERO
    at = min(max(at, _ZERO), np.float32(size - 1))
    low = np.floor(at)
    pixel = min(int(low) + tap, size - 1)
    return pixel, at - low if tap else _ONE - (at - low)


@inner
def _put_region(record: int, table: int, region: int, down: int, across: int) -> None:
    """The table of a region's bins, with so many samples in each."""
    height, width, bins, columns = argument(record, 6), argument(record, 7), argument(record, 9), argument(record, 10)
    left, top = read_f32(region), read_f32(region + 4)
    row_step, column_step = read_f32(region + 12) / np.float32(bins), read_f32(region + 8) / np.float32(columns)
    taps = 4 * down * across
    share = number(record, 14) / np.float32(down * across) if number(record, 14) != _ZERO else _ONE
    for place in range(bins * columns):
        tap = 0
        for y in range(2 * down):
            row, row_weight = _axis_tap(top, row_step, place // columns * down + y // 2, down, height, y % 2)
            for x in range(2 * across):
                column, weight = _axis_tap(left, column_step, place % columns * across + x // 2, across, width, x % 2)
                _put(table, taps, place, tap, row * width + column, row_weight * weight * share)
                tap += 1
    _clear(table, taps, bins * columns)


@inner
def _samples(extent: Any, bins: int, ratio: int) -> int:
    return ratio if ratio > 0 else max(int(np.ceil(extent / np.float32(bins))), 0)


@task
def roi_align(record: int, part: int, parts: int) -> None:
    """Regions of pictures, sampled.

    Arguments: addresses of x (samples, channels, height, width), regions (regions, 4: left, top, width and height in pixels),
    the output (regions, channels, bins) and working memory; the regions' samples (int64, address); channels, height, width,
    regions, bins down, bins across, samples per bin along an axis (0: one per pixel), bytes of working memory per part;
    whether x lies channels last; 1 for averages, 0 for the largest.
    """
    table, channels, count = argument(record, 3) + part * argument(record, 12) + _TILE, argument(record, 5), argument(record, 8)
    bins, columns, ratio = argument(record, 9), argument(record, 10), argument(record, 11)
    places = bins * columns
    for region in range(count * part // parts, count * (part + 1) // parts):
        place = argument(record, 1) + region * 16
        down, across = _samples(read_f32(place + 12), bins, ratio), _samples(read_f32(place + 8), columns, ratio)
        sample = argument(argument(record, 4), region)
        if down and across:
            _put_region(record, table, place, down, across)
        out, is_largest = argument(record, 2) + region * channels * places * 4, number(record, 14) == _ZERO
        if down and across:
            _all_channels(
                record, table, 4 * down * across, sample, out, places * 4, places, argument(record, 13) != 0, is_largest
            )
        else:
            for element in range(channels * places):
                write_f32(out + element * 4, _ZERO)
