"""1x1 convolutions on NHWC data: a GEMM of pixels (M) and panels of weights (N) along channels (K).

Blocked as in GotoBLAS (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008), but for packing A: its
rows are pixels, which are contiguous in NHWC.
"""

from __future__ import annotations

from ort_sdk_cpu.conv.arguments.pointwise import Pointwise
from ort_sdk_cpu.conv.microkernels.pixel_tile import PANEL
from ort_sdk_cpu.conv.microkernels.pointwise import brought_bytes, copy_vectors, multiply_pixels, panels_of
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.simd.arithmetic import zero_f32
from ort_sdk_cpu.simd.memory import store_f32
from ort_sdk_cpu.simd.synchronization import finish_jobs, next_job

__all__ = ["pointwise"]

_PANEL_BYTES = 4 * PANEL


@inline
def _multiply(args: Pointwise, first: int, count: int, panels: tuple[int, int], next_count: int, work: int) -> None:
    """Some pixels with some panels. What is prefetched meanwhile is the next panel, or else so many pixels behind these."""
    depth, weights, whole = args.channels, args.weights, panels_of(args.outputs)
    address, size = args.x + first * depth * 4, depth * _PANEL_BYTES
    ahead, stop = address + count * depth * 4, address + (count + next_count) * depth * 4
    for panel in range(panels[0], panels[1]):
        if next_count == 0:
            ahead, stop = weights + (panel + 1) * size, weights + min(panel + 2, whole) * size
        brought = min(stop - ahead, size if next_count == 0 else brought_bytes(count, depth))
        has_next = int(panel + 1 < panels[1])
        multiply_pixels(args, address, depth * 4, count, depth, first, panel, weights, work, ahead, brought, has_next)
        ahead += brought


@inline
def _multiply_jobs(args: Pointwise, thread: int, threads: int, panels: int, work: int) -> None:
    """Blocks of pixels with so many panels, a group of them at a time."""
    pixels, blocks, groups, counters = args.pixels, args.blocks, args.groups, args.jobs.first
    job, tried = next_job(counters, blocks * groups, thread, threads, 0)
    has_panels = 0
    while job >= 0:
        block, group = job // groups, job % groups
        first, stop = pixels * block // blocks, pixels * (block + 1) // blocks
        # Panels that are in the cache already leave room for prefetching the pixels of the block behind this one.
        next_count = pixels * (block + 2) // blocks - stop if has_panels and block < blocks - 1 else 0
        _multiply(args, first, stop - first, (panels * group // groups, panels * (group + 1) // groups), next_count, work)
        has_panels = int(groups == 1)
        job, tried = next_job(counters, blocks * groups, thread, threads, tried)
    finish_jobs(counters, threads)


@task
def pointwise(args: Pointwise, thread: int, threads: int) -> None:
    """A convolution with epilogue. A job is a block of pixels with a group of panels; threads steal jobs."""
    work, outputs = args.work + thread * args.work_bytes, args.outputs
    # Zeros and the bias in whole panels: the micro-kernel begins with vectors of them, without cases.
    for address in range(0, _PANEL_BYTES, 64):
        store_f32(work + address, zero_f32())
    copy_vectors(args.bias, outputs, work + _PANEL_BYTES)
    pixels, panels = args.pixels, panels_of(outputs)
    # Of one block, panels that threads cannot share evenly are left: of those, each thread has some pixels.
    shared = panels if args.blocks > 1 else panels // threads * threads
    _multiply_jobs(args, thread, threads, shared, work)
    first, stop = pixels * thread // threads, pixels * (thread + 1) // threads
    _multiply(args, first, stop - first, (shared, panels), 0, work)
