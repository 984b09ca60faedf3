"""GEMV of MatMulNBits over a KN weight for few rows of activations: sums of the weight's rows, each scaled by an activation.

Memory gives most where few rows are read at a time, whole and one after another: processors foresee that. So each job has some
blocks of K (and, where there are more jobs, some strips of 64 bytes of their rows) and goes along some rows at once, strip by
strip, keeping a strip's sums meanwhile until the block's last rows. The jobs' results are added up in the end.

Workspace of a job: ``WORKSPACE_START`` bytes and, for each column of its strips and row of activations, sums of all blocks and of
one and, with activations of float32, what the first ones lost to rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.gemm.nbits.arguments.matmul_nbits import MatMulNBits
from ort_sdk_cpu.gemm.nbits.microkernels.strip_kn import STRIP_OPERATIONS
from ort_sdk_cpu.gemm.nbits.microkernels.unpack import FIRST_CODES
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import Task, task
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
from ort_sdk_cpu.simd.memory import load_f32, load_f32_masked, prefetch_l2, read_f32, store_f32, store_f32_masked
from ort_sdk_cpu.simd.transpose import interleave

__all__ = [
    "gemv_kn_f32_2",
    "gemv_kn_f32_4",
    "gemv_kn_f32_8",
    "gemv_kn_i8_2",
    "gemv_kn_i8_4",
    "gemv_kn_i8_8",
]

_STRIP = 64
# Rows read together are streams of memory side by side.
_ROWS = {"f32": (16, 16), "i8": (32, 8)}
"""Rows that are read together, by the kind of activations: of one row of them, and of more. More sums would be kept of fewer; of
more, float32 would lose more in rounding."""
_QUAD = 4
"""Of them, rows whose codes are side by side in the registers."""
_GROUP_OF_ONE, _GROUP_OF_MORE = 128, 64
"""Strips that are read together, for one row of activations and for more: their rows, and those that are prefetched, fit
the caches; more is read of a row of codes at once."""
_AHEAD_OF_SCALES = 4096
"""Bytes ahead of the reading of scales that are prefetched."""
_ONE = np.float32(1)


@inline
def _four(codes: int, stride: int, first: int, rows: int) -> Any:
    """Addresses of four rows, the last there is for those missing."""
    # No branches in the innermost loop: activations behind the last row are zeros.
    last = rows - 1
    return (
        codes + min(first, last) * stride,
        codes + min(first + 1, last) * stride,
        codes + min(first + 2, last) * stride,
        codes + min(first + 3, last) * stride,
    )


@inline
def _prefetch_lines(place: int, column: int, width: int, stride: int) -> Any:
    """Prefetch four lines of some rows that are read next, in the order of memory; the place and column of those behind them."""
    for line in range(_QUAD):
        prefetch_l2(place + line * _STRIP)
    place += _QUAD * _STRIP
    column += _QUAD * _STRIP
    # By lines in the order of memory, across rows: a processor's own prefetcher stops at the end of a page.
    if column < width:
        return place, column
    return place + stride - column, 0


def _strip_sums(bits: int, kind: str) -> Any:
    """Products of some rows of a block with one row of activations, along some strips."""
    operations = STRIP_OPERATIONS[kind](bits)
    zero, add_kept, store, add_rows = operations.zero, operations.add_kept, operations.store, operations.add_rows
    fill, load_zeros, finish = operations.fill, operations.load_zeros, operations.finish
    item, row_bytes = operations.item, 256 * (8 // bits)
    half = np.float32(1 << (bits - 1)) if kind == "f32" else np.float32(0)

    @inline
    def zero_points(args: MatMulNBits, zeros: int) -> Any:
        if zeros:
            return load_zeros(zeros, args.sign_flip & 255, half)
        return fill(np.float32(args.default_zero_point) - half)

    @inline
    def strip_sums(
        args: MatMulNBits,
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
        compensation: int,
        table: Any,
        ahead: int,
    ) -> None:
        c_stride, flip, x_sum = args.codes_stride, args.sign_flip, read_f32(args.x_sums + b)
        x_scale = read_f32(args.x_scales + b) if item == 1 else _ONE
        column = 0
        for strip in range(start, stop):
            byte = min(strip * _STRIP, c_stride - _STRIP)
            # All of a strip's sums are in registers.
            total = zero()
            for row in range(0, rows, _QUAD):
                ahead, column = _prefetch_lines(ahead, column, (stop - start) * _STRIP, c_stride)
                quad, y = _four(codes, c_stride, row, rows), x + row * item
                total = add_rows(total, quad[0], quad[1], quad[2], quad[3], byte, rows - row, flip, y, table)
            # Partial sums of a strip wait in the workspace: a block has more rows than are read together.
            if not begins:
                total = add_kept(total, kept)
            # Scales and zero points are for a block's sum: once for all its rows.
            if ends:
                place = scales + byte * (8 // bits) * 4
                for line in range(row_bytes // 64):
                    prefetch_l2(place + _AHEAD_OF_SCALES + line * 64)
                finish(sums, compensation, total, place, zero_points(args, zeros + byte if zeros else 0), x_scale, x_sum)
            else:
                store(kept, total)
            kept += row_bytes
            sums += row_bytes
            compensation += row_bytes

    return strip_sums


@inline
def _write_strip(sums: int, planes: int, bias: int, out: int, column: int, workspace: int) -> None:
    """The columns of a strip in their order, into a row of the result."""
    for quarter in range(4):
        # Columns that share a byte were in vectors of their own.
        place = interleave(sums + quarter * planes * 64, workspace, workspace + 1024, planes, planes)
        for plane in range(planes):
            first = column + (quarter * planes + plane) * 16
            value = load_f32(place + plane * 64)
            if bias:
                value = add(value, load_f32(bias + first * 4))
            store_f32(out + first * 4, value)


@inline
def _result(args: MatMulNBits, k_part: int) -> Any:
    """Addresses of a part's result, and of the bias that goes there."""
    if k_part:
        return args.partials + (k_part - 1) * args.m * args.n * 4, 0
    return args.out, args.bias


@inline
def _write(args: MatMulNBits, start: int, stop: int, out: int, bias: int, planes: int, sums: int, workspace: int) -> None:
    """The sums of some strips into the part's result."""
    m, n, c_stride = args.m, args.n, args.codes_stride
    for strip in range(start, stop):
        byte = min(strip * _STRIP, c_stride - _STRIP)
        for row in range(m):
            place = sums + (row * (stop - start) + strip - start) * 256 * planes
            _write_strip(place, planes, bias, out + row * n * 4, byte * planes, workspace)


def _exact_columns(bits: int) -> Any:
    """Columns of a result with activations as they are, number by number, as is right for infinities."""
    first_codes, mask = FIRST_CODES[bits], (1 << bits) - 1

    @inline
    def numbers(address: int, count: int, flip: int) -> Any:
        return to_f32(bit_xor(first_codes(address, count), splat_i32(np.int32(flip & mask))))

    @inline
    def exact_columns(args: MatMulNBits, row: int, begin: int, end: int, first: int, stop: int, out: int, bias: int) -> None:
        """Of a row and the elements of K from ``begin`` to ``end``, the columns from ``first`` to ``stop``."""
        block, flip, zeros = args.block_size, args.sign_flip, args.zero_points
        default, stride = splat_f32(np.float32(args.default_zero_point)), args.codes_stride
        for column in range(first, stop, 16):
            count, total = stop - column, zero_f32()
            for k in range(begin, end):
                byte, number = column * bits // 8, k // block
                zero = numbers(zeros + number * args.zero_points_stride + byte, count, flip) if zeros else default
                scale = load_f32_masked(args.scales + number * args.scales_stride + column * 4, count)
                code = numbers(args.codes + k * stride + byte, count, flip)
                x = splat_f32(read_f32(args.activations + (row * args.k + k) * 4))
                total = fused_multiply_add(multiply(subtract(code, zero), scale), x, total)
            if bias:
                total = add(total, load_f32_masked(bias + column * 4, count))
            store_f32_masked(out + (row * args.n + column) * 4, total, count)

    return exact_columns


def _block_sums(bits: int, kind: str) -> Any:
    """Products of a block with all rows of activations, along some strips."""
    item, strip_sums, planes = STRIP_OPERATIONS[kind](bits).item, _strip_sums(bits, kind), 8 // bits
    rows_of_one, rows_of_more = _ROWS[kind]

    @inline
    def block_sums(args: MatMulNBits, number: int, start: int, stop: int, sums: int, table: Any) -> None:
        block, c_stride, x_stride = args.block_size, args.codes_stride, args.x_stride
        m, first, strips_bytes = args.m, number * block, (stop - start) * 256 * planes
        rows, scales = (
            min(block, args.k - first),
            args.scales + number * args.scales_stride,
        )
        zeros, kept, compensation = args.zero_points, sums + m * strips_bytes, sums + 2 * m * strips_bytes
        zeros += number * args.zero_points_stride if zeros else 0
        # With more rows of activations their sums take the place in the cache.
        together, strips = (rows_of_one, _GROUP_OF_ONE) if m == 1 else (rows_of_more, _GROUP_OF_MORE)
        for row in range(0, rows, together):
            codes = args.codes + (first + row) * c_stride
            count = min(rows - row, together)
            begins, ends = int(row == 0), int(row + count == rows)
            for group in range(start, stop, strips):
                last, offset = min(group + strips, stop), (group - start) * 256 * planes
                ahead = codes + (last * _STRIP if last < stop else count * c_stride + start * _STRIP)
                for index in range(m):
                    x = args.x + index * x_stride + (first + row) * item
                    b, place = index * args.block_stride + number * 4, index * strips_bytes + offset
                    strip_sums(
                        args,
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
                        compensation + place,
                        table,
                        ahead,
                    )

    return block_sums


def _job(bits: int, kind: str) -> Any:
    """A part of K and of the strips."""
    exact_columns, settle, is_f32 = _exact_columns(bits), STRIP_OPERATIONS[kind](bits).settle, kind == "f32"
    block_sums, planes = _block_sums(bits, kind), 8 // bits

    @inline
    def job(args: MatMulNBits, number: int) -> None:
        block, k_parts, n_parts = args.block_size, args.k_parts, args.n_parts
        blocks, strips = (args.k + block - 1) // block, (args.codes_stride + _STRIP - 1) // _STRIP
        k_part, n_part = number // n_parts, number % n_parts
        start, stop = strips * n_part // n_parts, strips * (n_part + 1) // n_parts
        workspace = args.workspace + number * args.workspace_stride
        sums, table, size = workspace + 4096, load_f32(args.table), (stop - start) * args.m * 256 * planes
        out, bias = _result(args, k_part)
        # Sums of one block are written before they are read; those of all blocks are added to.
        for place in range(sums, sums + (3 if is_f32 else 1) * size, 64):
            store_f32(place, zero_f32())
        first, last = blocks * k_part // k_parts, blocks * (k_part + 1) // k_parts
        for block_number in range(first, last):
            block_sums(args, block_number, start, stop, sums, table)
        if is_f32:
            for place in range(sums, sums + size, 64):
                settle(place, place + 2 * size)
        _write(args, start, stop, out, bias, planes, sums, workspace)
        if is_f32:
            end, column = min(last * block, args.k), min(stop * _STRIP * planes, args.n)
            for row in range(args.m):
                whole = read_f32(args.x_sums + row * args.block_stride + blocks * 4)
                # Rows with infinities or NaN are computed once more, number by number.
                if whole - whole != 0:
                    exact_columns(args, row, first * block, end, start * _STRIP * planes, column, out, bias)

    return job


def _task(bits: int, kind: str) -> Task:
    job = _job(bits, kind)

    def gemv_kn(args: MatMulNBits, thread: int, threads: int) -> None:
        jobs = args.k_parts * args.n_parts
        for number in range(jobs * thread // threads, jobs * (thread + 1) // threads):
            job(args, number)

    gemv_kn.__name__ = f"gemv_kn_{kind}_{bits}"
    return task(gemv_kn)


gemv_kn_f32_2, gemv_kn_f32_4, gemv_kn_f32_8 = (_task(bits, "f32") for bits in (2, 4, 8))
gemv_kn_i8_2, gemv_kn_i8_4, gemv_kn_i8_8 = (_task(bits, "i8") for bits in (2, 4, 8))
