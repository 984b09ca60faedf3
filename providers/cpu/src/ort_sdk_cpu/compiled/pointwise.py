"""Convolutions of one tap on channels-last data."""

from __future__ import annotations

from ort_sdk_cpu.jit import inner
from ort_sdk_cpu.machine_code import task
from ort_sdk_cpu.simd.arithmetic import zero_f32
from ort_sdk_cpu.simd.memory import store_f32
from ort_sdk_cpu.simd.pixel_tiles import PANEL
from ort_sdk_cpu.simd.pixels import brought_bytes, copy_vectors, multiply_pixels, panels_of
from ort_sdk_cpu.simd.records import argument

__all__ = ["pointwise"]

_PANEL_BYTES = 4 * PANEL


@inner
def _multiply(record: int, job: int, work: int) -> None:
    pixels, depth, blocks, groups = argument(record, 6), argument(record, 7), argument(record, 8), argument(record, 9)
    panels, block, group = panels_of(argument(record, 10)), job % blocks, job // blocks
    first = pixels * block // blocks
    count = pixels * (block + 1) // blocks - first
    place = argument(record, 0) + first * depth * 4
    ahead, stop = place + count * depth * 4, place + 2 * count * depth * 4
    for panel in range(panels * group // groups, panels * (group + 1) // groups):
        multiply_pixels(record, place, depth * 4, count, depth, first, panel, argument(record, 1), work, ahead, stop - ahead)
        ahead = min(stop, ahead + brought_bytes(count, depth))


@task
def pointwise(record: int, part: int, parts: int) -> None:
    """A convolution with bias, addend and activation.

    Arguments: addresses of x, weights in panels, bias (or 0), addend (or 0), the output and working memory; pixels, channels,
    blocks of pixels, groups of panels, output channels, 8 words that mean nothing, bytes of working memory per thread; what is
    done to the sums, as for ``winograd``. A job is a block of pixels with a group of panels.
    """
    work, outputs = argument(record, 5) + part * argument(record, 19), argument(record, 10)
    for place in range(0, _PANEL_BYTES, 64):
        store_f32(work + place, zero_f32())
    copy_vectors(argument(record, 2), outputs, work + _PANEL_BYTES)
    jobs = argument(record, 8) * argument(record, 9)
    for job in range(jobs * part // parts, jobs * (part + 1) // parts):
        _multiply(record, job, work)
