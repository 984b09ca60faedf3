"""Rows of a table at places that are known when they are read."""

from __future__ import annotations

from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.memory import load_f32_first, read_i64, store_f32_first, write_i64

__all__ = ["take_rows"]


@task
def take_rows(record: int, part: int, parts: int) -> None:
    """(failed, table, places, out, rows of the table, rows, width): float32; places are int64, negative ones from behind.

    The first argument, which has to be 0 before, becomes 1 where a place is out of range, and nothing is read or written there.
    """
    limit, rows, width = argument(record, 4), argument(record, 5), argument(record, 6)
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        place = read_i64(argument(record, 2) + row * 8)
        if place < 0:
            place += limit
        if 0 <= place < limit:
            source, out = argument(record, 1) + place * width * 4, argument(record, 3) + row * width * 4
            for element in range(0, width, 16):
                store_f32_first(out + element * 4, load_f32_first(source + element * 4, width - element), width - element)
        else:
            write_i64(record, 1)
