"""Resize that takes the nearest pixel: each row and column of the output is one of the input."""

from __future__ import annotations

from ort_sdk_cpu.image.arguments.nearest import Nearest
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.simd.int8 import load_bytes_masked, store_bytes_masked
from ort_sdk_cpu.simd.memory import load_f32_masked, read_f32, read_i32, read_u8, store_f32_masked, write_f32, write_i8
from ort_sdk_cpu.simd.shuffles import interleave_high, interleave_low

__all__ = ["nearest_nchw_8", "nearest_nchw_32", "nearest_nhwc"]

_BYTE, _WORD, _PIXEL = 1, 4, 0
"""What a pixel is; anything else is copied byte by byte."""


@inline
def _copy(target: int, source: int, count: int) -> None:
    # 64 bytes at a time, with a mask at the end: pixels are of any size.
    for offset in range(0, count, 64):
        store_bytes_masked(target + offset, load_bytes_masked(source + offset, count - offset), count - offset)


@inline
def _double(target: int, source: int, columns: int) -> None:
    """Each word twice, for ``columns`` words of the target."""
    for column in range(0, columns, 32):
        found = load_f32_masked(source + column * 2, (columns - column + 1) // 2)
        store_f32_masked(target + column * 4, interleave_low(found, found), columns - column)
        if column + 16 < columns:
            store_f32_masked(target + column * 4 + 64, interleave_high(found, found), columns - column - 16)


@inline
def _gather_row(args: Nearest, kind: int, target: int, source: int) -> None:
    """A row of the output."""
    table, columns = args.columns, args.out_width
    if kind == _WORD:
        # Upsampling to twice the size is what most decoders of images do: shuffles of whole vectors in place of a gather.
        if args.repeats == 2:
            _double(target, source, columns)
            return
        for column in range(columns):
            write_f32(target + column * 4, read_f32(source + read_i32(table + column * 4) * 4))
    elif kind == _BYTE:
        for column in range(columns):
            write_i8(target + column, read_u8(source + read_i32(table + column * 4)))
    else:
        size = args.pixel_bytes
        for column in range(columns):
            _copy(target + column * size, source + read_i32(table + column * 4) * size, size)


@inline
def _nearest(args: Nearest, thread: int, threads: int, kind: int) -> None:
    out, table = args.out, args.rows
    pitch, rows, line = args.width * args.pixel_bytes, args.out_height, args.out_width * args.pixel_bytes
    lines = args.images * rows
    first = lines * thread // threads
    for index in range(first, lines * (thread + 1) // threads):
        image, row = index // rows, index % rows
        source = read_i32(table + row * 4)
        target = out + index * line
        # A row that repeats the one before is a copy of contiguous memory, which is still in the first cache.
        if index > first and row and read_i32(table + row * 4 - 4) == source:
            _copy(target, target - line, line)
        else:
            _gather_row(args, kind, target, args.x + (image * args.height + source) * pitch)


@task
def nearest_nchw_32(args: Nearest, thread: int, threads: int) -> None:
    """NCHW of 4-byte elements: each thread has a range of output rows."""
    _nearest(args, thread, threads, _WORD)


@task
def nearest_nchw_8(args: Nearest, thread: int, threads: int) -> None:
    """NCHW of bytes."""
    _nearest(args, thread, threads, _BYTE)


@task
def nearest_nhwc(args: Nearest, thread: int, threads: int) -> None:
    """NHWC of elements of any size: a pixel is one copy of all channels."""
    _nearest(args, thread, threads, _PIXEL)
