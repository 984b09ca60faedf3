"""Rows and columns of float32 matrices split for a processor's matrix unit, and their products, some steps along K at a time."""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.jit import inner
from ort_sdk_cpu.simd.arithmetic import add
from ort_sdk_cpu.simd.matrix_unit import TILE_ROWS, TILE_STEPS, configure
from ort_sdk_cpu.simd.memory import load_f32, load_f32_first, store_f32
from ort_sdk_cpu.simd.shuffles import transpose_rows
from ort_sdk_cpu.simd.split_tiles import BLOCK_BYTES, BLOCK_STEPS, multiply_blocks, store_split

__all__ = [
    "SPARE_BYTES",
    "SPLIT_STEPS",
    "SPLIT_WIDTH",
    "blocks_of",
    "groups_of",
    "multiply_split",
    "split_columns",
    "split_rows",
    "split_transposed",
]

SPLIT_STEPS = 512
"""Most steps along K of what is split at a time: it stays in the second cache."""
SPLIT_WIDTH = 32
"""Columns of a panel."""


SPARE_BYTES = 64 + 2 * TILE_ROWS * SPLIT_WIDTH * 4
"""Working memory of ``multiply_split``."""


@inner
def blocks_of(steps: int) -> int:
    """Blocks along K that hold so many steps."""
    return (steps + BLOCK_STEPS - 1) // BLOCK_STEPS


@inner
def groups_of(rows: int) -> int:
    """Groups that hold so many rows."""
    return (rows + TILE_ROWS - 1) // TILE_ROWS


@inner
def split_rows(x: int, x_row: int, rows: int, steps: int, target: int, rests: Any) -> Any:
    """Split rows whose steps follow each other: for each 16, blocks along K side by side; ``rests`` as in ``store_split``."""
    group_bytes, whole = blocks_of(steps) * BLOCK_BYTES, steps // BLOCK_STEPS * BLOCK_STEPS
    for row in range(rows):
        place, to = x + row * x_row, target + row // TILE_ROWS * group_bytes + row % TILE_ROWS * 64
        for step in range(0, whole, BLOCK_STEPS):
            at = place + step * 4
            rests = store_split(load_f32(at), load_f32(at + 64), to + step // BLOCK_STEPS * BLOCK_BYTES, rests)
        if whole < steps:
            at, left = place + whole * 4, steps - whole
            low, high = load_f32_first(at, left), load_f32_first(at + 64, left - 16)
            rests = store_split(low, high, to + whole // BLOCK_STEPS * BLOCK_BYTES, rests)
    return rests


@inner
def split_columns(b: int, b_row: int, steps: int, left: int, target: int, rests: Any) -> Any:
    """Split a panel of columns that follow each other, of which ``left`` are there: zeros stand for others."""
    for block in range(blocks_of(steps)):
        for pair in range(16):
            step, to = block * BLOCK_STEPS + pair, target + 2 * block * BLOCK_BYTES + pair * 64
            place = b + step * b_row
            if left >= SPLIT_WIDTH and (block + 1) * BLOCK_STEPS <= steps:
                rests = store_split(load_f32(place), load_f32(place + 16 * b_row), to, rests)
                rests = store_split(load_f32(place + 64), load_f32(place + 16 * b_row + 64), to + BLOCK_BYTES, rests)
                continue
            low_left, high_left = left if step < steps else 0, left if step + 16 < steps else 0
            low, high = load_f32_first(place, low_left), load_f32_first(place + 16 * b_row, high_left)
            rests = store_split(low, high, to, rests)
            low, high = load_f32_first(place + 64, low_left - 16), load_f32_first(place + 16 * b_row + 64, high_left - 16)
            rests = store_split(low, high, to + BLOCK_BYTES, rests)
    return rests


@inner
def split_transposed(x: int, x_row: int, rows: int, steps: int, target: int, spare: int, rests: Any) -> Any:
    """Split up to 16 rows whose steps follow each other as columns of blocks ``2 * BLOCK_BYTES`` apart; 2 KiB to spare."""
    for block in range(blocks_of(steps)):
        place, left, to = x + block * BLOCK_STEPS * 4, steps - block * BLOCK_STEPS, target + 2 * block * BLOCK_BYTES
        transpose_rows(place, x_row, rows, left, spare)
        transpose_rows(place + 64, x_row, rows, left - 16, spare + 1024)
        for pair in range(16):
            rests = store_split(load_f32(spare + pair * 64), load_f32(spare + 1024 + pair * 64), to + pair * 64, rests)
    return rests


@inner
def _add_rows(source: int, rows: int, target: int, target_row: int) -> None:
    """Add rows of a panel's width that follow each other."""
    for row in range(rows):
        place, to = source + row * SPLIT_WIDTH * 4, target + row * target_row
        store_f32(to, add(load_f32(to), load_f32(place)))
        store_f32(to + 64, add(load_f32(to + 64), load_f32(place + 64)))


@inner
def multiply_split(
    x: int,
    rows: int,
    blocks: int,
    b: int,
    target: int,
    target_row: int,
    is_first: int,
    spare: int,
    next_b: int,
    next_row: int,
    next_panel: int,
    next_blocks: int,
    rests: Any,
) -> Any:
    """Add the product of split rows with a split panel, or write it; the next one, of so many whole blocks, is split meanwhile.

    Products of some steps are added up before they are added to others: so sums round off less. ``spare`` is the address of
    ``SPARE_BYTES``; tiles have 16 rows before and afterwards.
    """
    group_bytes, pairs = blocks * BLOCK_BYTES, (rows + 2 * TILE_ROWS - 1) // (2 * TILE_ROWS)
    stop, stage = 16 * next_blocks, spare + 64
    share = (stop + pairs * blocks - 1) // (pairs * blocks)
    for pair in range(pairs):
        left = min(2 * TILE_ROWS, rows - pair * 2 * TILE_ROWS)
        groups = groups_of(left)
        is_cut = left < groups * TILE_ROWS
        if is_cut:
            configure(spare, min(left, TILE_ROWS), max(1, left - TILE_ROWS), TILE_STEPS)
        to = target + 2 * pair * TILE_ROWS * target_row
        place, place_row = (to, target_row) if is_first else (stage, SPLIT_WIDTH * 4)
        rests = multiply_blocks(
            groups,
            blocks,
            x + 2 * pair * group_bytes,
            group_bytes,
            b,
            place,
            place_row,
            TILE_ROWS * place_row,
            next_b,
            next_row,
            next_panel,
            pair * blocks * share,
            share,
            stop,
            rests,
        )
        if not is_first:
            _add_rows(stage, left, to, target_row)
        if is_cut:
            configure(spare, TILE_ROWS, TILE_ROWS, TILE_STEPS)
    return rests
