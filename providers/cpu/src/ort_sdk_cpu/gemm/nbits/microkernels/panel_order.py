"""The order in which the panels of a weight of packed integers are made and used, the same for all kinds of panels.

A *strip* is 32 columns of a weight [N, k_blocks, bytes], or those of 64 bytes in a row of a weight [K, N]. Of a strip and some
blocks (a *chunk*), a panel is made: pairs of vectors of 16 columns; then tiles of the result are computed from it. Columns that
share a byte lie in different vectors.

Arguments: see ``nbits_arguments``. ``CHUNK`` and the activations' spans end together. ``WORK`` of a job: 4 KB; sums of the rows
at once of a group of strips; scales, zero points, and the panel of a chunk of a strip.
"""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.arithmetic import add
from ort_sdk_cpu.simd.interleave import interleave
from ort_sdk_cpu.simd.memory import load_f32, load_f32_first, prefetch, store_f32_first

from .arguments import BIAS, BLOCK, CHUNK, GROUP, K_PARTS, N_PARTS, OUT, PARTIALS, ROWS_AT_ONCE, WORK, WORK_STRIDE, K, M, N

__all__ = ["ask_for", "run_jobs"]

_SPARE = 4096


@inner
def ask_for(place: int, stride: int, width: int, first: int, count: int) -> None:
    """Ask for lines of 64 bytes of a part of a matrix: ``count`` from the ``first`` on, ``width`` to a row."""
    row, line = place + first // width * stride, first % width
    for _ in range(count):
        prefetch(row + line * 64)
        line += 1
        if line == width:
            line = 0
            row += stride


@inner
def _write_results(
    record: int, sums: int, pairs: int, rows: int, planes: int, bias: int, out: int, column: int, spare: int
) -> None:
    """Rows of pairs of vectors, with the columns that share a byte brought together, into the result."""
    n = argument(record, N)
    for row in range(rows):
        for start in range(0, 2 * pairs, planes):
            place = interleave(sums + (row * 2 * pairs + start) * 64, spare, spare + 1024, planes, planes)
            for plane in range(planes):
                first = column + (start + plane) * 16
                if first < n:
                    value = load_f32(place + plane * 64)
                    if bias:
                        value = add(value, load_f32_first(bias + first * 4, n - first))
                    store_f32_first(out + (row * n + first) * 4, value, n - first)


@inner
def _column(record: int, strip: int, pairs: int) -> int:
    """First column of a strip; the last one of a weight [K, N] ends at the weight's end."""
    return min(strip * 32 * pairs, argument(record, N) - 32 * pairs) if pairs > 1 else strip * 32


@inner
def _group(
    record: int,
    start: int,
    stop: int,
    first_block: int,
    last_block: int,
    k_part: int,
    m_first: int,
    pairs: int,
    planes: int,
    make: Any,
    use: Any,
    spare: int,
) -> None:
    """Results of some strips and rows of activations."""
    m, n, chunk, m_step = argument(record, M), argument(record, N), argument(record, CHUNK), argument(record, ROWS_AT_ONCE)
    rows, strip_bytes = min(m - m_first, m_step), m_step * pairs * 128
    sums = spare + _SPARE
    s_panel = sums + argument(record, GROUP) * strip_bytes
    z_panel = s_panel + pairs * chunk * 128
    panel = z_panel + pairs * chunk * 128
    for first in range(first_block, last_block, chunk):
        count = min(chunk, last_block - first)
        for strip in range(start, stop):
            column = _column(record, strip, pairs)
            make(record, column, first, count, s_panel, z_panel, panel, spare, strip - start, stop - start)
            target = sums + (strip - start) * strip_bytes
            use(record, m_first, rows, first, count, s_panel, z_panel, panel, target, 1 if first == first_block else 0)
    out, bias = argument(record, OUT), argument(record, BIAS)
    if k_part:
        out, bias = argument(record, PARTIALS) + (k_part - 1) * m * n * 4, 0
    for strip in range(start, stop):
        place = sums + (strip - start) * strip_bytes
        column = _column(record, strip, pairs)
        _write_results(record, place, pairs, rows, planes, bias, out + m_first * n * 4, column, spare)


@inner
def _job(record: int, job: int, pairs: int, planes: int, make: Any, use: Any) -> None:
    n, block, group = argument(record, N), argument(record, BLOCK), argument(record, GROUP)
    k_parts, n_parts = argument(record, K_PARTS), argument(record, N_PARTS)
    width, blocks = 32 * pairs, (argument(record, K) + block - 1) // block
    strips, k_part, n_part = (n + width - 1) // width, job // n_parts, job % n_parts
    chunks = (blocks + argument(record, CHUNK) - 1) // argument(record, CHUNK)
    first = chunks * k_part // k_parts * argument(record, CHUNK)
    last = min(chunks * (k_part + 1) // k_parts * argument(record, CHUNK), blocks)
    spare = argument(record, WORK) + job * argument(record, WORK_STRIDE)
    last_strip = strips * (n_part + 1) // n_parts
    for start in range(strips * n_part // n_parts, last_strip, group):
        stop = min(start + group, last_strip)
        for m_first in range(0, argument(record, M), argument(record, ROWS_AT_ONCE)):
            _group(record, start, stop, first, last, k_part, m_first, pairs, planes, make, use, spare)


@inner
def run_jobs(record: int, part: int, parts: int, pairs: int, planes: int, make: Any, use: Any) -> None:
    """A part of the jobs of a task.

    Args:
        record, part, parts: the task's.
        pairs: of vectors to a strip; 1 is for a weight [N, ...].
        planes: vectors whose columns take turns.
        make: ``make(record, column, first, count, s_panel, z_panel, panel, spare, strip, strips)`` makes a panel of a strip,
            whose number among those that take turns is given, and ``count`` blocks.
        use: ``use(record, m_first, rows, first, count, s_panel, z_panel, panel, target, begins)`` adds its products with some
            rows of activations to the sums at ``target``, or writes them there.
    """
    jobs = argument(record, K_PARTS) * argument(record, N_PARTS)
    for job in range(jobs * part // parts, jobs * (part + 1) // parts):
        _job(record, job, pairs, planes, make, use)
