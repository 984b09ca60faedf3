"""GridSample and RoiAlign of float32: images sampled at positions between pixels.

A *table* has what makes each element of a channel's output, 16 elements at a time: for each tap 16 positions in the channel
(int32, -1 for a zero in place of the element) and 16 weights. It serves all channels of an image: positions and weights take
longer to work out than to apply.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from ort_sdk_cpu.image.arguments.sampling import GridSample, RoiAlign
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, maximum, multiply, zero_f32
from ort_sdk_cpu.simd.memory import (
    broadcast_f32,
    load_f32,
    load_f32_masked,
    load_i32,
    read_f32,
    read_i32,
    read_i64,
    splat,
    store_f32,
    store_f32_masked,
    write_f32,
    write_i32,
)
from ort_sdk_cpu.simd.transpose import transpose_elements
from ort_sdk_cpu.simd.vector_types import I8, I32, LANES, VF32, VI32, call, f32x16, i32x16, operation, pointer

__all__ = ["grid_sample", "roi_align"]

_BLOCK = 256
"""Elements whose table is made at a time: that of 16 taps, cubic interpolation's, is 32 KiB and fits into the first cache."""
_VECTOR, _TAP, _TILE = 16, 128, 1024
"""Elements that share an entry of the table; bytes of an entry, and of such elements of as many channels."""
_NEAREST, _LINEAR = 0, 1
_ZEROS, _BORDER = 0, 1
_ZERO, _HALF, _ONE, _TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)
_A = np.float32(-0.75)
_WIDE = ir.VectorType(ir.IntType(64), LANES)
_POINTERS = ir.VectorType(I8.as_pointer(), LANES)


@operation(f32x16, types.intp, i32x16)
def _elements(builder: Any, plane: Any, positions: Any) -> Any:
    """Elements at 16 positions; zeros for negative ones."""
    zeros = ir.Constant(VF32, None)
    is_there = builder.icmp_signed(">=", positions, ir.Constant(VI32, None))
    # The generic gather has pointers of 64 bits, two vectors of them: the instruction takes a base and 32-bit offsets.
    if instruction_set() >= InstructionSet.AVX512:
        name = "llvm.x86.avx512.mask.gather.dps.512"
        return call(builder, name, VF32, zeros, pointer(builder, plane, I8), positions, is_there, ir.Constant(I32, 4))
    steps = builder.mul(builder.sext(positions, _WIDE), ir.Constant(_WIDE, [4] * LANES))
    pointers = builder.inttoptr(builder.add(splat(builder, plane), steps), _POINTERS)
    return call(builder, "llvm.masked.gather.v16f32.v16p0", VF32, pointers, ir.Constant(I32, 4), is_there, zeros)


@inline
def _entry(table: int, taps: int, element: int, tap: int) -> int:
    """Address of the position of an element's tap; its weight is 64 bytes behind."""
    return table + (element // _VECTOR * taps + tap) * _TAP + element % _VECTOR * 4


@inline
def _put(table: int, taps: int, element: int, tap: int, position: int, weight: Any) -> None:
    entry = _entry(table, taps, element, tap)
    write_i32(entry, position)
    write_f32(entry + 64, weight)


@inline
def _weigh(table: int, taps: int, plane: int, out: int, count: int, is_largest: bool) -> None:
    """``count`` elements of one plane's output: sums of weighted elements, or the largest of them."""
    for element in range(0, count, _VECTOR):
        # Taps are the inner loop: sums stay in a register, and the table is read in order.
        entries = table + element // _VECTOR * taps * _TAP
        total = multiply(_elements(plane, load_i32(entries)), load_f32(entries + 64))
        for entry in range(entries + _TAP, entries + taps * _TAP, _TAP):
            values, weights = _elements(plane, load_i32(entry)), load_f32(entry + 64)
            total = maximum(multiply(values, weights), total) if is_largest else fused_multiply_add(values, weights, total)
        if count - element >= _VECTOR:
            store_f32(out + element * 4, total)
        else:
            store_f32_masked(out + element * 4, total, count - element)


@inline
def _weighted(entry: int, taps: int, x: int, step: int, left: int, is_largest: bool) -> Any:
    """Up to 16 channels of one element, whose pixels are ``step`` bytes apart."""
    total = zero_f32()
    for tap in range(taps):
        position, weight = read_i32(entry + tap * _TAP), broadcast_f32(entry + tap * _TAP + 64)
        # A tap outside is zero in all channels: its pixel is not read.
        if position >= 0:
            values = load_f32_masked(x + position * step, left)
            weighted = fused_multiply_add(values, weight, zero_f32() if is_largest else total)
            total = maximum(weighted, total) if is_largest and tap else weighted
    return total


@inline
def _weigh_pixels(
    table: int, taps: int, x: int, channels: int, out: int, step: int, count: int, tile: int, is_largest: bool
) -> None:
    """The same for all channels of NHWC, which are ``step`` bytes apart in the output: tiles of 16 by 16 are transposed."""
    for element in range(0, count, _VECTOR):
        entries, elements = table + element // _VECTOR * taps * _TAP, min(count - element, _VECTOR)
        for channel in range(0, channels, _VECTOR):
            left = min(channels - channel, _VECTOR)
            for index in range(elements):
                found = _weighted(entries + index * 4, taps, x + channel * 4, channels * 4, left, is_largest)
                store_f32(tile + index * 64, found)
            transpose_elements(tile, 64, elements, left, out + channel * step + element * 4, step)


@inline
def _all_channels(
    args: GridSample | RoiAlign, table: int, taps: int, sample: int, out: int, step: int, count: int, is_largest: bool
) -> None:
    """``count`` elements of each channel; a tile of 1 KiB is before the table."""
    channels, area = args.channels, args.height * args.width
    x = args.x + sample * channels * area * 4
    if args.is_channels_last != 0:
        _weigh_pixels(table, taps, x, channels, out, step, count, table - _TILE, is_largest)
        return
    for channel in range(channels):
        _weigh(table, taps, x + channel * area * 4, out + channel * step, count, is_largest)


@inline
def _pixels(position: Any, size: int, align: bool) -> Any:
    """A position in pixels of a coordinate from -1 to 1; NaN is outside."""
    from_edge = position + _ONE
    scaled = from_edge * np.float32((size - 1) / 2) if align else (from_edge * np.float32(size) - _ONE) / _TWO
    return scaled if scaled == scaled else -_ONE  # noqa: PLR0124 - not a number


@inline
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
    # Reflection is periodic, with twice the size: one period is left, and its second half goes back.
    away = abs(position - low)
    away -= np.floor(away / (_TWO * span)) * (_TWO * span)
    return min(away, _TWO * span - away) + low


@inline
def _pixel(position: Any, size: int, padding: int) -> int:
    """The pixel at a whole position; -1 for a zero."""
    last = np.float32(size - 1)
    # Compared as float32: infinity has no integer.
    if padding == _ZEROS and not _ZERO <= position <= last:
        return -1
    return int(min(max(position, _ZERO), last))


@inline
def _cubic(distance: Any, tap: int) -> Any:
    """Weight of one of four pixels, the second of which is ``distance`` before the position."""
    # Keys (1981) with a = -0.75, as in PyTorch and OpenCV: one polynomial within a pixel, one for the next.
    if 0 < tap < 3:
        d = distance if tap == 1 else _ONE - distance
        return ((_A + _TWO) * d - (_A + np.float32(3))) * d * d + _ONE
    d = distance + _ONE if tap == 0 else _TWO - distance
    return ((_A * d - np.float32(5) * _A) * d + np.float32(8) * _A) * d - np.float32(4) * _A


@inline
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


@inline
def _put_pixel(table: int, taps: int, point: int, tap: int, width: int, row: Any, column: Any) -> None:
    """What a row's and a column's tap make together."""
    position = row[0] * width + column[0] if row[0] >= 0 and column[0] >= 0 else -1
    _put(table, taps, point, tap, position, row[1] * column[1])


@inline
def _put_point(args: GridSample, table: int, point: int, grid: int, reach: int) -> None:
    """The table's entries of one point of the grid."""
    height, width, mode = args.height, args.width, args.mode
    padding, align = args.padding, args.aligns_corners != 0
    x, y = _pixels(read_f32(grid), width, align), _pixels(read_f32(grid + 4), height, align)
    for column_tap in range(0, reach, 2):
        column = _tap(x, column_tap, width, mode, padding, align)
        following = _tap(x, column_tap + 1, width, mode, padding, align)
        for row_tap in range(reach):
            row, tap = _tap(y, row_tap, height, mode, padding, align), row_tap * reach + column_tap
            _put_pixel(table, reach * reach, point, tap, width, row, column)
            if reach > 1:
                _put_pixel(table, reach * reach, point, tap + 1, width, row, following)


@inline
def _clear(table: int, taps: int, first: int) -> None:
    """Entries of the elements that fill the last vector."""
    # Lanes behind the last element are computed like others, with zeros: no load needs a mask.
    for element in range(first, -(-first // _VECTOR) * _VECTOR):
        for tap in range(taps):
            _put(table, taps, element, tap, -1, _ZERO)


@task
def grid_sample(args: GridSample, thread: int, threads: int) -> None:
    """Images at the positions of a grid: each thread has a range of blocks of points."""
    channels, points, mode = args.channels, args.points, args.mode
    table = args.workspace + thread * (_BLOCK * _TAP + _TILE) + _TILE
    reach = 1 if mode == _NEAREST else 2 * mode
    blocks = (points + _BLOCK - 1) // _BLOCK
    units = args.samples * blocks
    for unit in range(units * thread // threads, units * (thread + 1) // threads):
        # The table of a block is used for all channels while it is in the first cache.
        sample, first = unit // blocks, unit % blocks * _BLOCK
        count = min(points - first, _BLOCK)
        grid = args.grid + (sample * points + first) * 8
        for point in range(count):
            _put_point(args, table, point, grid + point * 8, reach)
        _clear(table, reach * reach, count)
        out = args.out + (sample * channels * points + first) * 4
        _all_channels(args, table, reach * reach, sample, out, points * 4, count, False)


@inline
def _axis_tap(start: Any, step: Any, sample: int, per_bin: int, size: int, tap: int) -> tuple[int, Any]:
    """Pixel and weight on one side of a sample of a region along one axis."""
    index, within = sample // per_bin, sample % per_bin
    at = start + np.float32(index) * step + (np.float32(within) + _HALF) * step / np.float32(per_bin)
    # As in Caffe2's RoIAlign: up to a pixel outside is clamped, what is further out counts as zero.
    if not -_ONE <= at <= np.float32(size):
        return 0, _ZERO
    at = min(max(at, _ZERO), np.float32(size - 1))
    low = np.floor(at)
    pixel = min(int(low) + tap, size - 1)
    return pixel, at - low if tap else _ONE - (at - low)


@inline
def _put_region(args: RoiAlign, table: int, region: int, down: int, across: int) -> None:
    """The table of a region's bins, with so many samples in each."""
    height, width, rows, columns = args.height, args.width, args.out_height, args.out_width
    left, top = read_f32(region), read_f32(region + 4)
    row_step, column_step = read_f32(region + 12) / np.float32(rows), read_f32(region + 8) / np.float32(columns)
    taps = 4 * down * across
    # The average is part of the weights: one multiplication per tap for all channels.
    share = _ONE / np.float32(down * across) if args.is_average else _ONE
    for index in range(rows * columns):
        tap = 0
        for y in range(2 * down):
            row, row_weight = _axis_tap(top, row_step, index // columns * down + y // 2, down, height, y % 2)
            for x in range(2 * across):
                column, weight = _axis_tap(left, column_step, index % columns * across + x // 2, across, width, x % 2)
                _put(table, taps, index, tap, row * width + column, row_weight * weight * share)
                tap += 1
    _clear(table, taps, rows * columns)


@inline
def _samples(extent: Any, bins: int, ratio: int) -> int:
    return ratio if ratio > 0 else max(int(np.ceil(extent / np.float32(bins))), 0)


@task
def roi_align(args: RoiAlign, thread: int, threads: int) -> None:
    """Bins of regions of images (He et al. 2017, Mask R-CNN): each thread has a range of regions."""
    table, channels = args.workspace + thread * args.workspace_bytes + _TILE, args.channels
    rows, columns, ratio = args.out_height, args.out_width, args.sampling_ratio
    bins, is_largest = rows * columns, args.is_average == 0
    for index in range(args.count * thread // threads, args.count * (thread + 1) // threads):
        region = args.regions + index * 16
        down, across = _samples(read_f32(region + 12), rows, ratio), _samples(read_f32(region + 8), columns, ratio)
        out = args.out + index * channels * bins * 4
        if down and across:
            _put_region(args, table, region, down, across)
            sample = read_i64(args.batch_indices + index * 8)
            _all_channels(args, table, 4 * down * across, sample, out, bins * 4, bins, is_largest)
        else:
            for element in range(channels * bins):
                write_f32(out + element * 4, _ZERO)
