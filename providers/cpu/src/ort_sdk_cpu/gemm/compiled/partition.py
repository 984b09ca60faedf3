"""Which rows and columns of which matrix a job of a product is. Records are those of the tasks of ``products``."""

from __future__ import annotations

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.simd.arguments import argument

__all__ = ["job_bounds", "job_count"]


@inner
def job_bounds(record: int, job: int, unit: int) -> tuple[int, int, int, int, int]:
    """(matrix of the stack, first row, rows, first column, column behind the last) of a job."""
    m, n, row_parts, column_parts = argument(record, 5), argument(record, 6), argument(record, 20), argument(record, 21)
    units = (n + unit - 1) // unit
    column_part, rest = job % column_parts, job // column_parts
    row_part, batch = rest % row_parts, rest // row_parts
    first_row = m * row_part // row_parts
    rows = m * (row_part + 1) // row_parts - first_row
    first, stop = units * column_part // column_parts * unit, min(units * (column_part + 1) // column_parts * unit, n)
    return batch, first_row, rows, first, stop


@inner
def job_count(record: int) -> int:
    """Jobs of a product."""
    count: int = argument(record, 15) * argument(record, 20) * argument(record, 21)
    return count
