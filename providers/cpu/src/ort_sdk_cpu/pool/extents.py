"""Pooling."""

from __future__ import annotations

import math

from ort_sdk_cpu.jit.extents.declaration import At, Extents, declares, given, reads, works, writes

__all__: list[str] = []

FLOAT, INT64 = 4, 8
_VECTOR = 64
_LANES = 16


def _line_bytes(width: int, columns: int, kernel: int, stride: int, dilation: int, pad: int) -> int:
    """What is used of a line of working memory: windows of small strides are read as whole vectors."""
    extent = (columns - 1) * stride + (kernel - 1) * dilation + 1
    copied = pad + max(0, min(width, extent - pad))
    if stride > 2:
        return FLOAT * max(copied, extent)
    last = (columns - 1) // _LANES * _LANES * stride + (kernel - 1) * dilation
    return max(FLOAT * copied, FLOAT * last + stride * _VECTOR)


def _planes(
    x: int, out: int, counts: tuple[int, int], work: int, sizes: tuple[int, ...], line: tuple[int, ...], parts: int
) -> Extents:
    """Of ``plane_pooling``'s tasks; sizes: elements of x, images written, rows and columns of one."""
    elements, planes, rows, columns = sizes
    row_counts, column_counts = counts
    *along, line_bytes, lines = line
    all_lines = parts * lines
    return (
        reads(At(x), elements * FLOAT),
        writes(At(out), planes * rows * columns * FLOAT),
        given(At(row_counts), rows * FLOAT),
        given(At(column_counts), columns * FLOAT),
        works(At(work), max(all_lines * line_bytes, (all_lines - 1) * line_bytes + _line_bytes(*along))),
    )


@declares("plane_pooling", "pool_planes")
def _pool_planes(
    x: At,
    out: At,
    row_counts: At,
    column_counts: At,
    work: At,
    planes: int,
    height: int,
    width: int,
    rows: int,
    columns: int,
    kernel_height: int,
    kernel_width: int,
    stride_down: int,
    stride_right: int,
    dilation_down: int,
    dilation_right: int,
    pad_top: int,
    pad_left: int,
    line_bytes: int,
    lines: int,
    *,
    parts: int,
) -> Extents:
    line = (width, columns, kernel_width, stride_right, dilation_right, pad_left, line_bytes, lines)
    sizes = (planes * height * width, planes, rows, columns)
    return _planes(x, out, (row_counts, column_counts), work, sizes, line, parts)


@declares("plane_pooling", "pool_films")
def _pool_films(
    x: At,
    out: At,
    row_counts: At,
    column_counts: At,
    work: At,
    planes: int,
    height: int,
    width: int,
    rows: int,
    columns: int,
    kernel_height: int,
    kernel_width: int,
    stride_down: int,
    stride_right: int,
    dilation_down: int,
    dilation_right: int,
    pad_top: int,
    pad_left: int,
    line_bytes: int,
    lines: int,
    volume_counts: At,
    depth: int,
    images: int,
    *_: int,
    parts: int,
) -> Extents:
    line = (width, columns, kernel_width, stride_right, dilation_right, pad_left, line_bytes, lines)
    volumes = -(-planes // images) if images else 0
    sizes = (volumes * depth * height * width, planes, rows, columns)
    yield from _planes(x, out, (row_counts, column_counts), work, sizes, line, parts)
    yield given(volume_counts, images * FLOAT)


@declares("pooling", "max_pool")
def _max_pool(
    x: At, out: At, samples: int, channels: int, d: int, h: int, w: int, out_d: int, out_h: int, out_w: int, *_: int
) -> Extents:
    planes = samples * channels * FLOAT
    return reads(x, planes * d * h * w), writes(out, planes * out_d * out_h * out_w)


@declares("place_pooling", "pool_with_places")
def _pool_with_places(
    x: At, out: At, places: At, planes: int, height: int, width: int, rows: int, columns: int, *_: int
) -> Extents:
    found = math.prod((planes, rows, columns))
    return reads(x, planes * height * width * FLOAT), writes(out, found * FLOAT), writes(places, found * INT64)
