"""Products with weights of packed integers: a weight [N, k_blocks, bytes], *rows*, or [K, N], *columns*.

All tasks take the arguments of ``microkernels.arguments``. Codes of blocks are whole in rows, and end with K in columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ort_sdk_cpu.jit.extents.declaration import (
    At,
    Extent,
    Extents,
    MayBeAt,
    at_most,
    declares,
    given,
    reaches,
    reads,
    works,
    writes,
)
from ort_sdk_cpu.jit.extents.sizes import FLOAT, VECTOR, whole

from .extents import BITS, SPARE, STRIP, spans_of

__all__: list[str] = []

_HALF = 2
_HALVES_START = 64
_FLOAT_ZEROS = 2
_DIGITS, _LINES = 4, 6
_GATHERED_ROWS = 12
_TILE_ROWS, _TILE_STEPS, _TILE_BYTES, _STAGE = 16, 32, 1024, 4096
_SLACK = 64 * 128
"""Bytes behind a pair of a panel of bytes that may be written, too."""


class _Addresses(NamedTuple):
    """Positions of addresses."""

    codes: int
    scales: int
    zeros: int
    bias: int
    out: int
    x: int
    x_scales: int
    x_sums: int
    table: int
    work: int
    partials: int
    indices: int
    activations: int
    half_scales: MayBeAt


class _Sizes(NamedTuple):
    """The other arguments."""

    bits: int
    codes_stride: int
    scales_stride: int
    zeros_stride: int
    m: int
    n: int
    k: int
    block: int
    x_stride: int
    block_stride: int
    work_stride: int
    k_parts: int
    n_parts: int
    zeros_kind: int
    chunk: int
    at_once: int
    group: int

    @property
    def planes(self) -> int:
        """Codes of a byte."""
        return 8 // self.bits

    @property
    def blocks(self) -> int:
        """Blocks along K."""
        return -(-self.k // self.block)

    @property
    def lanes(self) -> int:
        """4-byte lanes of a block of a row."""
        return self.block * self.bits // 32

    @property
    def spans(self) -> int:
        """Pieces of 64 bytes of a row."""
        return spans_of(self.k, self.block, self.planes)

    @property
    def jobs(self) -> int:
        """Pieces of the work."""
        return self.k_parts * self.n_parts

    @property
    def pairs(self) -> int:
        """Of vectors of columns in 64 bytes of a row of a weight [K, N]."""
        return 2 * self.planes


Declared = Callable[[_Addresses, _Sizes], Extents]


def _declare(module: str, name: str, bits: int, declared: Declared) -> None:
    @declares(module, f"{name}_{bits}")
    def extents(
        codes: At,
        codes_stride: int,
        scales: At,
        scales_stride: int,
        zeros: At,
        zeros_stride: int,
        bias: At,
        out: At,
        m: int,
        n: int,
        k: int,
        block: int,
        default_zero: int,
        flip: int,
        x: At,
        x_scales: At,
        x_sums: At,
        x_stride: int,
        block_stride: int,
        table: At,
        work: At,
        work_stride: int,
        k_parts: int,
        n_parts: int,
        partials: At,
        zeros_kind: int,
        chunk: int,
        rows_at_once: int,
        group: int,
        indices: At,
        activations: At,
        half_scales: MayBeAt,
    ) -> Extents:
        at = _Addresses(
            codes, scales, zeros, bias, out, x, x_scales, x_sums, table, work, partials, indices, activations, half_scales
        )
        strides = (codes_stride, scales_stride, zeros_stride)
        jobs = (x_stride, block_stride, work_stride, k_parts, n_parts, zeros_kind, chunk, rows_at_once, group)
        return declared(at, _Sizes(bits, *strides, m, n, k, block, *jobs))


def _of_blocks(at: int, size: _Sizes, rows: int, *, more: int = 0) -> Extent:
    """float32 numbers of the blocks of each row of activations, and some behind them."""
    return reaches(at, (rows,), (size.block_stride,), (size.blocks + more) * FLOAT)


def _zeros_of_rows(at: int, size: _Sizes) -> Extents:
    if size.zeros_kind:
        own = size.blocks * FLOAT if size.zeros_kind == _FLOAT_ZEROS else -(-size.blocks * size.bits // 8)
        yield reaches(at, (size.n,), (size.zeros_stride,), own)


def _results(at: _Addresses, size: _Sizes, last: int) -> Extents:
    """The result, of whose last row so many columns are written, those of parts of K, and the bias."""
    nbytes = ((size.m - 1) * size.n + last) * FLOAT
    yield given(at.bias, last * FLOAT)
    yield writes(at.out, nbytes)
    if size.k_parts > 1:
        yield writes(at.partials, (size.k_parts - 2) * size.m * size.n * FLOAT + nbytes)


def _rows(kind: str) -> Declared:
    """Dot products with rows of a weight, by a kind of activations."""

    def declared(at: _Addresses, size: _Sizes) -> Extents:
        row = size.blocks * size.lanes * 4
        yield reads(at.codes, size.n * row)
        is_float16 = kind == "i8" and at.half_scales.is_given
        if is_float16:
            yield reads(at.half_scales, _HALVES_START + size.n * size.blocks * _HALF)
        else:
            yield reads(at.scales, size.n * size.blocks * FLOAT)
        yield from _zeros_of_rows(at.zeros, size)
        yield reads(at.indices, min(size.lanes, size.spans) * VECTOR)
        yield from _results(at, size._replace(k_parts=1), size.n)
        line = size.spans * STRIP * size.planes
        if kind == "i8":
            yield reaches(at.x, (size.m,), (size.x_stride,), line + size.spans * VECTOR)
            yield _of_blocks(at.x_sums, size, size.m)
            return
        yield _of_blocks(at.x_sums, size, size.m, more=1)
        yield reads(at.activations, size.m * size.k * FLOAT)
        if kind == "f32":
            yield reads(at.table, VECTOR)
            yield reaches(at.x, (size.m,), (size.x_stride,), line * FLOAT)
            return
        digits = max((_DIGITS - 1) * size.x_stride + line, _DIGITS * size.x_stride + size.spans * 128)
        yield reaches(at.x, (size.m,), (_LINES * size.x_stride,), digits)
        yield _of_blocks(at.x_scales, size, size.m)

    return declared


def _columns(kind: str) -> Declared:
    """Sums of rows of a weight [K, N] of any width, by a kind of activations."""

    def declared(at: _Addresses, size: _Sizes) -> Extents:
        at_most("bytes less than those of a strip", STRIP - size.codes_stride, 0)
        columns = max(size.codes_stride * size.planes, size.n)
        row = max(size.codes_stride, -(-size.n * size.bits // 8))
        yield reaches(at.codes, (size.k,), (size.codes_stride,), row)
        yield reaches(at.scales, (size.blocks,), (size.scales_stride,), columns * FLOAT)
        yield reaches(at.zeros, (size.blocks,), (size.zeros_stride,), row, may_be_none=True)
        yield reads(at.table, VECTOR)
        yield from _results(at, size, columns)
        strips = -(-(whole(size.codes_stride, STRIP) // STRIP) // size.n_parts)
        sums = size.m * strips * 256 * size.planes
        kept = 3 if kind == "f32" else 2
        yield works(at.work, (size.jobs - 1) * size.work_stride + SPARE + kept * sums)
        if kind == "f32":
            yield reaches(at.x, (size.m,), (size.x_stride,), size.k * FLOAT)
            yield _of_blocks(at.x_sums, size, size.m, more=1)
            yield reads(at.activations, size.m * size.k * FLOAT)
        else:
            yield reaches(at.x, (size.m,), (size.x_stride,), whole(size.k, 4))
            yield _of_blocks(at.x_sums, size, size.m)
            yield _of_blocks(at.x_scales, size, size.m)

    return declared


def _panel_bytes(kind: str, layout: str, size: _Sizes) -> int:
    """Of a panel of a strip, and what is worked with behind it."""
    pairs, steps = size.pairs if layout == "columns" else 1, size.chunk * size.block
    if kind == "f32":
        return pairs * steps * 128
    if kind == "i8":
        lanes = whole(size.chunk * size.lanes)
        return lanes * 128 * size.planes if layout == "rows" else (pairs - 1) * (steps * 32 + _SLACK) + steps * 32
    return pairs * (size.chunk * (size.block // _TILE_STEPS)) * 2 * _TILE_BYTES + (_STAGE if kind == "tiles" else 0)


def _activations(kind: str, layout: str, at: _Addresses, size: _Sizes) -> Extents:
    """In the form that panels are multiplied with."""
    if kind == "f32":
        yield reads(at.table, VECTOR)
        yield reaches(at.x, (-(-size.m // _GATHERED_ROWS),), (size.x_stride,), size.k * _GATHERED_ROWS * FLOAT)
    elif kind == "i8":
        planes, rows = size.planes if layout == "rows" else 1, whole(size.m, 2)
        yield reaches(at.x, (rows,), (size.x_stride,), spans_of(size.k, size.block, planes) * STRIP * planes)
        yield _of_blocks(at.x_scales, size, rows)
        yield _of_blocks(at.x_sums, size, rows)
    else:
        tiles = size.blocks * (size.block // _TILE_STEPS) * (3 if kind == "tiles" else 1)
        yield reaches(at.x, (-(-size.m // _TILE_ROWS),), (size.x_stride,), tiles * _TILE_BYTES)


def _panels(kind: str, layout: str) -> Declared:
    """Panels of the weight, by a kind of activations."""
    unit = {"f32": 4, "i8": 2}.get(kind, _TILE_ROWS)

    def declared(at: _Addresses, size: _Sizes) -> Extents:
        pairs = size.pairs if layout == "columns" else 1
        # Sums have room for whole tiles of rows.
        at_most("rows of sums", whole(min(size.m, size.at_once), unit), size.at_once)
        if layout == "columns":
            row = -(-size.n * size.bits // 8)
            at_most("bytes less than those of a strip", STRIP - row, 0)
            yield reaches(at.codes, (size.k,), (size.codes_stride,), row)
            yield reaches(at.scales, (size.blocks,), (size.scales_stride,), size.n * FLOAT)
            if size.zeros_kind:
                yield reaches(at.zeros, (size.blocks,), (size.zeros_stride,), row)
        else:
            yield reaches(at.codes, (size.n,), (size.codes_stride,), size.blocks * size.lanes * 4)
            yield reaches(at.scales, (size.n,), (size.scales_stride,), size.blocks * FLOAT)
            yield from _zeros_of_rows(at.zeros, size)
        yield from _results(at, size, size.n)
        yield from _activations(kind, layout, at, size)
        used = SPARE + size.group * size.at_once * pairs * 128 + 2 * pairs * size.chunk * 128
        yield works(at.work, (size.jobs - 1) * size.work_stride + used + _panel_bytes(kind, layout, size))

    return declared


for _bits in BITS:
    for _kind in ("f32", "i32", "i8"):
        _declare(f"matmul_nbits_rows_{_kind}", f"rows_{_kind}", _bits, _rows(_kind))
    for _kind in ("f32", "i8"):
        _declare("matmul_nbits_columns", f"columns_{_kind}", _bits, _columns(_kind))
    for _layout in ("columns", "rows"):
        for _kind in ("f32", "i8"):
            _declare(f"matmul_nbits_panels_{_kind}", f"panels_of_{_layout}_{_kind}", _bits, _panels(_kind, _layout))
        for _kind in ("numbers", "tiles"):
            _declare("matmul_nbits_tiles", f"{_kind}_of_{_layout}", _bits, _panels(_kind, _layout))
