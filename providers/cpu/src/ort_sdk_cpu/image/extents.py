"""The best of what there is, distances, features and deformable windows."""

from __future__ import annotations

from ort_sdk_cpu.jit.extents.declaration import At, Extents, declares, given, reads, works, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, INT64, VECTOR

__all__: list[str] = []


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
