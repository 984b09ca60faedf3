"""Products with weights of packed integers: activations in the forms that products read, and weights transposed.

Memory that is only prefetched is not touched: a prefetch of an address that is not mapped does nothing.
"""

from __future__ import annotations

from ort_sdk_cpu.jit.extents.declaration import At, Extents, at_most, declares, reaches, reads, works, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, VECTOR, whole

__all__ = ["BITS", "SPARE", "STRIP", "spans_of"]

BITS = (2, 4, 8)
STRIP = 64
"""Bytes of a row of a weight [K, N] that are read at a time."""
SPARE = 4096
"""Bytes of working memory for what is transposed or sorted."""
_SORTED = 3072
"""Those of them that activations of float32 are sorted in."""
_LINES, _DIGITS = 6, 4
"""Lines of a row of activations as digits, and those of its digits."""
_TILE_ROWS, _TILE_STEPS, _TILE_BYTES = 16, 32, 1024
_TRANSPOSED, _MERGED = 16 << 10, 4 << 10
"""Bytes of working memory of a part that transposes codes, and those that are used for each code of a byte."""


def spans_of(k: int, block: int, planes: int) -> int:
    """How many pieces of 64 bytes of codes, ``planes`` to a byte, cover whole blocks."""
    return -(-whole(k, block) // (STRIP * planes))


def _activations(name: str, planes: int = 0) -> None:
    """Declare a task that brings rows of activations into a form, of so many codes to a byte; 0 for what an argument says."""

    @declares("matmul_nbits_activations", name)
    def extents(
        x: At,
        rows: int,
        k: int,
        block: int,
        codes_of_byte: int,
        target: At,
        scales: At,
        sums: At,
        x_stride: int,
        b_stride: int,
        *,
        parts: int,
    ) -> Extents:
        blocks, own_planes = -(-k // block), planes or codes_of_byte
        spans = spans_of(k, block, own_planes)
        padded = spans * STRIP * own_planes
        yield reads(x, rows * k * FLOAT)
        each = {
            "arrange_rows_i8": (padded, blocks, blocks),
            "lanes_of_rows": (spans * (STRIP * own_planes + VECTOR) + VECTOR - 16 // own_planes, 0, blocks),
            "digits_of_rows": (max((_DIGITS - 1) * x_stride + padded, _DIGITS * x_stride + spans * 128), blocks, blocks + 1),
            "arrange_rows_f32": (padded * FLOAT, 0, blocks + 1),
            "sum_rows": (0, 0, blocks + 1),
        }
        nbytes, of_scales, of_sums = each[name if name in each else name[:-2]]
        step = _LINES * x_stride if name == "digits_of_rows" else x_stride
        yield reaches(target, (rows if nbytes else 0,), (step,), nbytes, is_written=True)
        yield reaches(scales, (rows if of_scales else 0,), (b_stride,), of_scales * FLOAT, is_written=True)
        if name == "arrange_rows_f32":
            yield works(scales, (parts - 1) * SPARE + _SORTED)
        yield reaches(sums, (rows,), (b_stride,), of_sums * FLOAT, is_written=True)


def _tiles(name: str, tiles: int) -> None:
    """Declare a task that makes so many tiles of each 16 rows and 32 numbers."""

    @declares("matmul_nbits_activations", name)
    def extents(
        x: At, rows: int, k: int, block: int, planes: int, target: At, scales: At, sums: At, x_stride: int, b_stride: int
    ) -> Extents:
        sizes = (-(-rows // _TILE_ROWS), min(rows, _TILE_ROWS), -(-whole(k, block) // _TILE_STEPS) * tiles)
        yield reads(x, rows * k * FLOAT)
        yield reaches(target, sizes, (x_stride, VECTOR, _TILE_BYTES), VECTOR, is_written=True)


for _name in ("arrange_rows_i8", "digits_of_rows", "arrange_rows_f32", "sum_rows"):
    _activations(_name)
for _bits in BITS:
    _activations(f"lanes_of_rows_{_bits}", 8 // _bits)
    # Here they are steps along K between those of a pair.
    _tiles(f"parts_of_rows_{_bits}", 3)
    _tiles(f"rounded_rows_{_bits}", 1)


@declares("matmul_nbits_activations", "gather_tiles")
def _gather_tiles(
    x: At, rows: int, k: int, block: int, width: int, target: At, scales: At, sums: At, x_stride: int, b_stride: int
) -> Extents:
    at_most("rows of a tile", width, _TILE_ROWS)
    yield reads(x, rows * k * FLOAT)
    each = k * width * FLOAT + VECTOR + _TILE_BYTES
    yield reaches(target, (-(-rows // width),), (x_stride,), each, is_written=True)


@declares("matmul_nbits_activations", "add_parts")
def _add_parts(target: At, size: int, source: At, count: int) -> Extents:
    return writes(target, size * FLOAT), reads(source, count * size * FLOAT)


def _transposition(bits: int) -> None:
    @declares("matmul_nbits_transposition", f"transpose_codes_{bits}")
    def extents(source: At, target: At, rows: int, stride: int, width: int, flip: int, work: At, *, parts: int) -> Extents:
        at_most("bytes less than those of a strip", STRIP - stride, 0)
        planes = 8 // bits
        yield reads(source, rows * stride)
        yield writes(target, stride * planes * width)
        yield works(work, (parts - 1) * _TRANSPOSED + planes * _MERGED)


for _bits in BITS:
    _transposition(_bits)


@declares("matmul_nbits_transposition", "transpose_scales")
def _transpose_scales(source: At, target: At, rows: int, columns: int) -> Extents:
    return reads(source, rows * columns * FLOAT), writes(target, rows * columns * FLOAT)
