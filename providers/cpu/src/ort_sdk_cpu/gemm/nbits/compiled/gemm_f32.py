"""GEMM of MatMulNBits with panels of the weight dequantized to float32. For the loops see ``blocking``.

Many rows share what a panel's dequantization costs; their register tiles are those of GEMMs of float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.gemm.nbits.arguments.matmul_nbits import MatMulNBits
from ort_sdk_cpu.gemm.nbits.microkernels.scales import center_zeros
from ort_sdk_cpu.gemm.nbits.microkernels.tile import tile_operations
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import Task, task
from ort_sdk_cpu.simd.arithmetic import bit_xor, multiply, shift_left, shift_right, splat_f32, splat_i32, subtract, to_f32
from ort_sdk_cpu.simd.memory import load_f32, load_i32, load_u8, prefetch, store_f32
from ort_sdk_cpu.simd.shuffles import lookup, transpose_rows

from .blocking import run_jobs
from .panels import maker_of_columns, maker_of_rows

__all__ = [
    "gemm_kn_f32_2",
    "gemm_kn_f32_4",
    "gemm_kn_f32_8",
    "gemm_nk_f32_2",
    "gemm_nk_f32_4",
    "gemm_nk_f32_8",
]

_LARGE, _SMALL = 12, 4
"""Rows of tiles."""


def _value(bits: int) -> Any:
    """Codes that start at bit ``shift`` of each lane, less half their range."""

    @inline
    def value_of_byte(codes: Any, shift: int, _table: Any) -> Any:
        # A byte has too many codes for a look-up in a register.
        return subtract(to_f32(shift_right(shift_left(codes, 24 - shift), 24)), splat_f32(np.float32(128)))

    @inline
    def value(codes: Any, shift: int, table: Any) -> Any:
        # A permutation of a register by the code: one instruction for what shift, mask, conversion and subtraction would be.
        # It ignores bits above.
        return lookup(table, shift_right(codes, shift))

    return value_of_byte if bits == 8 else value


def _values_of_rows(bits: int) -> Any:
    """16 rows and ``count`` 4-byte lanes of a weight [N, ...] into a vector of a panel."""
    per_lane, value_of = 32 // bits, _value(bits)

    @inline
    def values_of(
        args: MatMulNBits,
        codes: int,
        stride: int,
        rows: int,
        count: int,
        half: int,
        s_panel: int,
        z_panel: int,
        panel: int,
        workspace: int,
        ahead: int,
    ) -> None:
        lanes, table, panel = args.block_size * bits // 32, load_f32(args.table), panel + half * 64
        piece = min(lanes, 16)
        for start in range(0, count, piece):
            if start & 15 == 0:
                # The next panel's lines, one for each row that this one transposes.
                for line in range(16):
                    prefetch(ahead + (start + line) * 64)
                transpose_rows(codes + start * 4, stride, rows, count - start, workspace)
            place = start // lanes * 128
            scale, zero = load_f32(s_panel + place), load_f32(z_panel + place)
            for lane in range(start, start + piece):
                value = load_i32(workspace + (lane & 15) * 64)
                for part in range(per_lane):
                    # Zero points of panels count from half the codes' range, as values of codes do.
                    number = multiply(subtract(value_of(value, part * bits, table), zero), scale)
                    store_f32(panel + (lane * per_lane + part) * 128, number)

    return values_of


def _values_of_columns(bits: int) -> Any:
    """A strip of some rows of a weight [K, N] into a panel."""
    planes, value_of = 8 // bits, _value(bits)

    @inline
    def values_of(
        args: MatMulNBits, codes: int, stride: int, rows: int, count: int, s_panel: int, z_panel: int, panel: int, _ahead: int
    ) -> None:
        block, flips, table = args.block_size, splat_i32(args.sign_flip & 255), load_f32(args.table)
        pair_bytes = args.chunk * block * 128
        # Rows of a block share scales, which stay in registers or the first cache.
        for first in range(0, rows, block):
            last = min(first + block, rows)
            for row in range(first, last):
                for vector in range(4 * planes):
                    place = ((vector >> 1) * count + first // block) * 128 + (vector & 1) * 64
                    codes_of = bit_xor(load_u8(codes + row * stride + vector // planes * 16), flips)
                    value = subtract(value_of(codes_of, vector % planes * bits, table), load_f32(z_panel + place))
                    target = panel + (vector >> 1) * pair_bytes + (vector & 1) * 64 + row * 128
                    store_f32(target, multiply(value, load_f32(s_panel + place)))

    return values_of


def _finish(bits: int) -> Any:
    """Zero points count from half the codes' range, as codes do."""
    middle = np.float32(1 << (bits - 1))

    @inline
    def finish(_s_panel: int, z_panel: int, vectors: int) -> None:
        center_zeros(z_panel, vectors, middle)

    return finish


def _tile(rows: int) -> Any:
    """Products of some rows of activations, gathered, with a pair of a panel."""
    operations = tile_operations(rows)
    zero, load, store, add_outer = operations.zero_f32, operations.load, operations.store, operations.add_outer

    @inline
    def tile(panel: int, x: int, steps: int, sums: int, stride: int, begins: int) -> None:
        total = zero() if begins else load(sums, stride)
        for step in range(steps):
            total = add_outer(total, panel + step * 128, x + step * 48)
        store(sums, stride, total)

    return tile


_large, _small = _tile(_LARGE), _tile(_SMALL)


def _use(pairs: int) -> Any:
    """Products of all rows of activations with a panel."""

    @inline
    def use(
        args: MatMulNBits,
        m_first: int,
        rows: int,
        first: int,
        count: int,
        _s_panel: int,
        _z_panel: int,
        panel: int,
        target: int,
        begins: int,
    ) -> None:
        block, stride = args.block_size, pairs * 128
        pair_bytes, steps = args.chunk * block * 128, min(count * block, args.k - first * block)
        for pair in range(pairs):
            row, place = 0, panel + pair * pair_bytes
            while row < rows:
                sums, index = target + row * stride + pair * 128, m_first + row
                x = args.x + index // _LARGE * args.x_stride + index % _LARGE * 4 + first * block * 48
                # Twelve rows hide the latency of additions, and are a tile of packed rows; others go by four.
                if rows - row > 2 * _SMALL and index % _LARGE == 0:
                    _large(place, x, steps, sums, stride, begins)
                    row += _LARGE
                else:
                    _small(place, x, steps, sums, stride, begins)
                    row += _SMALL

    return use


def _task(name: str, bits: int, pairs: int, make: Any) -> Task:
    use, planes = _use(pairs), 1 if pairs == 1 else 8 // bits

    def gemm(args: MatMulNBits, thread: int, threads: int) -> None:
        run_jobs(args, thread, threads, pairs, planes, make, use)

    gemm.__name__ = f"{name}_{bits}"
    return task(gemm)


def _of_rows(bits: int) -> Task:
    return _task("gemm_nk_f32", bits, 1, maker_of_rows(bits, _values_of_rows(bits), _finish(bits)))


def _of_columns(bits: int) -> Task:
    return _task("gemm_kn_f32", bits, 2 * (8 // bits), maker_of_columns(bits, _values_of_columns(bits), _finish(bits)))


gemm_nk_f32_2, gemm_nk_f32_4, gemm_nk_f32_8 = (_of_rows(bits) for bits in (2, 4, 8))
gemm_kn_f32_2, gemm_kn_f32_4, gemm_kn_f32_8 = (_of_columns(bits) for bits in (2, 4, 8))
