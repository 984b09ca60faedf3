"""A row of activations quantized block by block, or as float32, in the order of the codes that it is multiplied with.

A *span* is 64 bytes of a weight's row: ``64 * planes`` elements, where ``planes = 8 / bits`` elements share a byte.
"""

from __future__ import annotations

import numpy as np

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.simd.arithmetic import (
    absolute,
    add,
    maximum,
    multiply,
    reduce_add,
    reduce_add_i32,
    reduce_max,
    round_to_even,
    splat_f32,
    to_i32,
    zero_f32,
    zero_i32,
)
from ort_sdk_cpu.simd.memory import load_f32, load_f32_masked, load_i32, store_f32, store_i8, store_i32, write_f32
from ort_sdk_cpu.simd.shuffles import even_bytes, odd_bytes
from ort_sdk_cpu.simd.transpose import deinterleave

__all__ = [
    "DEINTERLEAVE_BYTES",
    "clear_padding",
    "deinterleave_row",
    "padded_size",
    "quantize_row",
    "separate_planes",
    "separate_span",
    "sum_blocks",
]

DEINTERLEAVE_BYTES = 3 * 16 * 64
"""Workspace of ``deinterleave_row``."""

_LARGEST = np.float32(127)
_ZERO = np.float32(0)
_ONE = np.float32(1)


@inline
def _quantize_block(row: int, count: int, target: int, scale_place: int, sum_place: int) -> None:
    largest = zero_f32()
    for element in range(0, count, 16):
        largest = maximum(absolute(load_f32_masked(row + element * 4, count - element)), largest)
    scale = reduce_max(largest) / _LARGEST
    # A block of zeros has no scale.
    inverse = splat_f32(_ONE / scale if scale > _ZERO else _ZERO)
    total = zero_i32()
    for element in range(0, count, 16):
        codes = to_i32(round_to_even(multiply(load_f32_masked(row + element * 4, count - element), inverse)))
        # Of what is multiplied, and not of what was given: what a zero point adds to each product is taken off in full.
        total = add(total, codes)
        store_i8(target + element, codes)
    write_f32(scale_place, scale)
    write_f32(sum_place, scale * np.float32(reduce_add_i32(total)))


@inline
def separate_span(place: int, planes: int) -> None:
    """Deinterleave the elements of a span by their position in a byte."""
    # In registers: two or four vectors are taken apart by even and odd bytes, twice for four.
    if planes == 2:
        x, y = load_i32(place), load_i32(place + 64)
        store_i32(place, even_bytes(x, y))
        store_i32(place + 64, odd_bytes(x, y))
    elif planes == 4:
        x, y, z, w = load_i32(place), load_i32(place + 64), load_i32(place + 128), load_i32(place + 192)
        even, more_even, odd, more_odd = even_bytes(x, y), even_bytes(z, w), odd_bytes(x, y), odd_bytes(z, w)
        store_i32(place, even_bytes(even, more_even))
        store_i32(place + 64, even_bytes(odd, more_odd))
        store_i32(place + 128, odd_bytes(even, more_even))
        store_i32(place + 192, odd_bytes(odd, more_odd))


@inline
def padded_size(size: int, block: int, planes: int) -> int:
    """Elements of whole spans that cover whole blocks."""
    span = 64 * planes
    return ((size + block - 1) // block * block + span - 1) // span * span


@inline
def clear_padding(target: int, size: int, block: int, planes: int) -> None:
    """Zeros behind the vectors of a row's int8, up to whole spans that cover whole blocks."""
    # Behind K the weight has anything: zeros keep it out of sums.
    for start in range((size + 15) // 16 * 16, padded_size(size, block, planes), 16):
        store_i8(target + start, zero_i32())


@inline
def separate_planes(target: int, size: int, block: int, planes: int) -> None:
    """Deinterleave the elements of a row's spans by their position in a byte."""
    for start in range(0, padded_size(size, block, planes), 64 * planes):
        separate_span(target + start, planes)


@inline
def quantize_row(row: int, size: int, block: int, planes: int, target: int, scales: int, sums: int) -> None:
    """Quantize a row to int8, block by block, and deinterleave the elements that share a byte of the weight.

    Args:
        row: address of ``size`` float32.
        size: elements.
        block: elements with one scale; a multiple of 16.
        planes: elements that share a byte.
        target: spans of 64 * planes int8; in each, for each position in a byte, the 64 elements that have it. As many
            as cover whole blocks, zeros behind the last element.
        scales: float32 scale of each block: largest magnitude / 127.
        sums: float32 sum of each block's quantized elements times its scale.
    """
    for start in range(0, size, block):
        place = start // block * 4
        _quantize_block(row + start * 4, min(block, size - start), target + start, scales + place, sums + place)
    clear_padding(target, size, block, planes)
    separate_planes(target, size, block, planes)


@inline
def sum_blocks(row: int, size: int, block: int, sums: int) -> None:
    """Sums of the blocks of a row of float32 and, behind them, of all: infinite or NaN if one of them is."""
    # Tells in one number whether all are finite.
    whole = np.float32(0)
    for start in range(0, size, block):
        total = zero_f32()
        for element in range(start, min(start + block, size), 16):
            total = add(total, load_f32_masked(row + element * 4, size - element))
        value = reduce_add(total)
        whole += value
        write_f32(sums, value)
        sums += 4
    write_f32(sums, whole)


@inline
def deinterleave_row(row: int, size: int, block: int, planes: int, target: int, sums: int, workspace: int) -> None:
    """Deinterleave the elements that share 4 bytes of the weight.

    Args:
        row, size, block, planes: as for ``quantize_row``.
        target: spans of 64 * planes float32; in each, for each position in 4 bytes, the 16 elements that have it. As
            many as cover whole blocks, zeros behind the last element.
        sums: as of ``sum_blocks``.
        workspace: workspace of ``DEINTERLEAVE_BYTES``.
    """
    vectors = 4 * planes
    for start in range(0, size, 16 * vectors):
        for part in range(vectors):
            element = start + part * 16
            store_f32(workspace + part * 64, load_f32_masked(row + element * 4, size - element))
        place = deinterleave(workspace, workspace + 1024, workspace + 2048, vectors, vectors)
        for part in range(vectors):
            store_f32(target + start * 4 + part * 64, load_f32(place + part * 64))
    for start in range((size + 16 * vectors - 1) // (16 * vectors) * 16 * vectors, padded_size(size, block, planes), 16):
        store_f32(target + start * 4, zero_f32())
    sum_blocks(row, size, block, sums)
