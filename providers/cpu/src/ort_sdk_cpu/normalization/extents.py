"""Softmaxes, normalizations and sums along rows, columns and channels."""

from __future__ import annotations

from ort_sdk_cpu.jit.extents.declaration import At, Extents, declares, given, reaches, reads, writes

__all__: list[str] = []

FLOAT, INT64 = 4, 8


@declares("rows", "softmax")
@declares("row_functions", "log_softmax", "normalized")
def _row_function(x: At, out: At, rows: int, width: int, *_: int) -> Extents:
    nbytes = rows * width * FLOAT
    return reads(x, nbytes), writes(out, nbytes)


@declares("row_functions", "log_sum_exp")
def _log_sum_exp(x: At, out: At, rows: int, width: int) -> Extents:
    return reads(x, rows * width * FLOAT), writes(out, rows * FLOAT)


@declares("row_functions", "running_floats")
def _running_floats(x: At, out: At, outer: int, size: int, step: int, *_: int) -> Extents:
    nbytes = outer * size * step * FLOAT
    return reads(x, nbytes), writes(out, nbytes)


@declares("row_functions", "running_integers")
def _running_integers(x: At, out: At, outer: int, size: int, step: int, *_: int) -> Extents:
    nbytes = outer * size * step * INT64
    return reads(x, nbytes), writes(out, nbytes)


@declares("rows", "layer_normalization", "rms_normalization")
def _normalization(
    x: At, skip: At, bias: At, total: At, out: At, scale: At, shift: At, rows: int, width: int, epsilon: float
) -> Extents:
    row = width * FLOAT if rows > 0 else 0
    nbytes = rows * row
    return (
        reads(x, nbytes),
        given(skip, nbytes),
        given(bias, row),
        writes(total, nbytes, may_be_none=True),
        writes(out, nbytes),
        reads(scale, row),
        given(shift, row),
    )


@declares("rows", "normalize_planes", "normalize_pixels")
def _normalize_channels(
    x: At, out: At, scale: At, shift: At, samples: int, channels: int, pixels: int, epsilon: float
) -> Extents:
    nbytes, vector = samples * channels * pixels * FLOAT, channels * FLOAT if samples > 0 else 0
    return reads(x, nbytes), writes(out, nbytes), reads(scale, vector), reads(shift, vector)


@declares("rows", "normalize_groups")
def _normalize_groups(
    x: At, out: At, scale: At, shift: At, samples: int, groups: int, count: int, pixels: int, shared: int, epsilon: float
) -> Extents:
    nbytes = samples * groups * count * pixels * FLOAT
    vector = (-(-groups * count // shared) if samples > 0 else 0) * FLOAT
    return reads(x, nbytes), writes(out, nbytes), reads(scale, vector), reads(shift, vector)


@declares("row_places", "take_rows")
def _take_rows(failed: int, table: At, places: At, out: At, limit: int, rows: int, width: int) -> Extents:
    return reads(table, limit * width * FLOAT), reads(places, rows * INT64), writes(out, rows * width * FLOAT)


@declares("softmax_columns", "softmax_columns")
def _softmax_columns(
    x: At,
    out: At,
    size: int,
    x_step: int,
    out_step: int,
    outer: int,
    middle: int,
    width: int,
    x_outer: int,
    x_middle: int,
    out_outer: int,
    out_middle: int,
) -> Extents:
    sizes = (size, outer, middle, width)
    return (
        reaches(x, sizes, (x_step, x_outer, x_middle, FLOAT), FLOAT),
        reaches(out, sizes, (out_step, out_outer, out_middle, FLOAT), FLOAT, is_written=True),
    )
