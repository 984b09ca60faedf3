"""Calls of the compiled kernels of MatMulNBits, with their working memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.opset.contrib.matmul_nbits import BlockWeight
from ort_sdk_cpu import jit, libraries

from .matmul_nbits_operands import Operands
from .scratch import Scratch

__all__ = ["NBitsProduct", "Product", "address"]

Product = Callable[[int, int, int], None]
"""``product(a, bias, out)``: addresses."""

FEW_ROWS = {(False, False): 4, (False, True): 8, (True, False): 12, (True, True): 16}
"""Most rows of activations for which no panels are made, by whether products are of float32, and the weight is [K, N]: so far
panels cost more than they gain."""
ROWS_AT_ONCE = 192
"""Rows of activations a panel is used for; a multiple of both kinds of tile."""
TILE_ROWS = {False: 6, True: 12}
"""Rows of a tile, by whether products are of float32."""
PANEL_BYTES = {False: 96 << 10, True: 128 << 10}
"""Size of a panel, by the same: a part of a core's second cache."""
SLACK_BYTES = 64 * 128
SPARE_BYTES = 4096
GATHER_BYTES = 64 + 1024
"""Working memory behind a tile's activations."""
SPAN_BYTES = 64
MINIMAL_CHUNK = 4
"""Blocks: the zero points of so many begin at a byte."""
WORK_PER_PART = 1 << 16
"""Elements of the weight, times rows of activations, below which another thread costs more than it gains."""


class NBitsProduct:
    """Products with weights of one shape.

    Args:
        weight: its attributes.
        is_exact: activations are used as they are, not quantised to 8 bits.
        scratch: working memory.
    """

    def __init__(self, weight: BlockWeight, scratch: Scratch, *, is_exact: bool) -> None:
        self._weight = weight
        self._is_exact = is_exact
        self._scratch = scratch
        self._planes = 8 // weight.bits
        codes, half = np.arange(16) & ((1 << weight.bits) - 1), 1 << (weight.bits - 1)
        self._table = (codes - half).astype(np.float32)
        lanes = weight.block_size * weight.bits // 32
        self._indices = (np.arange(16 * lanes) // lanes).astype(np.int32)

    def bind(self, operands: Operands, rows: int) -> Product:
        """A product with a weight for a number of rows of activations, at least one, and at least one column.

        The call reads and writes at addresses, of contiguous float32 arrays: activations (rows, K), bias (N,) or 0, result.
        """
        if rows <= FEW_ROWS[self._is_exact, operands.by_columns]:
            return self._few_columns(operands, rows) if operands.by_columns else self._few_rows(operands, rows)
        return self._panels_f32(operands, rows) if self._is_exact else self._panels_i8(operands, rows)

    def _parts(self, rows: int) -> int:
        work = rows * self._weight.size_n * self._weight.size_k
        return max(1, min(libraries.thread_count(), work // WORK_PER_PART))

    def _few_rows(self, operands: Operands, rows: int) -> Product:
        weight, block_bytes, parts = self._weight, self._block_bytes(), self._parts(rows)
        x_stride = _padded(weight.blocks * weight.block_size, SPAN_BYTES * self._planes) * (4 if self._is_exact else 1)
        arrays = tuple(address(array) for array in (operands.codes, operands.scales, operands.zero_points))
        sizes = (rows, weight.size_n, weight.size_k, weight.block_size, weight.bits)
        kinds = (operands.zero_points_kind, operands.zero_points_stride, address(self._indices))
        table, spare = address(self._table), SPARE_BYTES if self._is_exact else rows * block_bytes
        run = _kernel("rows", "rows_f32" if self._is_exact else "rows_i8")

        def product(a: int, bias: int, out: int) -> None:
            x_codes, sums, other = self._buffers(rows * x_stride, rows * block_bytes, spare)
            common = (a, *arrays, bias, out, *sizes, *kinds, x_codes)
            if self._is_exact:
                run(*common, table, sums, x_stride, block_bytes, other, parts)
            else:
                run(*common, other, sums, x_stride, block_bytes, parts)

        return product

    def _few_columns(self, operands: Operands, rows: int) -> Product:
        weight, block_bytes, parts = self._weight, self._block_bytes(), self._parts(rows)
        x_stride = _padded(weight.blocks * weight.block_size, SPAN_BYTES)
        codes, others = (
            self._weight_arguments(operands),
            (weight.block_size, weight.bits, operands.default_zero_point, operands.flip),
        )
        sizes = (rows, weight.size_n, weight.size_k)
        strips = math.ceil(operands.codes_stride / SPAN_BYTES)
        work_stride = SPARE_BYTES + 2 * rows * math.ceil(strips / parts) * 256 * self._planes
        table = np.roll(self._table, len(self._table) // 2 if weight.bits == 4 else 2) if operands.flip else self._table
        run = _kernel("columns", "columns_f32" if self._is_exact else "columns_i8")

        def product(a: int, bias: int, out: int) -> None:
            x_codes, scales, sums, work = self._buffers(
                0 if self._is_exact else rows * x_stride, rows * block_bytes, rows * block_bytes, work_stride * parts
            )
            common = (a, *codes, bias, out, *sizes, *others)
            if self._is_exact:
                run(*common, address(table), sums, block_bytes, work, work_stride, parts)
            else:
                run(*common, x_codes, scales, sums, x_stride, block_bytes, work, work_stride, parts)

        return product

    def _panels_i8(self, operands: Operands, rows: int) -> Product:
        weight, parts, block_bytes = self._weight, self._parts(rows), self._block_bytes()
        padded, m_step, work_stride, codes, others = self._panel_arguments(operands, rows)
        planes = 1 if operands.by_columns else self._planes
        x_stride = _padded(weight.blocks * weight.block_size, SPAN_BYTES * planes)
        run = _kernel("panels", "panels_i8")

        def product(a: int, bias: int, out: int) -> None:
            x_codes, scales, sums, work = self._buffers(
                padded * x_stride, padded * block_bytes, padded * block_bytes, work_stride * parts
            )
            run(a, *codes, bias, out, *others, x_codes, scales, sums, x_stride, block_bytes, m_step, work, work_stride, parts)

        return product

    def _panels_f32(self, operands: Operands, rows: int) -> Product:
        weight, parts, table = self._weight, self._parts(rows), address(self._table)
        padded, m_step, work_stride, codes, others = self._panel_arguments(operands, rows)
        x_stride = weight.size_k * 4 * TILE_ROWS[True] + GATHER_BYTES
        run = _kernel("panels", "panels_f32")

        def product(a: int, bias: int, out: int) -> None:
            x_rows, work = self._buffers(padded // TILE_ROWS[True] * x_stride, work_stride * parts)
            run(a, *codes, bias, out, *others, x_rows, x_stride, table, m_step, work, work_stride, parts)

        return product

    def _panel_arguments(self, operands: Operands, rows: int) -> tuple[int, int, int, tuple[int, ...], tuple[int, ...]]:
        """Rows in whole tiles, rows at once, working memory for a thread, arguments of the weight, sizes and kinds."""
        weight = self._weight
        padded = _padded(rows, TILE_ROWS[self._is_exact])
        m_step = min(padded, ROWS_AT_ONCE)
        pairs = 2 * self._planes if operands.by_columns else 1
        chunk = self._chunk(operands, pairs)
        panel = chunk * weight.block_size * (128 if self._is_exact else 32) + SLACK_BYTES
        others = (
            *(rows, weight.size_n, weight.size_k, weight.block_size, weight.bits),
            *(operands.zero_points_kind, operands.default_zero_point, int(operands.by_columns), operands.flip, chunk),
        )
        return (
            padded,
            m_step,
            SPARE_BYTES + pairs * (m_step * 128 + chunk * 256 + panel),
            self._weight_arguments(operands),
            others,
        )

    def _weight_arguments(self, operands: Operands) -> tuple[int, ...]:
        """Addresses and strides."""
        return (
            *(address(operands.codes), operands.codes_stride),
            *(address(operands.scales), operands.scales_stride),
            *(address(operands.zero_points), operands.zero_points_stride),
        )

    def _chunk(self, operands: Operands, pairs: int) -> int:
        """Blocks to a panel."""
        weight = self._weight
        lanes = weight.block_size // (4 if operands.by_columns else 4 * self._planes)
        unit = max(MINIMAL_CHUNK, 16 // lanes)
        per_block = pairs * weight.block_size * (128 if self._is_exact else 32)
        return min(_padded(weight.blocks, unit), max(unit, PANEL_BYTES[self._is_exact] // per_block // unit * unit))

    def _block_bytes(self) -> int:
        """Bytes of a float32 for each block of a row, in whole vectors."""
        return _padded(self._weight.blocks, 16) * 4

    def _buffers(self, *sizes: int) -> list[int]:
        """Addresses of working memory, at multiples of 64."""
        padded = [_padded(size, 64) for size in sizes]
        start = address(self._scratch.array("matmul_nbits", (sum(padded),), np.dtype(np.uint8)))
        return [start + sum(padded[:index]) for index in range(len(sizes))]


def _padded(size: int, unit: int) -> int:
    return math.ceil(size / unit) * unit


def address(array: HostArray | None) -> int:
    """Of an array's first byte; 0 for none."""
    return 0 if array is None else int(array.__array_interface__["data"][0])


@functools.cache
def _kernel(module: str, name: str) -> Callable[..., Any]:
    return jit.load(f"matmul_nbits_{module}", name)
