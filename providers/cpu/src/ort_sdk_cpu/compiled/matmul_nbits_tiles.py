"""MatMulNBits on the processor's matrix unit (AMX), by panels of the weight. For the order see ``simd.panel_order``.

A panel has codes less their zero points, which are whole numbers; the scales of its blocks are for sums of products.

Arguments: see ``simd.nbits_arguments``; ``X`` is of ``parts_of_rows``: tiles of 16 rows of activations, ``X_STRIDE`` bytes each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit import inner
from ort_sdk_cpu.machine_code import Task, task
from ort_sdk_cpu.simd.arithmetic import multiply, splat_f32, zero_f32
from ort_sdk_cpu.simd.code_tiles import offset_of, shift_of, store_columns, store_lanes
from ort_sdk_cpu.simd.matrix_unit import TILE_BYTES, TILE_ROWS, TILE_STEPS, configure, release
from ort_sdk_cpu.simd.memory import load_f32, load_i32, prefetch_second, store_f32, store_i32
from ort_sdk_cpu.simd.nbits_arguments import (
    BLOCK,
    CHUNK,
    FLIP,
    K_PARTS,
    N_PARTS,
    WORK,
    WORK_STRIDE,
    X_STRIDE,
    X,
)
from ort_sdk_cpu.simd.panel_order import run_jobs
from ort_sdk_cpu.simd.part_tiles import PARTS, TILE_NUMBERS, multiply_codes
from ort_sdk_cpu.simd.records import argument
from ort_sdk_cpu.simd.shuffles import transpose_rows

from .matmul_nbits_panels import maker_of_columns, maker_of_rows

__all__ = [
    "tiles_of_columns_2",
    "tiles_of_columns_4",
    "tiles_of_columns_8",
    "tiles_of_rows_2",
    "tiles_of_rows_4",
    "tiles_of_rows_8",
]

_STEP_BYTES = 2 * TILE_BYTES // TILE_NUMBERS
"""Of 32 columns of a panel, for each step along K."""


def _finish(bits: int) -> Any:
    """Zero points as ``store_lanes`` takes them, and scales of the numbers that it makes."""
    offsets, factor = offset_of[bits], np.float32(1 << shift_of(bits))

    @inner
    def finish(s_panel: int, z_panel: int, vectors: int) -> None:
        for vector in range(vectors):
            place = z_panel + vector * 64
            store_i32(place, offsets(load_f32(place)))
            store_f32(s_panel + vector * 64, multiply(load_f32(s_panel + vector * 64), splat_f32(factor)))

    return finish


def _codes_of_rows(bits: int) -> Any:
    """16 rows and ``count`` 4-byte lanes of a weight [N, ...] into a vector of a panel."""
    store, lane_bytes = store_lanes[bits], TILE_BYTES // bits

    @inner
    def codes_of(
        record: int,
        codes: int,
        stride: int,
        rows: int,
        count: int,
        half: int,
        _s_panel: int,
        z_panel: int,
        panel: int,
        spare: int,
        soon: int,
    ) -> None:
        lanes, first = argument(record, BLOCK) * bits // 32, panel + half * TILE_BYTES
        piece = min(lanes, 16)
        for start in range(0, count, piece):
            if start & 15 == 0:
                for row in range(16):
                    prefetch_second(soon + row * stride + start * 4)
                transpose_rows(codes + start * 4, stride, rows, count - start, spare)
            offset = load_i32(z_panel + start // lanes * 128)
            for lane in range(start, start + piece):
                target = first + lane // bits * 2 * TILE_BYTES + lane % bits * lane_bytes
                store(load_i32(spare + (lane & 15) * 64), offset, target)

    return codes_of


def _codes_of_columns(bits: int) -> Any:
    """A strip of some rows of a weight [K, N] into a panel; the last row stands for those that blocks lack, which zeros meet."""
    store = store_columns[bits]

    @inner
    def codes_of(
        record: int, codes: int, stride: int, rows: int, count: int, _s_panel: int, z_panel: int, panel: int, soon: int
    ) -> None:
        block, flip = argument(record, BLOCK), argument(record, FLIP)
        pair_bytes = argument(record, CHUNK) * block * _STEP_BYTES
        for row in range(0, count * block, 4):
            for line in range(row, row + 4):
                prefetch_second(soon + line * stride)
            place, offsets = min(row, rows - 1), z_panel + row // block * 128
            target = panel + row // TILE_NUMBERS * 2 * TILE_BYTES + row % TILE_NUMBERS // 4 * 128
            store(codes + place * stride, stride, max(1, rows - row), flip, offsets, count * 128, target, pair_bytes)

    return codes_of


@inner
def _start_sums(target: int, stride: int) -> None:
    for row in range(TILE_ROWS):
        store_f32(target + row * stride, zero_f32())
        store_f32(target + row * stride + 64, zero_f32())


def _use(pairs: int) -> Any:
    """Products of all rows of activations with a panel."""

    @inner
    def use(
        record: int,
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
        steps, stride, x_stride = argument(record, BLOCK) // TILE_NUMBERS, pairs * 128, argument(record, X_STRIDE)
        pair_bytes = argument(record, CHUNK) * steps * 2 * TILE_BYTES
        stage, start = panel + pairs * pair_bytes, argument(record, X) + first * steps * PARTS * TILE_BYTES
        for row in range(0, rows, TILE_ROWS):
            x = start + (m_first + row) // TILE_ROWS * x_stride
            for pair in range(pairs):
                sums, place, scales = target + row * stride + pair * 128, panel + pair * pair_bytes, s_panel + pair * count * 128
                if begins:
                    _start_sums(sums, stride)
                multiply_codes(count, steps, x, place, scales, sums, stride, stage)

    return use


def _task(name: str, bits: int, pairs: int, make: Any) -> Task:
    use, planes = _use(pairs), 1 if pairs == 1 else 8 // bits

    def tiles(record: int, part: int, parts: int) -> None:
        jobs = argument(record, K_PARTS) * argument(record, N_PARTS)
        configure(argument(record, WORK) + jobs * part // parts * argument(record, WORK_STRIDE), TILE_ROWS, TILE_ROWS, TILE_STEPS)
        run_jobs(record, part, parts, pairs, planes, make, use)
        release()

    tiles.__name__ = f"{name}_{bits}"
    return task(tiles)


def _of_rows(bits: int) -> Task:
    make = maker_of_rows(bits, _codes_of_rows(bits), _finish(bits), takes_turns=True)
    return _task("tiles_of_rows", bits, 1, make)


def _of_columns(bits: int) -> Task:
    make = maker_of_columns(bits, _codes_of_columns(bits), _finish(bits), takes_turns=True)
    return _task("tiles_of_columns", bits, 2 * (8 // bits), make)


tiles_of_rows_2, tiles_of_rows_4, tiles_of_rows_8 = (_of_rows(bits) for bits in (2, 4, 8))
tiles_of_columns_2, tiles_of_columns_4, tiles_of_columns_8 = (_of_columns(bits) for bits in (2, 4, 8))
