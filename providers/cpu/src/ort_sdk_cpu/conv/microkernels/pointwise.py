"""GEMM of pixels and panels of weights: 1x1 convolutions, and the last part of those made of several.

The arguments of a task that uses it have ``bias``, ``added``, ``out``, ``outputs`` and an ``epilogue``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.gemm.microkernels.sgemm import MR, NR_VECTORS
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.kernel.microkernels.activation_codes import ActivationKind
from ort_sdk_cpu.simd.arithmetic import zero_f32
from ort_sdk_cpu.simd.memory import load_f32, load_f32_masked, store_f32, store_f32_masked

from .epilogue import finished
from .pixel_tile import PANEL, leading_pixel_tile

__all__ = [
    "brought_bytes",
    "copy_line",
    "copy_vectors",
    "has_bounds_only",
    "highest",
    "line_step_of",
    "lowest",
    "multiply_pixels",
    "panels_of",
]

_PANEL_BYTES = 4 * PANEL
_LINE = 64
"""Bytes of a cache line."""
# Blocked summation: the error grows with the length of a chain plus the number of chains, in place of their product (Higham,
# "The Accuracy of Floating Point Summation", 1993).
_K_BLOCK = 256
"""Most channels summed in one chain."""
_CLIP = int(ActivationKind.CLIP)


@inline
def panels_of(channels: int) -> int:
    """How many panels hold so many channels."""
    return (channels + PANEL - 1) // PANEL


@inline
def copy_vectors(source: int, count: int, target: int) -> None:
    """Copy a vector into whole panels, zeros behind it; zeros only if there is no source."""
    for address in range(0, panels_of(count) * PANEL, 16):
        store_f32(target + address * 4, load_f32_masked(source + address * 4, count - address) if source else zero_f32())


@inline
def copy_line(source: int, width: int, left: int, target: int, length: int) -> None:
    """A line of a image between zeros, in whole vectors; ``source`` is 0 for a line outside."""
    for address in range(0, length, 16):
        store_f32(target + address * 4, zero_f32())
    if source:
        begin, stop = max(0, -left), min(width, length - left)
        # Masked at the end only: zeros stand where nothing is copied.
        for address in range(begin, stop, 16):
            count = stop - address
            store_f32_masked(target + (left + address) * 4, load_f32_masked(source + address * 4, count), count)


@inline
def lowest(activation: int, bound: float) -> Any:
    """Lower bound of an activation; none unless it is bounds."""
    return bound if activation == _CLIP else np.float32(-np.inf)


@inline
def highest(activation: int, bound: float) -> Any:
    """Upper bound of an activation; none unless it is bounds."""
    return bound if activation == _CLIP else np.float32(np.inf)


@inline
def has_bounds_only(args: Any) -> Any:
    """Whether nothing but bounds is applied to the sums."""
    return args.epilogue.activation <= _CLIP and args.epilogue.last == 0 and args.epilogue.is_scaled == 0


@inline
def _finish_rows(args: Any, stage: int, rows: int, offset: int, left: int) -> None:
    row_bytes = args.outputs * 4
    for row in range(rows):
        for lane in range(0, min(PANEL, left), 16):
            address, remainder = offset + row * row_bytes + lane * 4, left - lane
            value = finished(args, address, remainder, load_f32(stage + row * _PANEL_BYTES + lane * 4))
            store_f32_masked(args.out + address, value, remainder)


@inline
def brought_bytes(pixels: int, depth: int) -> int:
    """Bytes that are prefetched while so many pixels are multiplied with one panel, at a cache line for each two channels."""
    return (pixels + MR - 1) // MR * depth * _LINE // 2


@inline
def line_step_of(pixels: int, depth: int, wanted_bytes: int) -> int:
    """Bytes to prefetch with each two channels: all that is wanted, if two lines are enough."""
    # Nothing left to prefetch: an address that is prefetched again costs a load slot each time.
    if wanted_bytes <= 0:
        return 0
    return _LINE if brought_bytes(pixels, depth) >= wanted_bytes else 2 * _LINE


@inline
def _prefetch_shift_of(depth: int) -> int:
    """Power of two of channels, in the course of which one pixel is prefetched: so many that those of a tile are."""
    found = 0
    while depth >> (found + 1) >= MR:
        found += 1
    return found


@inline
def _next_pixels(args: Any, offset: int, is_known: int, bias: int) -> tuple[int, int, int]:
    """Where what is added to pixels is, where they are written, and bytes from one to the next; the bias for a stage."""
    # Lines of the bias are in the cache anyway: prefetching them does nothing.
    if not is_known:
        return bias, bias, 0
    written = args.out + offset
    return (args.added + offset if args.added else written), written, args.outputs * 4


@inline
def multiply_pixels(
    args: Any,
    x: int,
    x_row: int,
    pixels: int,
    depth: int,
    pixel: int,
    panel: int,
    weights: int,
    work: int,
    ahead: int,
    ahead_bytes: int,
    has_next: int,
) -> None:
    """Write one panel of output channels for some pixels.

    Args:
        args: of the task.
        x: address of the first pixel's channels.
        x_row: bytes from pixel to pixel.
        pixels: how many.
        depth: channels of x.
        pixel: number of the first pixel in the output.
        panel: which.
        weights: address of the panels.
        work: address of zeros for a panel, bias in whole panels, and room for a tile behind them.
        ahead: address of what is read afterwards, and is prefetched meanwhile.
        ahead_bytes: how much there is of it; no more than twice ``brought_bytes`` is prefetched.
        has_next: whether the next panel comes afterwards. What other threads write must not be.
    """
    outputs = args.outputs
    left, row_bytes = outputs - panel * PANEL, outputs * 4
    vectors, blocks = min(NR_VECTORS, (left + 15) // 16), (depth + _K_BLOCK - 1) // _K_BLOCK
    stage, is_direct = work + (1 + panels_of(outputs)) * _PANEL_BYTES, has_bounds_only(args) and left >= vectors * 16
    tiles, step = (pixels + MR - 1) // MR, line_step_of(pixels, depth, ahead_bytes)
    panel_weights = weights + panel * depth * _PANEL_BYTES
    for index in range(tiles):
        # Tiles of nearly equal height instead of full ones and a remainder: a low register tile waits for its loads.
        first, rows = pixels * index // tiles, pixels * (index + 1) // tiles - pixels * index // tiles
        offset = (pixel + first) * row_bytes + panel * _PANEL_BYTES
        bias, addend_row = work + (1 + panel) * _PANEL_BYTES, row_bytes
        addend = args.added + offset if is_direct and args.added else 0
        following, is_known, asked = offset + rows * row_bytes, int(is_direct), index * depth * step // 2
        if index == tiles - 1:
            following, is_known = pixel * row_bytes + (panel + 1) * _PANEL_BYTES, has_next * is_known
        soon, written, behind = _next_pixels(args, following, is_known, bias)
        line, line_step = (ahead + asked, step) if asked < ahead_bytes else (panel_weights, 0)
        # Bounds are applied in registers; any other epilogue is applied to a tile in the workspace, where it can be a loop.
        for block in range(blocks):
            start, stop = depth * block // blocks, depth * (block + 1) // blocks
            target, target_row, low, high = stage, _PANEL_BYTES, np.float32(-np.inf), np.float32(np.inf)
            # Only the last chain's sums are results.
            if is_direct and block == blocks - 1:
                target, target_row = args.out + offset, row_bytes
                low, high = (
                    lowest(args.epilogue.activation, args.epilogue.alpha),
                    highest(args.epilogue.activation, args.epilogue.beta),
                )
            address, panel_place, count = x + first * x_row + start * 4, panel_weights + start * _PANEL_BYTES, stop - start
            leading_pixel_tile(
                *(rows, vectors, panel_place, address, x_row, count, bias, addend, addend_row, low, high, target, target_row),
                *(soon, written, behind, _prefetch_shift_of(count), line + start * line_step // 2, line_step),
            )
            bias, addend, addend_row = work, stage, _PANEL_BYTES
        if not is_direct:
            _finish_rows(args, stage, rows, offset, left)
