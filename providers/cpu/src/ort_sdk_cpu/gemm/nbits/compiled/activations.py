"""Activations of MatMulNBits, rows of float32, in the forms that GEMMs and GEMVs read. Threads share the rows.

Activations are few beside a weight: what the innermost loops would have to do for each row of the weight is done here once.
"""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.gemm.nbits.arguments.activations import Activations, AddPartials
from ort_sdk_cpu.gemm.nbits.arguments.gemv_nk_i32 import LINES
from ort_sdk_cpu.gemm.nbits.arguments.matmul_nbits import WORKSPACE_START
from ort_sdk_cpu.gemm.nbits.microkernels.amx_split_bf16 import DISTANCES, TERMS, TILE_STEPS_BF16, store_split
from ort_sdk_cpu.gemm.nbits.microkernels.amx_values import store_bf16
from ort_sdk_cpu.gemm.nbits.microkernels.quantize_blocks import deinterleave_row, quantize_row, sum_blocks
from ort_sdk_cpu.gemm.nbits.microkernels.quantize_lanes import quantize_row_by_lanes
from ort_sdk_cpu.gemm.nbits.microkernels.quantize_limbs import quantize_row_to_limbs
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import Task, task
from ort_sdk_cpu.platform.targets import InstructionSet
from ort_sdk_cpu.simd.amx import TILE_BYTES, TILE_ROWS
from ort_sdk_cpu.simd.arithmetic import add
from ort_sdk_cpu.simd.memory import load_f32, load_f32_masked, store_f32, store_f32_masked
from ort_sdk_cpu.simd.shuffles import transpose_rows

__all__ = [
    "add_partials",
    "block_sums",
    "deinterleave_f32",
    "pack_rows_f32",
    "quantize_blocks",
    "quantize_lanes_2",
    "quantize_lanes_4",
    "quantize_lanes_8",
    "quantize_limbs",
    "round_bf16_2",
    "round_bf16_4",
    "round_bf16_8",
    "split_bf16_2",
    "split_bf16_4",
    "split_bf16_8",
]


@task
def quantize_blocks(args: Activations, thread: int, threads: int) -> None:
    """``quantize_row`` of each row."""
    # Whole rows to a thread: blocks, lanes and padding of one are one loop.
    rows, k, planes = args.rows, args.k, args.planes
    x_stride, b_stride = args.x_stride, args.block_stride
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        quantize_row(
            args.x + row * k * 4,
            k,
            args.block_size,
            planes,
            args.target + row * x_stride,
            args.scales + row * b_stride,
            args.sums + row * b_stride,
        )


def _quantize_lanes(bits: int) -> Task:
    # A closure for each number of bits: in compiled code it is a constant.
    arrange = quantize_row_by_lanes[8 // bits]

    def quantize_lanes(args: Activations, thread: int, threads: int) -> None:
        rows, k, block = args.rows, args.k, args.block_size
        for row in range(rows * thread // threads, rows * (thread + 1) // threads):
            place, sums = args.target + row * args.x_stride, args.sums + row * args.block_stride
            arrange(args.x + row * k * 4, k, block, place, sums)

    quantize_lanes.__name__ += f"_{bits}"
    quantize_lanes.__doc__ = "``quantize_row_by_lanes`` of each row; nothing is written to ``scales``."
    return task(quantize_lanes)


quantize_lanes_2, quantize_lanes_4, quantize_lanes_8 = (_quantize_lanes(bits) for bits in (2, 4, 8))


@task
def quantize_limbs(args: Activations, thread: int, threads: int) -> None:
    """``quantize_row_to_limbs`` of each row; ``x_stride`` bytes from line to line, of which a row has ``LINES``."""
    rows, k, x_stride = args.rows, args.k, args.x_stride
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        # Scales and sums of a row are whole vectors apart, so that threads do not share cache lines of them.
        offset = row * args.block_stride
        quantize_row_to_limbs(
            args.x + row * k * 4,
            k,
            args.block_size,
            args.planes,
            args.target + row * LINES * x_stride,
            x_stride,
            args.scales + offset,
            args.sums + offset,
        )


@task
def deinterleave_f32(args: Activations, thread: int, threads: int) -> None:
    """``deinterleave_row`` of each row; in place of scales there is workspace, ``WORKSPACE_START`` bytes of each thread."""
    rows, k, block, planes = args.rows, args.k, args.block_size, args.planes
    target, workspace, sums = args.target, args.scales, args.sums
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        place, sum_place = target + row * args.x_stride, sums + row * args.block_stride
        deinterleave_row(args.x + row * k * 4, k, block, planes, place, sum_place, workspace + thread * WORKSPACE_START)


@task
def block_sums(args: Activations, thread: int, threads: int) -> None:
    """``sum_blocks`` of each row."""
    rows, k = args.rows, args.k
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        sum_blocks(args.x + row * k * 4, k, args.block_size, args.sums + row * args.block_stride)


@inline
def _tile_row(args: Activations, row: int) -> Any:
    """Address of a row in the first tile of its 16 rows."""
    return args.target + row // TILE_ROWS * args.x_stride + row % TILE_ROWS * 64


def _bf16_tiles(name: str, store: Any, tiles: int) -> Task:
    def bf16_tiles(args: Activations, thread: int, threads: int) -> None:
        rows, k, block = args.rows, args.k, args.block_size
        for row in range(rows * thread // threads, rows * (thread + 1) // threads):
            place, target = args.x + row * k * 4, _tile_row(args, row)
            # Behind K, zeros: tiles of the weight may have anything there.
            for step in range(0, (k + block - 1) // block * block, TILE_STEPS_BF16):
                first, second = load_f32_masked(place + step * 4, k - step), load_f32_masked(place + step * 4 + 64, k - step - 16)
                store(first, second, target + step // TILE_STEPS_BF16 * tiles * TILE_BYTES)

    bf16_tiles.__name__ = name
    bf16_tiles.__doc__ = "Tiles of each row for AMX, 16 rows ``x_stride`` bytes behind those before; no scales and no sums."
    return task(bf16_tiles, needs=InstructionSet.AMX)


split_bf16_2, split_bf16_4, split_bf16_8 = (
    _bf16_tiles(f"split_bf16_{distance}", store_split[distance], TERMS) for distance in DISTANCES
)
round_bf16_2, round_bf16_4, round_bf16_8 = (
    _bf16_tiles(f"round_bf16_{distance}", store_bf16[distance], 1) for distance in DISTANCES
)


@inline
def _pack(x: int, k: int, rows: int, width: int, target: int, workspace: int) -> None:
    """Up to ``width`` rows as [K, width]; the last of ``rows`` stands for those missing."""
    # By 16 steps: a transpose of 16 by 16 in registers, then a store for each step.
    for start in range(0, k, 16):
        transpose_rows(x + start * 4, k * 4, rows, k - start, workspace)
        for step in range(start, min(start + 16, k)):
            store_f32(target + step * width * 4, load_f32(workspace + (step & 15) * 64))


@task
def pack_rows_f32(args: Activations, thread: int, threads: int) -> None:
    """Tiles of ``planes`` rows as [K, planes], ``x_stride`` bytes from tile to tile; 1,088 bytes behind each are workspace."""
    rows, k, width = args.rows, args.k, args.planes
    tiles = (rows + width - 1) // width
    for tile in range(tiles * thread // threads, tiles * (thread + 1) // threads):
        first, target = tile * width, args.target + tile * args.x_stride
        _pack(args.x + first * k * 4, k, min(rows - first, 16), width, target, target + k * width * 4 + 64)


@task
def add_partials(args: AddPartials, thread: int, threads: int) -> None:
    """Results of parts of K: to float32 numbers those of ``count`` arrays behind each other, in their order."""
    size, source = args.size, args.source
    # In the order of parts of K: results do not depend on threads.
    vectors = (size + 15) // 16
    for vector in range(vectors * thread // threads, vectors * (thread + 1) // threads):
        place, left = args.target + vector * 64, size - vector * 16
        value = load_f32_masked(place, left)
        for index in range(args.count):
            value = add(value, load_f32_masked(source + index * size * 4 + vector * 64, left))
        store_f32_masked(place, value, left)
