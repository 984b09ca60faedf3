"""MatMulNBits for few rows of activations: products with the rows of a weight [K, N], read in place.

Memory gives most where few rows are read at a time, whole and one after another: processors foresee that. So each job has some
blocks of K (and, where there are more jobs, some strips of 64 bytes of their rows) and goes along some rows at once, strip by
strip, keeping a strip's sums meanwhile until the block's last rows. The jobs' results are added up in the end.

Arguments: see ``microkernels.arguments``; ``X`` is of ``arrange_i8`` with one plane, or float32. ``TABLE`` has the values of
codes as they are stored. ``WORK`` of a job: 4 KB and, for each column of its strips, 2 m
float32, or 3 m with activations of float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.gemm.nbits.microkernels.arguments import (
    ACTIVATIONS,
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
from ort_sdk_cpu.gemm.nbits.microkernels.strip_kn import STRIP_OPERATIONS
from ort_sdk_cpu.gemm.nbits.microkernels.unpack import FIRST_CODES
from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import Task, task
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.arithmetic import (
    add,
    bit_xor,
    fused_multiply_add,
    multiply,
    splat_f32,
    splat_i32,
    subtract,
    to_f32,
    zero_f32,
)
from ort_sdk_cpu.simd.interleave import interleave
from ort_sdk_cpu.simd.memory import load_f32, load_f32_first, prefetch_second, read_f32, store_f32, store_f32_first

__all__ = [
    "columns_f32_2",
    "columns_f32_4",
    "columns_f32_8",
    "columns_i8_2",
    "columns_i8_4",
    "columns_i8_8",
]

_STRIP = 64
_ROWS = {"f32": (16, 16), "i8": (32, 8)}
"""Rows that are read together, by the kind of activations: of one row of them, and of more. More sums would be kept of fewer; of
more, float32 would lose more in rounding."""
_QUAD = 4
"""Of them, rows whose codes lie side by side in the registers."""
_GROUP_OF_ONE, _GROUP_OF_MORE = 128, 64
"""Strips that are read together, for one row of activations and for more: their rows, and those that are asked for meanwhile, fit
the caches; more is read of a row of codes at once."""
_AHEAD_OF_SCALES = 4096
"""Bytes ahead of the reading of scales that are asked for."""
_ONE = np.float32(1)


@inner
def _four(codes: int, stride: int, first: int, rows: int) -> Any:
    """Addresses of four rows, the last there is for those missing."""
    last = rows - 1
    return (
        codes + min(first, last) * stride,
        codes + min(first + 1, last) * stride,
        codes + min(first + 2, last) * stride,
        codes + min(first + 3, last) * stride,
    )


@inner
def _ask(place: int, column: int, width: int, stride: int) -> Any:
    """Ask for four lines of some rows that are read next, in the order of memory; the place and column of those behind them."""
    for line in range(_QUAD):
        prefetch_second(place + line * _STRIP)
    place += _QUAD * _STRIP
    column += _QUAD * _STRIP
    if column < width:
        return place, column
    return place + stride - column, 0


def _products(bits: int, kind: str) -> Any:
    """Products of some rows of a block with one row of activations, along some strips."""
    operations = STRIP_OPERATIONS[kind](bits)
    zero, add_kept, store, add_rows = operations.zero, operations.add_kept, operations.store, operations.add_rows
    fill, load_zeros, finish = operations.fill, operations.load_zeros, operations.finish
    item, row_bytes = operations.item, 256 * (8 // bits)
    half = np.float32(1 << (bits - 1)) if kind == "f32" else np.float32(0)

    @inner
    def zero_points(record: int, zeros: int) -> Any:
        if zeros:
            return load_zeros(zeros, argument(record, FLIP) & 255, half)
        return fill(np.float32(argument(record, DEFAULT_ZERO)) - half)

    @inner
    def products(
        record: int,
        codes: int,
        rows: int,
        begins: int,
        ends: int,
        start: int,
        stop: int,
        x: int,
        b: int,
        scales: int,
        zeros: int,
        sums: int,
        kept: int,
        rest: int,
        table: Any,
        ahead: int,
    ) -> None:
        c_stride, flip, x_sum = argument(record, CODES_STRIDE), argument(record, FLIP), read_f32(argument(record, X_SUMS) + b)
        x_scale = read_f32(argument(record, X_SCALES) + b) if item == 1 else _ONE
        column = 0
        for strip in range(start, stop):
            byte = min(strip * _STRIP, c_stride - _STRIP)
            total = zero()
            for row in range(0, rows, _QUAD):
                ahead, column = _ask(ahead, column, (stop - start) * _STRIP, c_stride)
                quad, y = _four(codes, c_stride, row, rows), x + row * item
                total = add_rows(total, quad[0], quad[1], quad[2], quad[3], byte, rows - row, flip, y, table)
            if not begins:
                total = add_kept(total, kept)
            if ends:
                place = scales + byte * (8 // bits) * 4
                for line in range(row_bytes // 64):
                    prefetch_second(place + _AHEAD_OF_SCALES + line * 64)
                finish(sums, rest, total, place, zero_points(record, zeros + byte if zeros else 0), x_scale, x_sum)
            else:
                store(kept, total)
            kept += row_bytes
            sums += row_bytes
            rest += row_bytes

    return products


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
def _result(record: int, k_part: int) -> Any:
    """Addresses of a part's result, and of the bias that goes there."""
    if k_part:
        return argument(record, PARTIALS) + (k_part - 1) * argument(record, M) * argument(record, N) * 4, 0
    return argument(record, OUT), argument(record, BIAS)


@inner
def _write(record: int, start: int, stop: int, out: int, bias: int, planes: int, sums: int, spare: int) -> None:
    """The sums of some strips into the part's result."""
    m, n, c_stride = argument(record, M), argument(record, N), argument(record, CODES_STRIDE)
    for strip in range(start, stop):
        byte = min(strip * _STRIP, c_stride - _STRIP)
        for row in range(m):
            place = sums + (row * (stop - start) + strip - start) * 256 * planes
            _write_strip(place, planes, bias, out + row * n * 4, byte * planes, spare)


def _plain_columns(bits: int) -> Any:
    """Columns of a result with activations as they are, number by number, as is right for infinities."""
    first_codes, mask = FIRST_CODES[bits], (1 << bits) - 1

    @inner
    def numbers(address: int, count: int, flip: int) -> Any:
        return to_f32(bit_xor(first_codes(address, count), splat_i32(np.int32(flip & mask))))

    @inner
    def plain_columns(record: int, row: int, begin: int, end: int, first: int, stop: int, out: int, bias: int) -> None:
        """Of a row and the elements of K from ``begin`` to ``end``, the columns from ``first`` to ``stop``."""
        block, flip, zeros = argument(record, BLOCK), argument(record, FLIP), argument(record, ZEROS)
        default, stride = splat_f32(np.float32(argument(record, DEFAULT_ZERO))), argument(record, CODES_STRIDE)
        for column in range(first, stop, 16):
            count, total = stop - column, zero_f32()
            for k in range(begin, end):
                byte, number = column * bits // 8, k // block
                zero = numbers(zeros + number * argument(record, ZEROS_STRIDE) + byte, count, flip) if zeros else default
                scale = load_f32_first(argument(record, SCALES) + number * argument(record, SCALES_STRIDE) + column * 4, count)
                code = numbers(argument(record, CODES) + k * stride + byte, count, flip)
                x = splat_f32(read_f32(argument(record, ACTIVATIONS) + (row * argument(record, K) + k) * 4))
                total = fused_multiply_add(multiply(subtract(code, zero), scale), x, total)
            if bias:
                total = add(total, load_f32_first(bias + column * 4, count))
            store_f32_first(out + (row * argument(record, N) + column) * 4, total, count)

    return plain_columns


def _block_products(bits: int, kind: str) -> Any:
    """Products of a block with all rows of activations, along some strips."""
    item, products, planes = STRIP_OPERATIONS[kind](bits).item, _products(bits, kind), 8 // bits
    rows_of_one, rows_of_more = _ROWS[kind]

    @inner
    def block_products(record: int, number: int, start: int, stop: int, sums: int, table: Any) -> None:
        block, c_stride, x_stride = argument(record, BLOCK), argument(record, CODES_STRIDE), argument(record, X_STRIDE)
        m, first, strips_bytes = argument(record, M), number * block, (stop - start) * 256 * planes
        rows, scales = (
            min(block, argument(record, K) - first),
            argument(record, SCALES) + number * argument(record, SCALES_STRIDE),
        )
        zeros, kept, rests = argument(record, ZEROS), sums + m * strips_bytes, sums + 2 * m * strips_bytes
        zeros += number * argument(record, ZEROS_STRIDE) if zeros else 0
        together, strips = (rows_of_one, _GROUP_OF_ONE) if m == 1 else (rows_of_more, _GROUP_OF_MORE)
        for row in range(0, rows, together):
            codes = argument(record, CODES) + (first + row) * c_stride
            count = min(rows - row, together)
            begins, ends = int(row == 0), int(row + count == rows)
            for group in range(start, stop, strips):
                last, offset = min(group + strips, stop), (group - start) * 256 * planes
                ahead = codes + (last * _STRIP if last < stop else count * c_stride + start * _STRIP)
                for index in range(m):
                    x = argument(record, X) + index * x_stride + (first + row) * item
                    b, place = index * argument(record, BLOCK_STRIDE) + number * 4, index * strips_bytes + offset
                    products(
                        record,
                        codes,
                        count,
                        begins,
                        ends,
                        group,
                        last,
                        x,
                        b,
                        scales,
                        zeros,
                        sums + place,
                        kept + place,
                        rests + place,
                        table,
                        ahead,
                    )

    return block_products


def _job(bits: int, kind: str) -> Any:
    """A part of K and of the strips."""
    plain_columns, settle, is_f32 = _plain_columns(bits), STRIP_OPERATIONS[kind](bits).settle, kind == "f32"
    block_products, planes = _block_products(bits, kind), 8 // bits

    @inner
    def job(record: int, number: int) -> None:
        block, k_parts, n_parts = argument(record, BLOCK), argument(record, K_PARTS), argument(record, N_PARTS)
        blocks, strips = (argument(record, K) + block - 1) // block, (argument(record, CODES_STRIDE) + _STRIP - 1) // _STRIP
        k_part, n_part = number // n_parts, number % n_parts
        start, stop = strips * n_part // n_parts, strips * (n_part + 1) // n_parts
        spare = argument(record, WORK) + number * argument(record, WORK_STRIDE)
        sums, table, size = spare + 4096, load_f32(argument(record, TABLE)), (stop - start) * argument(record, M) * 256 * planes
        out, bias = _result(record, k_part)
        for place in range(sums, sums + (3 if is_f32 else 1) * size, 64):
            store_f32(place, zero_f32())
        first, last = blocks * k_part // k_parts, blocks * (k_part + 1) // k_parts
        for block_number in range(first, last):
            block_products(record, block_number, start, stop, sums, table)
        if is_f32:
            for place in range(sums, sums + size, 64):
                settle(place, place + 2 * size)
        _write(record, start, stop, out, bias, planes, sums, spare)
        if is_f32:
            end, column = min(last * block, argument(record, K)), min(stop * _STRIP * planes, argument(record, N))
            for row in range(argument(record, M)):
                whole = read_f32(argument(record, X_SUMS) + row * argument(record, BLOCK_STRIDE) + blocks * 4)
                if whole - whole != 0:
                    plain_columns(record, row, first * block, end, start * _STRIP * planes, column, out, bias)

    return job


def _task(bits: int, kind: str) -> Task:
    job = _job(bits, kind)

    def columns(record: int, part: int, parts: int) -> None:
        jobs = argument(record, K_PARTS) * argument(record, N_PARTS)
        for number in range(jobs * part // parts, jobs * (part + 1) // parts):
            job(record, number)

    columns.__name__ = f"columns_{kind}_{bits}"
    return task(columns)


columns_f32_2, columns_f32_4, columns_f32_8 = (_task(bits, "f32") for bits in (2, 4, 8))
columns_i8_2, columns_i8_4, columns_i8_8 = (_task(bits, "i8") for bits in (2, 4, 8))
