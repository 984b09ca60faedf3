"""MatMulNBits for one row of activations, or two: products with the rows of a weight [K, N], read in place.

Memory gives most where few rows are read at a time, whole and one after another: processors foresee that. So each job has some
blocks of K (and, where there are more jobs, some strips of 64 bytes of their rows) and goes along four rows at once, strip by
strip, keeping a strip's sums meanwhile until the block's last rows. The jobs' results are added up in the end.

Arguments: see ``simd.nbits_arguments``; ``X`` is of ``arrange_i8`` with one plane, or float32. ``TABLE`` has the values of
codes as they are stored. ``WORK`` of a job: 4 KB and 2 m float32 for each column of its strips.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk_cpu.jit import inner
from ort_sdk_cpu.machine_code import Task, task
from ort_sdk_cpu.simd.arithmetic import add, zero_f32
from ort_sdk_cpu.simd.memory import load_f32, prefetch, read_f32, store_f32
from ort_sdk_cpu.simd.nbits_arguments import (
    BIAS,
    BLOCK,
    BLOCK_STRIDE,
    CODES,
    CODES_STRIDE,
    DEFAULT_ZERO,
    FLIP,
    K_PARTS,
    N_PARTS,
    OUT,
    PARTIALS,
    SCALES,
    SCALES_STRIDE,
    TABLE,
    WORK,
    WORK_STRIDE,
    X_SCALES,
    X_STRIDE,
    X_SUMS,
    ZEROS,
    ZEROS_STRIDE,
    K,
    M,
    N,
    X,
)
from ort_sdk_cpu.simd.records import argument
from ort_sdk_cpu.simd.sequences import interleave
from ort_sdk_cpu.simd.strips import strip_operations

__all__ = ["columns_f32_2", "columns_f32_4", "columns_f32_8", "columns_i8_2", "columns_i8_4", "columns_i8_8"]

_STRIP = 64
_ROWS = 4
"""Rows that are read side by side."""
_AHEAD = 1536
"""Bytes ahead of the reading of a row that are asked for."""
_AHEAD_OF_SCALES = 4096
_ONE = np.float32(1)


def _steps_i8(bits: int) -> Any:
    """Products of some rows of a strip with a row of activations and, if they are ``apart``, the next, as integers."""
    operations = strip_operations(bits)
    zero, add_products, finish = operations.zero_i32, operations.add_products, operations.finish_i32
    load, store = operations.load_i32, operations.store_i32
    fill, load_zeros, row_bytes = operations.fill, operations.load_zeros, 256 * (8 // bits)

    @inner
    def end(record: int, target: int, total: Any, scales: int, points: Any, b: int) -> None:
        x_scale, x_sum = read_f32(argument(record, X_SCALES) + b), read_f32(argument(record, X_SUMS) + b)
        finish(target, total, scales, points, x_scale, x_sum)

    @inner
    def steps(
        record: int,
        place: int,
        rows: int,
        begins: int,
        ends: int,
        x: int,
        kept: int,
        target: int,
        scales: int,
        zeros: int,
        b: int,
        apart: int,
        _table: Any,
    ) -> None:
        stride, flip, y = argument(record, CODES_STRIDE), argument(record, FLIP), x + apart * argument(record, X_STRIDE)
        total, other = (zero(), zero()) if begins else (load(kept), load(kept + apart * row_bytes))
        for row in range(0, rows, 4):
            total = add_products(total, place + row * stride, stride, rows - row, flip, x + row)
            other = add_products(other, place + row * stride, stride, rows - row, flip, y + row)
        if not ends:
            store(kept, total)
            store(kept + apart * row_bytes, other)
            return
        points = load_zeros(zeros, flip & 255, np.float32(0)) if zeros else fill(np.float32(argument(record, DEFAULT_ZERO)))
        end(record, target, total, scales, points, b)
        if apart:
            end(record, target + row_bytes, other, scales, points, b + argument(record, BLOCK_STRIDE))

    return steps


def _steps_f32(bits: int) -> Any:
    """The same as float32."""
    operations = strip_operations(bits)
    zero, add_values, finish = operations.zero_f32, operations.add_values, operations.finish_f32
    load, store = operations.load_f32, operations.store_f32
    fill, load_zeros, row_bytes = operations.fill, operations.load_zeros, 256 * (8 // bits)
    half = np.float32(1 << (bits - 1))

    @inner
    def steps(
        record: int,
        place: int,
        rows: int,
        begins: int,
        ends: int,
        x: int,
        kept: int,
        target: int,
        scales: int,
        zeros: int,
        b: int,
        apart: int,
        table: Any,
    ) -> None:
        stride, flip, y = argument(record, CODES_STRIDE), argument(record, FLIP), x + apart * argument(record, X_STRIDE)
        total, other = (zero(), zero()) if begins else (load(kept), load(kept + apart * row_bytes))
        for row in range(rows):
            total = add_values(total, place + row * stride, table, flip & 255, x + row * 4)
            other = add_values(other, place + row * stride, table, flip & 255, y + row * 4)
        if not ends:
            store(kept, total)
            store(kept + apart * row_bytes, other)
            return
        x_sums = argument(record, X_SUMS) + b
        points = load_zeros(zeros, flip & 255, half) if zeros else fill(np.float32(argument(record, DEFAULT_ZERO)) - half)
        finish(target, total, scales, points, _ONE, read_f32(x_sums))
        if apart:
            finish(target + row_bytes, other, scales, points, _ONE, read_f32(x_sums + argument(record, BLOCK_STRIDE)))

    return steps


@inner
def _write_strip(sums: int, planes: int, bias: int, out: int, column: int, spare: int) -> None:
    """The columns of a strip in their order, into a row of the result."""
    for quarter in range(4):
        place = interleave(sums + quarter * planes * 64, spare, spare + 1024, planes, planes)
        for plane in range(planes):
            first = column + (quarter * planes + plane) * 16
            value = load_f32(place + plane * 64)
            if bias:
                value = add(value, load_f32(bias + first * 4))
            store_f32(out + first * 4, value)


@inner
def _write(record: int, start: int, stop: int, k_part: int, planes: int, sums: int, spare: int) -> None:
    """The sums of some strips into the part's result."""
    m, n, c_stride = argument(record, M), argument(record, N), argument(record, CODES_STRIDE)
    out, bias = argument(record, OUT), argument(record, BIAS)
    if k_part:
        out, bias = argument(record, PARTIALS) + (k_part - 1) * m * n * 4, 0
    for strip in range(start, stop):
        byte = min(strip * _STRIP, c_stride - _STRIP)
        for row in range(m):
            place = sums + ((strip - start) * m + row) * 256 * planes
            _write_strip(place, planes, bias, out + row * n * 4, byte * planes, spare)


@inner
def _ask(record: int, codes: int, scales: int, vectors: int) -> None:
    """Ask for a line of each of four rows, and for some vectors of scales."""
    stride = argument(record, CODES_STRIDE)
    for row in range(_ROWS):
        prefetch(codes + row * stride)
    for vector in range(vectors):
        prefetch(scales + _AHEAD_OF_SCALES + vector * 64)


@inner
def _rows(
    record: int, block: int, row: int, rows: int, start: int, stop: int, planes: int, item: int, sums: int, steps: Any, table: Any
) -> None:
    """Four rows of a block of so many, or what is left of them; all strips of the job. ``item`` bytes to a number of x."""
    m, c_stride, k = argument(record, M), argument(record, CODES_STRIDE), block * argument(record, BLOCK) + row
    codes, x_stride = argument(record, CODES) + k * c_stride, argument(record, X_STRIDE)
    scales, zeros = argument(record, SCALES) + block * argument(record, SCALES_STRIDE), argument(record, ZEROS)
    zeros += block * argument(record, ZEROS_STRIDE) if zeros else 0
    begins, ends, count = 1 if row == 0 else 0, 1 if row + _ROWS >= rows else 0, min(_ROWS, rows - row)
    kept = sums + (stop - start) * m * 256 * planes
    for strip in range(start, stop):
        byte = min(strip * _STRIP, c_stride - _STRIP)
        far = byte + _AHEAD + (0 if strip * _STRIP + _AHEAD < stop * _STRIP else _ROWS * c_stride - (stop - start) * _STRIP)
        _ask(record, codes + far, scales + byte * planes * 4, ends * 4 * planes)
        for first in range(0, m, 2):
            apart, offset = 1 if first + 1 < m else 0, ((strip - start) * m + first) * 256 * planes
            x, b = argument(record, X) + first * x_stride + k * item, first * argument(record, BLOCK_STRIDE) + block * 4
            place, scale, zero = codes + byte, scales + byte * planes * 4, zeros + byte if zeros else 0
            if apart:
                steps(record, place, count, begins, ends, x, kept + offset, sums + offset, scale, zero, b, 1, table)
            else:
                steps(record, place, count, begins, ends, x, kept + offset, sums + offset, scale, zero, b, 0, table)


@inner
def _job(record: int, job: int, planes: int, item: int, steps: Any) -> None:
    """A part of K and of the strips."""
    k, block, k_parts, n_parts = (
        argument(record, K),
        argument(record, BLOCK),
        argument(record, K_PARTS),
        argument(record, N_PARTS),
    )
    blocks, strips = (k + block - 1) // block, (argument(record, CODES_STRIDE) + _STRIP - 1) // _STRIP
    k_part, n_part = job // n_parts, job % n_parts
    start, stop = strips * n_part // n_parts, strips * (n_part + 1) // n_parts
    spare = argument(record, WORK) + job * argument(record, WORK_STRIDE)
    sums, table = spare + 4096, load_f32(argument(record, TABLE))
    for index in range((stop - start) * argument(record, M) * 4 * planes):
        store_f32(sums + index * 64, zero_f32())
    for number in range(blocks * k_part // k_parts, blocks * (k_part + 1) // k_parts):
        rows = min(block, k - number * block)
        for row in range(0, rows, _ROWS):
            _rows(record, number, row, rows, start, stop, planes, item, sums, steps, table)
    _write(record, start, stop, k_part, planes, sums, spare)


def _task(bits: int, item: int, make_steps: Callable[[int], Any]) -> Task:
    steps, planes = make_steps(bits), 8 // bits

    def columns(record: int, part: int, parts: int) -> None:
        jobs = argument(record, K_PARTS) * argument(record, N_PARTS)
        for job in range(jobs * part // parts, jobs * (part + 1) // parts):
            _job(record, job, planes, item, steps)

    columns.__name__ = f"columns_{'i8' if item == 1 else 'f32'}_{bits}"
    return task(columns)


columns_i8_2, columns_i8_4, columns_i8_8 = (_task(bits, 1, _steps_i8) for bits in (2, 4, 8))
columns_f32_2, columns_f32_4, columns_f32_8 = (_task(bits, 4, _steps_f32) for bits in (2, 4, 8))
