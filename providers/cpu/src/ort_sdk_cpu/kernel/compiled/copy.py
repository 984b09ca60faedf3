"""Copies of up to five axes between layouts, of elements of one, two and four bytes.

Elements are moved as their bits. Wider ones are rows of several of four bytes. Which task copies a pair of layouts is chosen in
``ort_sdk_cpu.kernel.layouts.strided_copy``; the names are XNNPACK's, where ``x32`` says the bits of an element.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import Task, task
from ort_sdk_cpu.kernel.arguments.copy import StridedCopy
from ort_sdk_cpu.simd.int8 import load_bytes_masked, store_bytes_masked
from ort_sdk_cpu.simd.memory import (
    emit_load,
    emit_load_masked,
    emit_store,
    load_f32_masked,
    load_i32,
    read_f32,
    read_u8,
    store_f32_masked,
    store_i32,
    write_f32,
    write_i8,
)
from ort_sdk_cpu.simd.shuffles import clamped_row_address, emit_interleave, emit_transpose_quarters
from ort_sdk_cpu.simd.transpose import emit_store_columns_masked, transpose_elements
from ort_sdk_cpu.simd.vector_types import I32, LANES, VI32, operation

__all__ = [
    "copy_elements_x32",
    "copy_rows_x8",
    "copy_rows_x32",
    "deinterleave_3_x8",
    "deinterleave_3_x32",
    "deinterleave_4_x8",
    "deinterleave_4_x32",
    "transpose_x8",
    "transpose_x16",
    "transpose_x32",
]

_BLOCK = 4096
"""Columns that a thread deinterleaves at a time: one image alone is work for all threads, and each still writes whole pages."""


def _narrow_transpose(itemsize: int) -> Any:
    """``transpose_elements`` for elements of one or two bytes.

    They are widened to 4 bytes in registers, so that one sequence of shuffles serves all widths.
    """
    narrow, suffix = ir.VectorType(ir.IntType(8 * itemsize), LANES), f"v16i{8 * itemsize}"

    def transpose(builder: Any, address: Any, stride: Any, rows: Any, count: Any, target: Any, step: Any) -> None:
        addresses = [clamped_row_address(builder, address, stride, row, rows) for row in range(LANES)]
        loaded = [builder.zext(emit_load_masked(builder, each, count, narrow, suffix), VI32) for each in addresses]
        groups = [emit_interleave(builder, loaded[start : start + 4], 4) for start in range(0, LANES, 4)]
        columns = [emit_transpose_quarters(builder, [group[lane] for group in groups]) for lane in range(4)]
        found = [builder.trunc(columns[lane % 4][lane // 4], narrow) for lane in range(LANES)]
        emit_store_columns_masked(builder, found, rows, count, target, step, suffix)

    transpose.__name__ += f"_{8 * itemsize}_bits"
    return operation(types.none, *[types.intp] * 6)(transpose)


@inline
def _addresses(args: StridedCopy, unit: int) -> tuple[int, int]:
    """Addresses in the target and in the source of an index into the first three axes."""
    # Strides may be 0 (a broadcast source) or negative (a reversed one): addresses are products, not steps.
    second, third = args.sizes.second, args.sizes.third
    i, j, k = unit // third // second, unit // third % second, unit % third
    target = i * args.target_strides.first + j * args.target_strides.second + k * args.target_strides.third
    source = i * args.source_strides.first + j * args.source_strides.second + k * args.source_strides.third
    return args.target + target, args.source + source


@inline
def _outer_size(args: StridedCopy) -> int:
    """Indices into the first three axes."""
    size: int = args.sizes.first * args.sizes.second * args.sizes.third
    return size


@inline
def _copy_row(target: int, source: int, count: int) -> None:
    # Not ``memcpy``: for short rows, a call and its choice of a method take longer than the copy.
    whole = count // 16 * 64
    for offset in range(0, whole, 64):
        store_i32(target + offset, load_i32(source + offset))
    left = count % 16
    if left:
        store_f32_masked(target + whole, load_f32_masked(source + whole, left), left)


@inline
def _copy_byte_row(target: int, source: int, count: int) -> None:
    for offset in range(0, count, 64):
        store_bytes_masked(target + offset, load_bytes_masked(source + offset, count - offset), count - offset)


@inline
def _copy_strided_row(args: StridedCopy, target: int, source: int) -> None:
    # Where neither tiles nor rows fit: broadcasts, every other element, axes of a few elements.
    to, from_ = args.target_strides.columns, args.source_strides.columns
    for column in range(args.sizes.columns):
        write_f32(target + column * to, read_f32(source + column * from_))


@inline
def _copy_whole_row(args: StridedCopy, target: int, source: int) -> None:
    _copy_row(target, source, args.sizes.columns)


@inline
def _copy_whole_byte_row(args: StridedCopy, target: int, source: int) -> None:
    _copy_byte_row(target, source, args.sizes.columns)


def _row_task(name: str, copy_row: Any) -> Task:
    """Rows copied one after the other; each thread has a range of them."""

    def copy(args: StridedCopy, thread: int, threads: int) -> None:
        # Rows of all outer axes are counted through, so that threads get the same number of them whatever axis is long.
        rows = args.sizes.rows
        count = _outer_size(args) * rows
        index, stop = count * thread // threads, count * (thread + 1) // threads
        to, from_ = args.target_strides.rows, args.source_strides.rows
        while index < stop:
            # Divisions for the outer axes once per run of rows: one takes as many cycles as copying a short row.
            target, source = _addresses(args, index // rows)
            first = index % rows
            last = min(rows, first + stop - index)
            for row in range(first, last):
                copy_row(args, target + row * to, source + row * from_)
            index += last - first

    copy.__name__ = name
    return task(copy)


copy_rows_x32, copy_rows_x8 = _row_task("copy_rows_x32", _copy_whole_row), _row_task("copy_rows_x8", _copy_whole_byte_row)
copy_elements_x32 = _row_task("copy_elements_x32", _copy_strided_row)


def _transposing_task(name: str, transpose: Any, itemsize: int) -> Task:
    """Tiles of 16 x 16 transposed in registers: columns are contiguous in the target, rows in the source.

    Both are read and written by whole vectors so; elements in turn would touch a cache line each on one side.
    """

    def transposed(args: StridedCopy, thread: int, threads: int) -> None:
        rows, columns = args.sizes.rows, args.sizes.columns
        to, from_ = args.target_strides.rows, args.source_strides.columns
        # A unit is 16 rows of the target, all columns: it writes them from front to back, and reads whole cache lines of floats.
        groups = (rows + 15) // 16
        units = _outer_size(args) * groups
        for unit in range(units * thread // threads, units * (thread + 1) // threads):
            target, source = _addresses(args, unit // groups)
            row = unit % groups * 16
            for column in range(0, columns, 16):
                tile, out = source + column * from_ + row * itemsize, target + row * to + column * itemsize
                transpose(tile, from_, columns - column, rows - row, out, to)

    transposed.__name__ = name
    return task(transposed)


transpose_x32 = _transposing_task("transpose_x32", transpose_elements, 4)
transpose_x16 = _transposing_task("transpose_x16", _narrow_transpose(2), 2)
transpose_x8 = _transposing_task("transpose_x8", _narrow_transpose(1), 1)


def _deinterleaving_task(name: str, channels: int, itemsize: int, copy: Any) -> Task:
    """NHWC of three or four channels to NCHW: columns are pixels, rows channels, contiguous in each pixel of the source.

    Tiles of 16 x 16 would be mostly empty. A few whole vectors of pixels are loaded instead, and each channel is shuffled out.
    """
    lanes = 64 // itemsize
    pixels = ir.VectorType(ir.IntType(8 * itemsize), channels * lanes)

    def deinterleave(builder: Any, source: Any, target: Any, step: Any) -> None:
        whole = emit_load(builder, source, pixels)
        for channel in range(channels):
            mask = ir.Constant(ir.VectorType(I32, lanes), list(range(channel, channels * lanes, channels)))
            address = builder.add(target, builder.mul(step, ir.Constant(step.type, channel)))
            emit_store(builder, address, builder.shuffle_vector(whole, whole, mask))

    deinterleave.__name__ += f"_{name}"
    deinterleave_vectors = operation(types.none, *[types.intp] * 3)(deinterleave)

    def deinterleaved(args: StridedCopy, thread: int, threads: int) -> None:
        columns, step = args.sizes.columns, args.target_strides.rows
        blocks = (columns + _BLOCK - 1) // _BLOCK
        units = _outer_size(args) * blocks
        for unit in range(units * thread // threads, units * (thread + 1) // threads):
            target, source = _addresses(args, unit // blocks)
            column = unit % blocks * _BLOCK
            stop = min(columns, column + _BLOCK)
            # Not masked: the remainder of each block would need masks of its own for every channel, and is at most a vector.
            while column + lanes <= stop:
                deinterleave_vectors(source + column * channels * itemsize, target + column * itemsize, step)
                column += lanes
            for pixel in range(column, stop):
                for channel in range(channels):
                    copy(target + pixel * itemsize + channel * step, source + (pixel * channels + channel) * itemsize)

    deinterleaved.__name__ = name
    return task(deinterleaved)


@inline
def _copy_byte(target: int, source: int) -> None:
    write_i8(target, read_u8(source))


@inline
def _copy_word(target: int, source: int) -> None:
    write_f32(target, read_f32(source))


deinterleave_3_x8 = _deinterleaving_task("deinterleave_3_x8", 3, 1, _copy_byte)
deinterleave_4_x8 = _deinterleaving_task("deinterleave_4_x8", 4, 1, _copy_byte)
deinterleave_3_x32 = _deinterleaving_task("deinterleave_3_x32", 3, 4, _copy_word)
deinterleave_4_x32 = _deinterleaving_task("deinterleave_4_x32", 4, 4, _copy_word)
