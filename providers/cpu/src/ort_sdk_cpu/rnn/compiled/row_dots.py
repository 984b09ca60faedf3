"""Products of a few vectors with the rows of a matrix, for tasks that read each row once."""

from __future__ import annotations

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, reduce_add, zero_f32
from ort_sdk_cpu.simd.memory import load_f32, load_f32_first, prefetch, write_f32

__all__ = ["dots_of_rows"]


@inner
def _four_dots(rows: int, step: int, ahead: int, x: int, size: int, sums: int, sums_step: int) -> None:
    """Products of a vector with four rows, ``step`` bytes apart; those ``ahead`` of them are asked for."""
    a, b, c, d = zero_f32(), zero_f32(), zero_f32(), zero_f32()
    whole = size // 16 * 64
    for place in range(0, whole, 64):
        value, row = load_f32(x + place), rows + place
        prefetch(row + ahead)
        prefetch(row + ahead + step)
        prefetch(row + ahead + 2 * step)
        prefetch(row + ahead + 3 * step)
        a, b = fused_multiply_add(load_f32(row), value, a), fused_multiply_add(load_f32(row + step), value, b)
        c = fused_multiply_add(load_f32(row + 2 * step), value, c)
        d = fused_multiply_add(load_f32(row + 3 * step), value, d)
    rest = size % 16
    if rest:
        value, row = load_f32_first(x + whole, rest), rows + whole
        a = fused_multiply_add(load_f32_first(row, rest), value, a)
        b = fused_multiply_add(load_f32_first(row + step, rest), value, b)
        c = fused_multiply_add(load_f32_first(row + 2 * step, rest), value, c)
        d = fused_multiply_add(load_f32_first(row + 3 * step, rest), value, d)
    write_f32(sums, reduce_add(a))
    write_f32(sums + sums_step, reduce_add(b))
    write_f32(sums + 2 * sums_step, reduce_add(c))
    write_f32(sums + 3 * sums_step, reduce_add(d))


@inner
def dots_of_rows(rows: int, start: int, stop: int, size: int, x: int, sums: int, vectors: int, sums_step: int) -> None:
    """Products of vectors with the rows of a gate from start to stop. The last four rows overlap with those before them."""
    step = size * 4
    if stop - start < 4:
        for row in range(start, stop):
            for vector in range(vectors):
                _four_dots(rows + row * step, 0, 0, x + vector * step, size, sums + vector * sums_step + row * 4, 0)
        return
    for block in range((stop - start + 3) // 4):
        row = min(start + 4 * block, stop - 4)
        for vector in range(vectors):
            _four_dots(rows + row * step, step, 4 * step, x + vector * step, size, sums + vector * sums_step + row * 4, 4)
