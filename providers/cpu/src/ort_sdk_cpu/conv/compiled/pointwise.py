"""Convolutions of one tap on channels-last data."""

from __future__ import annotations

from ort_sdk_cpu.conv.microkernels.pixel_tile import PANEL
from ort_sdk_cpu.conv.microkernels.pointwise import brought_bytes, copy_vectors, multiply_pixels, panels_of
from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.arithmetic import zero_f32
from ort_sdk_cpu.simd.memory import store_f32
from ort_sdk_cpu.simd.work_stealing import leave_jobs, next_job

__all__ = ["pointwise"]

_PANEL_BYTES = 4 * PANEL
_CLAIMS = 11
"""Where the words for ``claims`` are."""


@inner
def _multiply(record: int, first: int, count: int, panels: tuple[int, int], next_count: int, work: int) -> None:
    """Some pixels with some panels. What is asked for meanwhile is the next panel, or else so many pixels behind these."""
    depth, weights, whole = argument(record, 7), argument(record, 1), panels_of(argument(record, 10))
    place, size = argument(record, 0) + first * depth * 4, depth * _PANEL_BYTES
    ahead, stop = place + count * depth * 4, place + (count + next_count) * depth * 4
    for panel in range(panels[0], panels[1]):
        if next_count == 0:
            ahead, stop = weights + (panel + 1) * size, weights + min(panel + 2, whole) * size
        brought = min(stop - ahead, size if next_count == 0 else brought_bytes(count, depth))
        has_next = int(panel + 1 < panels[1])
        multiply_pixels(record, place, depth * 4, count, depth, first, panel, weights, work, ahead, brought, has_next)
        ahead += brought


@inner
def _multiply_jobs(record: int, part: int, parts: int, panels: int, work: int) -> None:
    """Blocks of pixels with so many panels, a group of them at a time; one group comes with a part's first block."""
    pixels, blocks, groups, claims = argument(record, 6), argument(record, 8), argument(record, 9), record + _CLAIMS * 8
    job, tried = next_job(claims, blocks * groups, part, parts, 0)
    has_panels = 0
    while job >= 0:
        block, group = job // groups, job % groups
        first, stop = pixels * block // blocks, pixels * (block + 1) // blocks
        next_count = pixels * (block + 2) // blocks - stop if has_panels and block < blocks - 1 else 0
        _multiply(record, first, stop - first, (panels * group // groups, panels * (group + 1) // groups), next_count, work)
        has_panels = int(groups == 1)
        job, tried = next_job(claims, blocks * groups, part, parts, tried)
    leave_jobs(claims, parts)


@task
def pointwise(record: int, part: int, parts: int) -> None:
    """A convolution with bias, addend and activation.

    Arguments: addresses of x, weights in panels, bias (or 0), addend (or 0), the output and working memory; pixels, channels,
    blocks of pixels, groups of panels, output channels, 8 words for ``claims``, bytes of working memory per thread; what is done
    to the sums, as for ``winograd``. A job is a block with a group. Where there is one block, panels that cannot be shared evenly
    are left: of those, each part has some pixels.
    """
    work, outputs = argument(record, 5) + part * argument(record, 19), argument(record, 10)
    for place in range(0, _PANEL_BYTES, 64):
        store_f32(work + place, zero_f32())
    copy_vectors(argument(record, 2), outputs, work + _PANEL_BYTES)
    pixels, panels = argument(record, 6), panels_of(outputs)
    shared = panels if argument(record, 8) > 1 else panels // parts * parts
    _multiply_jobs(record, part, parts, shared, work)
    first, stop = pixels * part // parts, pixels * (part + 1) // parts
    _multiply(record, first, stop - first, (shared, panels), 0, work)
