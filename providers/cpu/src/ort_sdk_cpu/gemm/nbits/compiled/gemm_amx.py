"""GEMM of MatMulNBits on the processor's matrix unit (AMX), which multiplies tiles of bfloat16. For the loops see ``blocking``.

*bf16x3* is as exact as float32: a panel has codes less their zero points, whole numbers of 8 bits, which bfloat16 holds; each
activation is the sum of three bfloat16 (Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For
Higher-Precision Computations", 2019, have both operands in three), and a block's scales are for its sums of products. *bf16*
rounds both a panel's dequantized weights and activations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.gemm.nbits.arguments.matmul_nbits import MatMulNBits
from ort_sdk_cpu.gemm.nbits.microkernels import amx_codes, amx_values
from ort_sdk_cpu.gemm.nbits.microkernels.amx_codes import WIDTHS, offset_of, shift_of
from ort_sdk_cpu.gemm.nbits.microkernels.amx_split_bf16 import TERMS, TILE_STEPS_BF16, multiply_codes
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import Task, task
from ort_sdk_cpu.platform.targets import InstructionSet
from ort_sdk_cpu.simd.amx import TILE_BYTES, TILE_K_GROUPS, TILE_ROWS, configure_tiles, release_tiles
from ort_sdk_cpu.simd.arithmetic import multiply, splat_f32, zero_f32
from ort_sdk_cpu.simd.memory import load_f32, load_i32, prefetch_l2, store_f32, store_i32
from ort_sdk_cpu.simd.shuffles import transpose_rows

from .blocking import run_jobs
from .panels import maker_of_columns, maker_of_rows

__all__ = [
    "NEEDS",
    "gemm_kn_bf16_2",
    "gemm_kn_bf16_4",
    "gemm_kn_bf16_8",
    "gemm_kn_bf16x3_2",
    "gemm_kn_bf16x3_4",
    "gemm_kn_bf16x3_8",
    "gemm_nk_bf16_2",
    "gemm_nk_bf16_4",
    "gemm_nk_bf16_8",
    "gemm_nk_bf16x3_2",
    "gemm_nk_bf16x3_4",
    "gemm_nk_bf16x3_8",
]

NEEDS = InstructionSet.AMX
"""The level that the module's tasks need: no code is made of them for others."""

_STEP_BYTES = 2 * TILE_BYTES // TILE_STEPS_BF16
"""Of 32 columns of a panel, for each step along K."""
# Four rows are unpacked at a time: these are eight turns of that loop.
_AHEAD = 32
"""Rows of a weight [K, N] that are prefetched ahead."""
# Asking for both lines gained a quarter for KN weights.
_LAST_BYTE = 63
"""Of a vector: weights of model files begin at any byte, so that a vector is in two cache lines."""
_multiply_group, _multiply_two_groups = (amx_values.multiply_bf16[groups] for groups in (1, 2))
"""Compiled code needs a name for each."""


def _finish_bf16x3(bits: int) -> Any:
    """Zero points as ``code_tiles`` takes them, and scales of what it makes of codes."""
    offsets, factor = offset_of[bits], np.float32(1 << shift_of(bits))

    @inline
    def finish(s_panel: int, z_panel: int, vectors: int) -> None:
        for vector in range(vectors):
            place = z_panel + vector * 64
            store_i32(place, offsets(load_f32(place)))
            store_f32(s_panel + vector * 64, multiply(load_f32(s_panel + vector * 64), splat_f32(factor)))

    return finish


@inline
def _finish_bf16(s_panel: int, z_panel: int, vectors: int) -> None:
    """Offsets of weights from their scaled codes, in place of zero points."""
    for vector in range(vectors):
        place = z_panel + vector * 64
        store_f32(place, multiply(multiply(load_f32(place), load_f32(s_panel + vector * 64)), splat_f32(np.float32(-1))))


def _fill_by_rows(bits: int, store: Any) -> Any:
    """16 rows and ``count`` 4-byte lanes of a weight [N, ...] into a vector of a panel."""
    lane_bytes = TILE_BYTES // bits

    @inline
    def fill(
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
        lanes, first = args.block_size * bits // 32, panel + half * TILE_BYTES
        # Lanes of one block share scales and zero points.
        piece = min(lanes, 16)
        for start in range(0, count, piece):
            # A transpose has 16 lanes, of one block or of several.
            if start & 15 == 0:
                for row in range(16):
                    wanted = ahead + row * stride + start * 4
                    prefetch_l2(wanted)
                    prefetch_l2(wanted + _LAST_BYTE)
                transpose_rows(codes + start * 4, stride, rows, count - start, workspace)
            block = start // lanes * 128
            for lane in range(start, start + piece):
                target = first + lane // bits * 2 * TILE_BYTES + lane % bits * lane_bytes
                store(load_i32(workspace + (lane & 15) * 64), s_panel + block, z_panel + block, target)

    return fill


def _fill_by_columns(store: Any) -> Any:
    """A strip of some rows of a weight [K, N] into a panel; the last row stands for those that blocks lack, which zeros meet."""

    @inline
    def fill(
        args: MatMulNBits, codes: int, stride: int, rows: int, count: int, s_panel: int, z_panel: int, panel: int, ahead: int
    ) -> None:
        block, flip = args.block_size, args.sign_flip
        pair_bytes = args.chunk * block * _STEP_BYTES
        # Four rows make pairs of steps, as codes of four rows are interleaved in registers.
        for row in range(0, count * block, 4):
            for line in range(row + _AHEAD, row + _AHEAD + 4):
                wanted = codes + line * stride if line < rows else ahead + (line - rows) * stride
                prefetch_l2(wanted)
                prefetch_l2(wanted + _LAST_BYTE)
            place, scales, offsets = min(row, rows - 1), s_panel + row // block * 128, z_panel + row // block * 128
            target = panel + row // TILE_STEPS_BF16 * 2 * TILE_BYTES + row % TILE_STEPS_BF16 // 4 * 128
            store(codes + place * stride, stride, max(1, rows - row), flip, scales, offsets, count * 128, target, pair_bytes)

    return fill


@inline
def _start_sums(target: int, stride: int) -> None:
    for row in range(TILE_ROWS):
        store_f32(target + row * stride, zero_f32())
        store_f32(target + row * stride + 64, zero_f32())


@inline
def _multiply_bf16x3(
    count: int, steps: int, x: int, _x_stride: int, _rows: int, panel: int, scales: int, sums: int, stride: int, stage: int
) -> None:
    multiply_codes(count, steps, x, panel, scales, sums, stride, stage)


@inline
def _multiply_bf16(
    count: int, steps: int, x: int, x_stride: int, rows: int, panel: int, _scales: int, sums: int, stride: int, _stage: int
) -> None:
    # Two groups of rows take all eight tile registers: each tile of the panel is loaded for both.
    if rows > TILE_ROWS:
        _multiply_two_groups(count * steps, x, x_stride, panel, sums, stride)
    else:
        _multiply_group(count * steps, x, x_stride, panel, sums, stride)


def _use(pairs: int, parts: int, at_once: int, multiply_tiles: Any) -> Any:
    """Products of all rows of activations, ``parts`` tiles for each of the panel's, with a panel, so many rows ``at_once``."""

    @inline
    def use(
        args: MatMulNBits,
        m_first: int,
        rows: int,
        first: int,
        count: int,
        s_panel: int,
        _z_panel: int,
        panel: int,
        target: int,
        begins: int,
    ) -> None:
        steps, stride, x_stride = args.block_size // TILE_STEPS_BF16, pairs * 128, args.x_stride
        pair_bytes = args.chunk * steps * 2 * TILE_BYTES
        stage, start = panel + pairs * pair_bytes, args.x + first * steps * parts * TILE_BYTES
        for row in range(0, rows, at_once):
            x, left = start + (m_first + row) // TILE_ROWS * x_stride, min(rows - row, at_once)
            for pair in range(pairs):
                sums, place, scales = target + row * stride + pair * 128, panel + pair * pair_bytes, s_panel + pair * count * 128
                # Micro-kernels add to what is there.
                if begins:
                    for group in range(0, left, TILE_ROWS):
                        _start_sums(sums + group * stride, stride)
                multiply_tiles(count, steps, x, x_stride, left, place, scales, sums, stride, stage)

    return use


def _use_bf16x3(pairs: int) -> Any:
    return _use(pairs, TERMS, TILE_ROWS, _multiply_bf16x3)


def _use_bf16(pairs: int) -> Any:
    return _use(pairs, 1, 2 * TILE_ROWS, _multiply_bf16)


def _task(name: str, bits: int, pairs: int, make: Any, use: Any) -> Task:
    planes = 1 if pairs == 1 else 8 // bits

    def gemm(args: MatMulNBits, thread: int, threads: int) -> None:
        jobs = args.k_parts * args.n_parts
        # The unit's state is a thread's own; released after, so that the system need not save it at each switch.
        configure_tiles(args.workspace + jobs * thread // threads * args.workspace_stride, TILE_ROWS, TILE_ROWS, TILE_K_GROUPS)
        run_jobs(args, thread, threads, pairs, planes, make, use)
        release_tiles()

    gemm.__name__ = f"{name}_{bits}"
    return task(gemm)


def _of_rows(name: str, bits: int, store: Any, finish: Any, use: Any) -> Task:
    make = maker_of_rows(bits, _fill_by_rows(bits, store), finish, takes_turns=True)
    return _task(f"gemm_nk_{name}", bits, 1, make, use(1))


def _of_columns(name: str, bits: int, store: Any, finish: Any, use: Any) -> Task:
    make, pairs = maker_of_columns(bits, _fill_by_columns(store), finish, takes_turns=True), 2 * (8 // bits)
    return _task(f"gemm_kn_{name}", bits, pairs, make, use(pairs))


gemm_nk_bf16x3_2, gemm_nk_bf16x3_4, gemm_nk_bf16x3_8 = (
    _of_rows("bf16x3", bits, amx_codes.store_lanes[bits], _finish_bf16x3(bits), _use_bf16x3) for bits in WIDTHS
)
gemm_kn_bf16x3_2, gemm_kn_bf16x3_4, gemm_kn_bf16x3_8 = (
    _of_columns("bf16x3", bits, amx_codes.store_columns[bits], _finish_bf16x3(bits), _use_bf16x3) for bits in WIDTHS
)
gemm_nk_bf16_2, gemm_nk_bf16_4, gemm_nk_bf16_8 = (
    _of_rows("bf16", bits, amx_values.store_lanes[bits], _finish_bf16, _use_bf16) for bits in WIDTHS
)
gemm_kn_bf16_2, gemm_kn_bf16_4, gemm_kn_bf16_8 = (
    _of_columns("bf16", bits, amx_values.store_columns[bits], _finish_bf16, _use_bf16) for bits in WIDTHS
)
