"""GEMM of MatMulNBits with panels of uint8.

Four codes along K are in a lane, as instructions for int8 dot products (VNNI) take them. A block's sums of products are integers;
they are scaled, and zero points taken off, once for each block. For the loops see ``blocking``.
"""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.gemm.nbits.arguments.matmul_nbits import MatMulNBits
from ort_sdk_cpu.gemm.nbits.microkernels.scales import scale_zeros
from ort_sdk_cpu.gemm.nbits.microkernels.tile import tile_operations
from ort_sdk_cpu.gemm.nbits.microkernels.unpack import (
    interleave_u2,
    interleave_u4,
    interleave_u8,
    transpose_u2,
    transpose_u4,
    transpose_u8,
)
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import Task, task
from ort_sdk_cpu.simd.memory import prefetch

from .blocking import run_jobs
from .panels import maker_of_columns, maker_of_rows

__all__ = [
    "gemm_kn_i8_2",
    "gemm_kn_i8_4",
    "gemm_kn_i8_8",
    "gemm_nk_i8_2",
    "gemm_nk_i8_4",
    "gemm_nk_i8_8",
]

_SLACK = 64 * 128
"""Bytes behind a pair of a panel that may be written, too."""
_TRANSPOSE = {2: transpose_u2, 4: transpose_u4, 8: transpose_u8}
_INTERLEAVE = {2: interleave_u2, 4: interleave_u4, 8: interleave_u8}
# 6 * 2 sums as integers and as float32 are 24 registers.
_LARGE, _MEDIUM, _SMALL = 6, 4, 2
"""Rows of tiles."""


def _codes_of_rows(bits: int) -> Any:
    """16 rows and ``count`` 4-byte lanes of a weight [N, ...] into a vector of a panel."""
    transpose, step_bytes = _TRANSPOSE[bits], 128 * (8 // bits)

    @inline
    def codes_of(
        _args: MatMulNBits,
        codes: int,
        stride: int,
        rows: int,
        count: int,
        half: int,
        _s_panel: int,
        _z_panel: int,
        panel: int,
        _workspace: int,
        ahead: int,
    ) -> None:
        for start in range(0, count, 16):
            # The next panel's lines, while these are transposed.
            for line in range(16):
                prefetch(ahead + (start + line) * 64)
            transpose(codes + start * 4, stride, rows, count - start, panel + half * 64 + start * step_bytes)

    return codes_of


def _codes_of_columns(bits: int) -> Any:
    """A strip of some rows of a weight [K, N] into a panel."""
    interleave = _INTERLEAVE[bits]

    @inline
    def codes_of(
        args: MatMulNBits, codes: int, stride: int, rows: int, _count: int, _s_panel: int, _z_panel: int, panel: int, _ahead: int
    ) -> None:
        flip, pair_bytes = args.sign_flip, args.chunk * args.block_size * 32 + _SLACK
        for row in range(0, rows // 4 * 4, 4):
            interleave(codes + row * stride, stride, 4, flip, panel + row * 32, pair_bytes)
        # A lane has four rows of K; zeros of activations meet those that are missing.
        if rows % 4:
            row = rows // 4 * 4
            interleave(codes + row * stride, stride, rows - row, flip, panel + row * 32, pair_bytes)

    return codes_of


def _tile(rows: int, x_planes: int) -> Any:
    """Products of some rows of activations, quantised, with a pair of a panel."""
    operations = tile_operations(rows)
    zero_i32, zero_f32, load, store = operations.zero_i32, operations.zero_f32, operations.load, operations.store
    add_products, add_scaled = operations.add_products, operations.add_scaled

    @inline
    def tile(
        args: MatMulNBits,
        panel: int,
        s_panel: int,
        z_panel: int,
        row: int,
        first: int,
        count: int,
        sums: int,
        stride: int,
        begins: int,
    ) -> None:
        x_stride, b_stride, lanes = (
            args.x_stride,
            args.block_stride,
            args.block_size // (4 * x_planes),
        )
        x, x_scales = args.x + row * x_stride, args.x_scales + row * b_stride
        x_sums = args.x_sums + row * b_stride
        total = zero_f32() if begins else load(sums, stride)
        for block in range(count):
            start = (first + block) * lanes
            place = x + (start >> 4) * 64 * x_planes + (start & 15) * 4
            # Sums of a block are exact integers: 256 products of uint8 and int8 fit 32 bits.
            products = zero_i32()
            for piece in range(0, lanes, 16):
                # Four bytes of each row of activations, broadcast, meet four rows of K of 32 columns.
                for step in range(min(lanes, 16)):
                    for plane in range(x_planes):
                        products = add_products(products, panel, place + piece * 4 * x_planes + step * 4 + plane * 64, x_stride)
                        panel += 128
            offset, b = block * 128, (first + block) * 4
            total = add_scaled(total, products, s_panel + offset, z_panel + offset, x_scales + b, x_sums + b, b_stride)
        store(sums, stride, total)

    return tile


def _use(pairs: int, x_planes: int) -> Any:
    """Products of all rows of activations with a panel."""
    large, medium, small = (_tile(rows, x_planes) for rows in (_LARGE, _MEDIUM, _SMALL))

    @inline
    def use(
        args: MatMulNBits,
        m_first: int,
        rows: int,
        first: int,
        count: int,
        s_panel: int,
        z_panel: int,
        panel: int,
        target: int,
        begins: int,
    ) -> None:
        pair_bytes, stride = args.chunk * args.block_size * 32 + _SLACK, pairs * 128
        for pair in range(pairs):
            place, s_place, z_place = panel + pair * pair_bytes, s_panel + pair * count * 128, z_panel + pair * count * 128
            row = 0
            while row < rows:
                sums = target + row * stride + pair * 128
                # The largest tile that has rows for more than the next smaller one.
                if rows - row > _MEDIUM:
                    large(args, place, s_place, z_place, m_first + row, first, count, sums, stride, begins)
                    row += _LARGE
                elif rows - row > _SMALL:
                    medium(args, place, s_place, z_place, m_first + row, first, count, sums, stride, begins)
                    row += _MEDIUM
                else:
                    small(args, place, s_place, z_place, m_first + row, first, count, sums, stride, begins)
                    row += _SMALL

    return use


def _task(name: str, bits: int, pairs: int, make: Any, x_planes: int) -> Task:
    use, planes = _use(pairs, x_planes), 1 if pairs == 1 else 8 // bits

    def gemm(args: MatMulNBits, thread: int, threads: int) -> None:
        run_jobs(args, thread, threads, pairs, planes, make, use)

    gemm.__name__ = f"{name}_{bits}"
    return task(gemm)


def _of_rows(bits: int) -> Task:
    return _task("gemm_nk_i8", bits, 1, maker_of_rows(bits, _codes_of_rows(bits), scale_zeros), 8 // bits)


def _of_columns(bits: int) -> Task:
    return _task("gemm_kn_i8", bits, 2 * (8 // bits), maker_of_columns(bits, _codes_of_columns(bits), scale_zeros), 1)


gemm_nk_i8_2, gemm_nk_i8_4, gemm_nk_i8_8 = (_of_rows(bits) for bits in (2, 4, 8))
gemm_kn_i8_2, gemm_kn_i8_4, gemm_kn_i8_8 = (_of_columns(bits) for bits in (2, 4, 8))
