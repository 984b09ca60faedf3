"""Images that are sampled, the best of what there is, and distances."""

from __future__ import annotations

from ort_sdk_cpu.jit.extents.declaration import At, Extents, declares, given, reads, works, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, INT64, LANES, VECTOR, whole

__all__: list[str] = []

_INT32 = 4
_GRID_WORK = 33 << 10
_BOX = 4
"""Numbers of a box or a region."""


@declares("sampling", "grid_sample")
def _grid_sample(
    x: At,
    grid: At,
    out: At,
    work: At,
    samples: int,
    channels: int,
    height: int,
    width: int,
    points: int,
    *_: int,
    parts: int,
) -> Extents:
    yield reads(x, samples * channels * height * width * FLOAT)
    yield reads(grid, samples * points * 2 * FLOAT)
    yield writes(out, samples * channels * points * FLOAT)
    yield works(work, parts * _GRID_WORK)


@declares("sampling", "roi_align")
def _roi_align(
    x: At,
    regions: At,
    out: At,
    work: At,
    numbers: At,
    channels: int,
    height: int,
    width: int,
    count: int,
    bins_down: int,
    bins_across: int,
    samples: int,
    work_bytes: int,
    *_: int,
    parts: int,
) -> Extents:
    # Of how many images is known where the numbers are looked at.
    yield reads(x, channels * height * width * FLOAT)
    yield reads(regions, count * _BOX * FLOAT)
    yield writes(out, count * channels * bins_down * bins_across * FLOAT)
    yield works(work, parts * work_bytes)
    yield reads(numbers, count * INT64)


def _interpolation(name: str, itemsize: int) -> None:
    @declares("interpolation", name)
    def extents(
        x: At,
        out: At,
        work: At,
        images: int,
        height: int,
        width: int,
        rows: int,
        columns: int,
        channels: int,
        row_indices: At,
        row_weights: At,
        row_count: int,
        column_indices: At,
        column_weights: At,
        column_count: int,
        *_: int,
        parts: int,
    ) -> Extents:
        yield reads(x, images * height * width * channels * itemsize)
        yield writes(out, images * rows * columns * channels * itemsize)
        yield works(work, parts * whole(width * channels + LANES) * FLOAT)
        for at, count in ((row_indices, rows * row_count), (column_indices, columns * column_count)):
            yield reads(at, count * _INT32)
        for at, count in ((row_weights, rows * row_count), (column_weights, columns * column_count)):
            yield reads(at, count * FLOAT)


_interpolation("interpolated_pixels", FLOAT)
_interpolation("interpolated_planes", FLOAT)
_interpolation("interpolated_byte_pixels", 1)


@declares("nearest", "nearest_bytes", "nearest_pixels", "nearest_words")
def _nearest(
    x: At,
    out: At,
    row_table: At,
    column_table: At,
    images: int,
    height: int,
    width: int,
    rows: int,
    columns: int,
    size: int,
    repeats: int,
) -> Extents:
    yield reads(x, images * height * width * size)
    yield writes(out, images * rows * columns * size)
    yield reads(row_table, rows * _INT32)
    yield reads(column_table, columns * _INT32)


@declares("selection", "largest_of_rows")
def _largest_of_rows(
    x: At,
    values: At,
    places: At,
    work: At,
    outer: int,
    size: int,
    step: int,
    count: int,
    work_bytes: int,
    *_: float,
    parts: int,
) -> Extents:
    found = outer * count * step
    yield reads(x, outer * size * step * FLOAT)
    yield writes(values, found * FLOAT, may_be_none=True)
    yield writes(places, found * INT64, may_be_none=True)
    yield works(work, (parts - 1) * work_bytes + count * INT64 + (size * FLOAT if step > 1 else 0))


@declares("suppression", "kept_boxes")
def _kept_boxes(
    boxes: At,
    scores: At,
    indices: At,
    numbers: At,
    work: At,
    pairs: int,
    count: int,
    classes: int,
    most: int,
    *_: float,
    parts: int,
) -> Extents:
    yield reads(boxes, -(-pairs // classes) * count * _BOX * FLOAT if classes else 0)
    yield reads(scores, pairs * count * FLOAT)
    yield writes(indices, pairs * most * _INT32)
    yield writes(numbers, pairs * INT64)
    yield works(work, parts * (count * INT64 + whole(most) * 5 * FLOAT))


@declares("suppression", "box_rows")
def _box_rows(indices: At, numbers: At, out: At, pairs: int, classes: int, most: int) -> Extents:
    # As many rows as the numbers come to.
    return reads(indices, pairs * most * _INT32), reads(numbers, pairs * INT64), writes(out, 0)


@declares("distances", "row_distances")
def _row_distances(
    a: At, b: At, out: At, work: At, rows: int, others: int, features: int, has_roots: int, *, parts: int
) -> Extents:
    yield reads(a, rows * features * FLOAT)
    yield reads(b, others * features * FLOAT)
    yield writes(out, rows * others * FLOAT)
    yield works(work, parts * features * VECTOR)


@declares("deformation", "sample_windows")
def _sample_windows(
    x: At,
    offsets: At,
    factors: At,
    out: At,
    samples: int,
    channels: int,
    height: int,
    width: int,
    rows: int,
    columns: int,
    taps_down: int,
    taps_right: int,
    stride_down: int,
    stride_right: int,
    dilation_down: int,
    dilation_right: int,
    top: int,
    left: int,
    groups: int,
) -> Extents:
    taps = samples * rows * columns * taps_down * taps_right
    yield reads(x, samples * height * width * channels * FLOAT)
    yield reads(offsets, groups * 2 * taps * FLOAT)
    yield given(factors, groups * taps * FLOAT)
    yield writes(out, taps * channels * FLOAT)


@declares("features", "normalized_rows")
def _normalized_rows(x: At, out: At, rows: int, width: int, norm: int) -> Extents:
    return reads(x, rows * width * FLOAT), writes(out, rows * width * FLOAT)


@declares("features", "scaled_rows")
def _scaled_rows(x: At, out: At, rows: int, width: int, offsets: At, factors: At) -> Extents:
    yield reads(x, rows * width * FLOAT)
    yield writes(out, rows * width * FLOAT)
    yield reads(offsets, width * FLOAT)
    yield reads(factors, width * FLOAT)


@declares("features", "imputed_rows")
def _imputed_rows(x: At, out: At, rows: int, width: int, values: At, *_: float) -> Extents:
    yield reads(x, rows * width * FLOAT)
    yield writes(out, rows * width * FLOAT)
    yield reads(values, width * FLOAT)


@declares("features", "one_hot_rows")
def _one_hot_rows(x: At, out: At, elements: int, categories: int, positions: At, least: int, last: int, is_float: int) -> Extents:
    yield reads(x, elements * (FLOAT if is_float else INT64))
    yield writes(out, elements * categories * FLOAT)
    yield reads(positions, (last + 1) * INT64)
