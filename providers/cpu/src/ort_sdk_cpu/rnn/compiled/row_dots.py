"""Products of a few vectors with the rows of a matrix in offset: a GEMV by four rows, for weights that are not packed."""

from __future__ import annotations

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, reduce_add, zero_f32
from ort_sdk_cpu.simd.memory import load_f32, load_f32_masked, prefetch, write_f32

__all__ = ["dots_of_rows"]


@inline
def _four_dots(rows: int, stride: int, ahead: int, x: int, size: int, sums: int, sums_stride: int) -> None:
    """Dot products of a vector with four rows, ``stride`` bytes apart; rows ``ahead`` bytes on are prefetched.

    Four sums, each with its own chain of multiply-adds, hide the latency of one.
    """
    a, b, c, d = zero_f32(), zero_f32(), zero_f32(), zero_f32()
    whole = size // 16 * 64
    for offset in range(0, whole, 64):
        value, row = load_f32(x + offset), rows + offset
        # The next four rows may be on other pages, where the processor's own prefetcher does not go.
        prefetch(row + ahead)
        prefetch(row + ahead + stride)
        prefetch(row + ahead + 2 * stride)
        prefetch(row + ahead + 3 * stride)
        a, b = fused_multiply_add(load_f32(row), value, a), fused_multiply_add(load_f32(row + stride), value, b)
        c = fused_multiply_add(load_f32(row + 2 * stride), value, c)
        d = fused_multiply_add(load_f32(row + 3 * stride), value, d)
    left = size % 16
    if left:
        value, row = load_f32_masked(x + whole, left), rows + whole
        a = fused_multiply_add(load_f32_masked(row, left), value, a)
        b = fused_multiply_add(load_f32_masked(row + stride, left), value, b)
        c = fused_multiply_add(load_f32_masked(row + 2 * stride, left), value, c)
        d = fused_multiply_add(load_f32_masked(row + 3 * stride, left), value, d)
    write_f32(sums, reduce_add(a))
    write_f32(sums + sums_stride, reduce_add(b))
    write_f32(sums + 2 * sums_stride, reduce_add(c))
    write_f32(sums + 3 * sums_stride, reduce_add(d))


@inline
def dots_of_rows(rows: int, start: int, stop: int, size: int, x: int, sums: int, vectors: int, sums_stride: int) -> None:
    """Dot products of vectors with the rows of a gate from start to stop. The last four rows overlap with those before them."""
    stride = size * 4
    if stop - start < 4:
        for row in range(start, stop):
            for vector in range(vectors):
                _four_dots(rows + row * stride, 0, 0, x + vector * stride, size, sums + vector * sums_stride + row * 4, 0)
        return
    # Overlapping rows are computed twice, with the same result: no code is needed for one to three rows that are left.
    for block in range((stop - start + 3) // 4):
        row = min(start + 4 * block, stop - 4)
        for vector in range(vectors):
            _four_dots(
                rows + row * stride, stride, 4 * stride, x + vector * stride, size, sums + vector * sums_stride + row * 4, 4
            )
