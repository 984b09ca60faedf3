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
def _multiply(record: int, first: int, count: int, panels: tuple[int, int], next_count: int, work: int) -> None:
    """Some pixels with some panels. What is asked for meanwhile is the next panel, or else so many pixels behind these."""
    depth, weights = argument(record, 7), argument(record, 1)
    place, size = argument(record, 0) + first * depth * 4, depth * _PANEL_BYTES
    ahead, stop = place + count * depth * 4, place + (count + next_count) * depth * 4
    for panel in range(panels[0], panels[1]):
        if next_count == 0:
            ahead, stop = weights + (panel + 1) * size, weights + min(panel + 2, panels[1]) * size
        brought = min(stop - ahead, size if next_count == 0 else brought_bytes(count, depth))
        has_next = int(panel + 1 < panels[1])
        multiply_pixels(record, place, depth * 4, count, depth, first, panel, weights, work, ahead, brought, has_next)
        ahead += brought


@inner
def _multiply_blocks(record: int, part: int, parts: int, work: int) -> None:
    """A part of the blocks with all panels, which come with the first block."""
    pixels, blocks, panels = argument(record, 6), argument(record, 8), panels_of(argument(record, 10))
    begin, end = blocks * part // parts, blocks * (part + 1) // parts
    for block in range(begin, end):
        first, stop = pixels * block // blocks, pixels * (block + 1) // blocks
        next_count = pixels * (block + 2) // blocks - stop if begin < block < end - 1 else 0
        _multiply(record, first, stop - first, (0, panels), next_count, work)


@task
def pointwise(record: int, part: int, parts: int) -> None:
    """A convolution with bias, addend and activation.

    Arguments: addresses of x, weights in panels, bias (or 0), addend (or 0), the output and working memory; pixels, channels,
    blocks of pixels, whether threads have panels of their own, output channels, 8 words that mean nothing, bytes of working
    memory per thread; what is done to the sums, as for ``winograd``. Of panels that are left, each thread has some pixels.
    """
    work, outputs = argument(record, 5) + part * argument(record, 19), argument(record, 10)
    for place in range(0, _PANEL_BYTES, 64):
        store_f32(work + place, zero_f32())
    copy_vectors(argument(record, 2), outputs, work + _PANEL_BYTES)
    if not argument(record, 9):
        _multiply_blocks(record, part, parts, work)
        return
    pixels, panels = argument(record, 6), panels_of(outputs)
    own = panels // parts
    _multiply(record, 0, pixels, (own * part, own * (part + 1)), 0, work)
    first, stop = pixels * part // parts, pixels * (part + 1) // parts
    _multiply(record, first, stop - first, (own * parts, panels), 0, work)
