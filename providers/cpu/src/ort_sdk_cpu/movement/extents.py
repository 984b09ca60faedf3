"""Elements and slices at places that are known when they are read, and reductions.

What tables and offsets name is checked where they are made: here it is seen that the first of it is there.
"""

from __future__ import annotations

from ort_sdk_cpu.jit.extents.declaration import At, Extents, declares, reaches, reads, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, INT64

__all__: list[str] = []


@declares("indexing", "take_slices")
def _take_slices(
    failed: int,
    data: At,
    indices: At,
    out: At,
    index_bytes: int,
    limit: int,
    count: int,
    before: int,
    words: int,
    stride: int,
    least: int,
) -> Extents:
    yield reads(data, before * limit * words * FLOAT)
    yield reaches(indices, (count if before * words > 0 else 0,), (stride,), index_bytes)
    yield writes(out, before * count * words * FLOAT)


@declares("indexing", "take_elements")
def _take_elements(
    failed: int,
    data: At,
    indices: At,
    out: At,
    index_bytes: int,
    limit: int,
    count: int,
    offsets: At,
    step: int,
    words: int,
) -> Extents:
    yield reaches(data, (limit,), (step * words * FLOAT,), words * FLOAT)
    yield reads(indices, count * index_bytes)
    yield writes(out, count * words * FLOAT)
    yield reads(offsets, count * INT64)


@declares("indexing", "add_elements")
def _add_elements(
    failed: int, out: At, indices: At, updates: At, index_bytes: int, limit: int, count: int, offsets: At, step: int
) -> Extents:
    return _put_elements(failed, out, indices, updates, index_bytes, limit, count, offsets, step, 1)


@declares("indexing", "put_elements")
def _put_elements(
    failed: int,
    out: At,
    indices: At,
    updates: At,
    index_bytes: int,
    limit: int,
    count: int,
    offsets: At,
    step: int,
    words: int,
) -> Extents:
    yield reaches(out, (limit,), (step * words * FLOAT,), words * FLOAT, is_written=True)
    yield reads(indices, count * index_bytes)
    yield reads(updates, count * words * FLOAT)
    yield reads(offsets, count * INT64)


@declares("indexing", "one_hot")
def _one_hot(indices: At, values: At, out: At, index_bytes: int, depth: int, count: int, words: int) -> Extents:
    yield reads(indices, count * index_bytes)
    yield reads(values, 2 * words * FLOAT)
    yield writes(out, count * depth * words * FLOAT)


@declares("indexing", "largest_along")
def _largest_along(x: At, out: At, before: int, count: int, behind: int, factor: float) -> Extents:
    return reads(x, before * count * behind * FLOAT), writes(out, before * behind * INT64)


@declares("indexing", "put_slices")
def _put_slices(
    failed: int,
    out: At,
    indices: At,
    updates: At,
    index_bytes: int,
    depth: int,
    count: int,
    words: int,
    table: At,
    reduction: int,
) -> Extents:
    yield writes(out, words * FLOAT)
    yield reads(indices, count * depth * index_bytes)
    yield reads(updates, count * words * FLOAT)
    yield reads(table, depth * 2 * INT64)


@declares("indexing", "take_tuples")
def _take_tuples(
    failed: int,
    data: At,
    indices: At,
    out: At,
    index_bytes: int,
    depth: int,
    count: int,
    words: int,
    table: At,
    batch: int,
    slices: int,
) -> Extents:
    yield reads(data, -(-count // batch) * slices * words * FLOAT if batch else 0)
    yield reads(indices, count * depth * index_bytes)
    yield writes(out, count * words * FLOAT)
    yield reads(table, depth * 2 * INT64)


@declares("indexing", "take_along")
def _take_along(
    failed: int,
    data: At,
    indices: At,
    out: At,
    index_bytes: int,
    outer: int,
    limit: int,
    count: int,
    inner: int,
    words: int,
) -> Extents:
    yield reads(data, outer * limit * inner * words * FLOAT)
    yield reads(indices, outer * count * inner * index_bytes)
    yield writes(out, outer * count * inner * words * FLOAT)


@declares("indexing", "reverse_rows")
def _reverse_rows(
    failed: int, x: At, lengths: At, out: At, times: int, batches: int, time_step: int, batch_step: int, words: int
) -> Extents:
    row = words * FLOAT
    for at, is_written in ((x, False), (out, True)):
        yield reaches(at, (times, batches), (time_step * row, batch_step * row), row, is_written=is_written)
    yield reads(lengths, batches * INT64)


@declares("bags", "reduce_bag")
def _reduce_bag(
    failed: int, table: At, numbers: At, start: At, end: At, out: At, rows: int, count: int, columns: int, kind: int
) -> Extents:
    yield reads(table, rows * columns * FLOAT)
    yield reads(numbers, count * INT64)
    yield reads(start, INT64)
    yield reads(end, INT64)
    yield writes(out, columns * FLOAT)


def _reduction(name: str) -> None:
    @declares("reduction", name)
    def extents(
        x: At,
        out: At,
        kept_0: int,
        kept_1: int,
        kept_2: int,
        x_0: int,
        x_1: int,
        x_2: int,
        out_0: int,
        out_1: int,
        out_2: int,
        gone_0: int,
        gone_1: int,
        x_3: int,
        x_4: int,
        *_: float,
    ) -> Extents:
        kept, is_of_rows = (kept_0, kept_1, kept_2), name.endswith("_rows")
        steps = (x_0, x_1, x_2 if is_of_rows else FLOAT, x_3, FLOAT if is_of_rows else x_4)
        yield reaches(x, (*kept, gone_0, gone_1), steps, FLOAT)
        yield reaches(out, kept, (out_0, out_1, out_2 if is_of_rows else FLOAT), FLOAT, is_written=True)


for _kind in ("largest", "product", "square", "sum"):
    for _along in ("rows", "columns"):
        _reduction(f"{_kind}_{_along}")
