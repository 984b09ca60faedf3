"""Activations of MatMulNBits, rows of float32, in the forms that the other tasks read.

Arguments, but for ``add_parts``: (x; rows, k, block, planes; target, scales, sums; x_stride, b_stride). ``x_stride``: bytes from
row to row of the target, ``b_stride`` of what there is of each block.
"""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.gemm.nbits.microkernels.amx_split_bf16 import DISTANCES, PARTS, TILE_NUMBERS, store_parts
from ort_sdk_cpu.gemm.nbits.microkernels.amx_values import store_rounded
from ort_sdk_cpu.gemm.nbits.microkernels.arrange_f32 import arrange_f32, arrange_i8, sum_blocks
from ort_sdk_cpu.gemm.nbits.microkernels.arrange_i8 import arrange_lanes
from ort_sdk_cpu.gemm.nbits.microkernels.fixed_point import arrange_digits
from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import Task, task
from ort_sdk_cpu.simd.amx import TILE_BYTES, TILE_ROWS
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.arithmetic import add
from ort_sdk_cpu.simd.memory import load_f32, load_f32_first, store_f32, store_f32_first
from ort_sdk_cpu.simd.shuffles import transpose_rows

__all__ = [
    "add_parts",
    "arrange_rows_f32",
    "arrange_rows_i8",
    "digits_of_rows",
    "gather_tiles",
    "lanes_of_rows_2",
    "lanes_of_rows_4",
    "lanes_of_rows_8",
    "parts_of_rows_2",
    "parts_of_rows_4",
    "parts_of_rows_8",
    "rounded_rows_2",
    "rounded_rows_4",
    "rounded_rows_8",
    "sum_rows",
]


@task
def arrange_rows_i8(record: int, part: int, parts: int) -> None:
    """``arrange_i8`` of each row."""
    rows, k, planes = argument(record, 1), argument(record, 2), argument(record, 4)
    x_stride, b_stride = argument(record, 8), argument(record, 9)
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        arrange_i8(
            argument(record, 0) + row * k * 4,
            k,
            argument(record, 3),
            planes,
            argument(record, 5) + row * x_stride,
            argument(record, 6) + row * b_stride,
            argument(record, 7) + row * b_stride,
        )


def _lanes_of_rows(bits: int) -> Task:
    arrange = arrange_lanes[8 // bits]

    def lanes_of_rows(record: int, part: int, parts: int) -> None:
        rows, k, block = argument(record, 1), argument(record, 2), argument(record, 3)
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            place, sums = argument(record, 5) + row * argument(record, 8), argument(record, 7) + row * argument(record, 9)
            arrange(argument(record, 0) + row * k * 4, k, block, place, sums)

    lanes_of_rows.__name__ += f"_{bits}"
    lanes_of_rows.__doc__ = "``arrange_lanes`` of each row; nothing is written to ``scales``."
    return task(lanes_of_rows)


lanes_of_rows_2, lanes_of_rows_4, lanes_of_rows_8 = (_lanes_of_rows(bits) for bits in (2, 4, 8))


@task
def digits_of_rows(record: int, part: int, parts: int) -> None:
    """``arrange_digits`` of each row; ``x_stride`` bytes from line to line, of which a row has six."""
    rows, k, x_stride = argument(record, 1), argument(record, 2), argument(record, 8)
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        offset = row * argument(record, 9)
        arrange_digits(
            argument(record, 0) + row * k * 4,
            k,
            argument(record, 3),
            argument(record, 4),
            argument(record, 5) + row * 6 * x_stride,
            x_stride,
            argument(record, 6) + offset,
            argument(record, 7) + offset,
        )


@task
def arrange_rows_f32(record: int, part: int, parts: int) -> None:
    """``arrange_f32`` of each row; in place of the scales there is working memory, 4 KB for each part."""
    rows, k, block, planes = argument(record, 1), argument(record, 2), argument(record, 3), argument(record, 4)
    target, spare, sums = argument(record, 5), argument(record, 6), argument(record, 7)
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        place, sum_place = target + row * argument(record, 8), sums + row * argument(record, 9)
        arrange_f32(argument(record, 0) + row * k * 4, k, block, planes, place, sum_place, spare + part * 4096)


@task
def sum_rows(record: int, part: int, parts: int) -> None:
    """``sum_blocks`` of each row."""
    rows, k = argument(record, 1), argument(record, 2)
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        sum_blocks(argument(record, 0) + row * k * 4, k, argument(record, 3), argument(record, 7) + row * argument(record, 9))


@inner
def _place_in_tiles(record: int, row: int) -> Any:
    """Address of a row in the first tile of its 16 rows."""
    return argument(record, 5) + row // TILE_ROWS * argument(record, 8) + row % TILE_ROWS * 64


def _tiles_of_rows(name: str, store: Any, tiles: int) -> Task:
    def tiles_of_rows(record: int, part: int, parts: int) -> None:
        rows, k, block = argument(record, 1), argument(record, 2), argument(record, 3)
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            place, target = argument(record, 0) + row * k * 4, _place_in_tiles(record, row)
            for step in range(0, (k + block - 1) // block * block, TILE_NUMBERS):
                first, second = load_f32_first(place + step * 4, k - step), load_f32_first(place + step * 4 + 64, k - step - 16)
                store(first, second, target + step // TILE_NUMBERS * tiles * TILE_BYTES)

    tiles_of_rows.__name__ = name
    tiles_of_rows.__doc__ = "Tiles of each row, 16 of them ``x_stride`` bytes behind those before; no scales and no sums."
    return task(tiles_of_rows)


parts_of_rows_2, parts_of_rows_4, parts_of_rows_8 = (
    _tiles_of_rows(f"parts_of_rows_{distance}", store_parts[distance], PARTS) for distance in DISTANCES
)
rounded_rows_2, rounded_rows_4, rounded_rows_8 = (
    _tiles_of_rows(f"rounded_rows_{distance}", store_rounded[distance], 1) for distance in DISTANCES
)


@inner
def _gather(x: int, k: int, rows: int, width: int, target: int, spare: int) -> None:
    """Up to ``width`` rows as [K, width]; the last of ``rows`` stands for those missing."""
    for start in range(0, k, 16):
        transpose_rows(x + start * 4, k * 4, rows, k - start, spare)
        for step in range(start, min(start + 16, k)):
            store_f32(target + step * width * 4, load_f32(spare + (step & 15) * 64))


@task
def gather_tiles(record: int, part: int, parts: int) -> None:
    """Tiles of ``planes`` rows as [K, planes], ``x_stride`` bytes from tile to tile; 1088 bytes behind each are used, too."""
    rows, k, width = argument(record, 1), argument(record, 2), argument(record, 4)
    tiles = (rows + width - 1) // width
    for tile in range(tiles * part // parts, tiles * (part + 1) // parts):
        first, target = tile * width, argument(record, 5) + tile * argument(record, 8)
        _gather(argument(record, 0) + first * k * 4, k, min(rows - first, 16), width, target, target + k * width * 4 + 64)


@task
def add_parts(record: int, part: int, parts: int) -> None:
    """(target; size; source, count): to float32 numbers those of ``count`` arrays behind each other."""
    size, source = argument(record, 1), argument(record, 2)
    vectors = (size + 15) // 16
    for vector in range(vectors * part // parts, vectors * (part + 1) // parts):
        place, left = argument(record, 0) + vector * 64, size - vector * 16
        value = load_f32_first(place, left)
        for index in range(argument(record, 3)):
            value = add(value, load_f32_first(source + index * size * 4 + vector * 64, left))
        store_f32_first(place, value, left)
