"""float16: loads that convert to float32, packing of panels, and GEMV with a float16 matrix."""

from __future__ import annotations

from typing import Any

from numba import types

from ort_sdk_cpu.jit.numba_frontend import inline

from .arithmetic import add, fused_multiply_add, multiply, reduce_add, zero_f32
from .float16_conversions import VI16, emit_widen
from .memory import (
    LAST_BYTE,
    broadcast_f32,
    emit_load,
    emit_load_masked,
    load_f32,
    load_f32_masked,
    prefetch_l2,
    store_f32,
    store_f32_masked,
    write_f32,
)
from .shuffles import transpose_rows
from .vector_types import f32x16, operation

__all__ = [
    "PACKING_WORKSPACE_BYTES",
    "gemv_f16",
    "gemv_f16_transposed",
    "load_f16",
    "load_f16_masked",
    "pack_panel_f16",
    "pack_panel_f16_transposed",
]

PACKING_WORKSPACE_BYTES = 2048
"""Bytes of workspace of ``pack_panel_f16_transposed``: a block of 16x16 float32, and its transpose."""
_BLOCK_COLUMNS = 4096
"""Columns of ``gemv_f16`` per block: their sums take 16 KiB, which stay in L1."""


@operation(f32x16, types.intp)
def load_f16(builder: Any, address: Any) -> Any:
    """16 float16, converted to float32."""
    return emit_widen(builder, emit_load(builder, address, VI16))


@operation(f32x16, types.intp, types.intp)
def load_f16_masked(builder: Any, address: Any, count: Any) -> Any:
    """The first ``count`` of 16 float16, converted to float32; zeros in the other lanes."""
    return emit_widen(builder, emit_load_masked(builder, address, count, VI16, "v16i16"))


@inline
def pack_panel_f16(b: int, b_row: int, k: int, left: int, panel: int, width: int) -> None:
    """Pack columns of a float16 matrix (k, n) into a float32 panel, and prefetch those of the next panel.

    Args:
        b: address of the first row's first column of the panel.
        b_row: bytes from row to row.
        k: number of rows.
        left: columns from the first one on; missing ones are zeros in the panel.
        panel: address of the panel (k, width).
        width: columns of the panel, a multiple of 16.
    """
    for row in range(k):
        source, target = b + row * b_row, panel + row * width * 4
        prefetch_l2(source + 4 * width + LAST_BYTE)
        for column in range(0, width, 16):
            if left - column >= 16:
                store_f32(target + column * 4, load_f16(source + column * 2))
            else:
                store_f32(target + column * 4, load_f16_masked(source + column * 2, left - column))


@inline
def pack_panel_f16_transposed(b: int, b_row: int, k: int, left: int, panel: int, width: int, spare: int) -> None:
    """Pack rows of a float16 matrix (n, k) as columns of a float32 panel, and prefetch those of the next panel.

    Args:
        b: address of the panel's first row.
        b_row: bytes from row to row.
        k: elements of a row.
        left: rows from the first one on; missing ones are undefined in the panel.
        panel: address of the panel (k, width).
        width: columns of the panel, a multiple of 16.
        spare: address of ``PACKING_WORKSPACE_BYTES`` bytes of workspace.
    """
    for first in range(0, min(width, left), 16):
        count = min(16, left - first)
        for element in range(0, k, 16):
            for row in range(count):
                source = b + (first + row) * b_row + element * 2
                prefetch_l2(source + width * b_row + LAST_BYTE)
                store_f32(spare + row * 64, load_f16_masked(source, k - element))
            transpose_rows(spare, 64, count, 16, spare + 1024)
            for index in range(min(16, k - element)):
                store_f32(panel + ((element + index) * width + first) * 4, load_f32(spare + 1024 + index * 64))


@inline
def _add_row(a: int, b: int, columns: int, c: int, is_first: int) -> None:
    """Add ``a`` times a row of ``columns`` float16 to the sums at ``c``; the first row is written there."""
    factor = broadcast_f32(a)
    for column in range(0, columns, 16):
        left = columns - column
        found = multiply(factor, load_f16_masked(b + column * 2, left))
        store_f32_masked(c + column * 4, found if is_first else add(found, load_f32_masked(c + column * 4, left)), left)


@inline
def _add_eight_rows(a: int, b: int, b_row: int, columns: int, c: int, is_first: int) -> None:
    """Add eight elements of ``a`` times eight rows to the sums at ``c``, of the columns that fill vectors."""
    p, q, r, s = broadcast_f32(a), broadcast_f32(a + 4), broadcast_f32(a + 8), broadcast_f32(a + 12)
    t, u, v, w = broadcast_f32(a + 16), broadcast_f32(a + 20), broadcast_f32(a + 24), broadcast_f32(a + 28)
    for column in range(0, columns // 16 * 16, 16):
        upper, lower, target = b + column * 2, b + 4 * b_row + column * 2, c + column * 4
        ahead = upper + 8 * b_row + LAST_BYTE
        for row in range(8):
            prefetch_l2(ahead + row * b_row)
        x = multiply(p, load_f16(upper))
        y = multiply(t, load_f16(lower))
        x = fused_multiply_add(q, load_f16(upper + b_row), x)
        y = fused_multiply_add(u, load_f16(lower + b_row), y)
        x = fused_multiply_add(r, load_f16(upper + 2 * b_row), x)
        y = fused_multiply_add(v, load_f16(lower + 2 * b_row), y)
        x = fused_multiply_add(s, load_f16(upper + 3 * b_row), x)
        y = fused_multiply_add(w, load_f16(lower + 3 * b_row), y)
        store_f32(target, add(x, y) if is_first else add(load_f32(target), add(x, y)))


@inline
def gemv_f16(a: int, b: int, b_row: int, k: int, columns: int, c: int) -> None:
    """GEMV with a float16 matrix (k, columns), in blocks of columns whose sums stay in L1.

    Args:
        a: address of the vector, ``k`` float32.
        b: address of the matrix.
        b_row: bytes from row to row of the matrix.
        k: rows of the matrix.
        columns: columns of the matrix.
        c: address of the result, ``columns`` float32.
    """
    whole = k // 8 * 8
    for first in range(0, columns, _BLOCK_COLUMNS):
        count, block, target = min(_BLOCK_COLUMNS, columns - first), b + first * 2, c + first * 4
        filled = count // 16 * 16
        for index in range(0, whole, 8):
            rows = block + index * b_row
            _add_eight_rows(a + index * 4, rows, b_row, count, target, int(index == 0))
            for row in range(8 if filled < count else 0):
                _add_row(
                    a + (index + row) * 4,
                    rows + row * b_row + filled * 2,
                    count - filled,
                    target + filled * 4,
                    int(index + row == 0),
                )
        for index in range(whole, k):
            _add_row(a + index * 4, block + index * b_row, count, target, int(index == 0))


@inline
def gemv_f16_transposed(a: int, b: int, b_row: int, k: int, rows: int, c: int) -> None:
    """GEMV with the transpose of a float16 matrix (rows, k): the dot products of a vector with its rows.

    Args:
        a: address of the vector, ``k`` float32.
        b: address of the matrix.
        b_row: bytes from row to row of the matrix.
        k: columns of the matrix.
        rows: rows of the matrix.
        c: address of the result, ``rows`` float32.
    """
    whole = k // 32 * 32
    for row in range(rows):
        source, x, y = b + row * b_row, zero_f32(), zero_f32()
        for index in range(0, whole, 32):
            x = fused_multiply_add(load_f32(a + index * 4), load_f16(source + index * 2), x)
            y = fused_multiply_add(load_f32(a + index * 4 + 64), load_f16(source + index * 2 + 32), y)
        for index in range(whole, k, 16):
            left = k - index
            x = fused_multiply_add(load_f32_masked(a + index * 4, left), load_f16_masked(source + index * 2, left), x)
        write_f32(c + row * 4, reduce_add(add(x, y)))
