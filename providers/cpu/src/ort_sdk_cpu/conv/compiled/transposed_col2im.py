"""Transposed convolutions into a few channels: GEMM of taps and pixels, and col2im of some rows at a time.

Vectors are of neighbouring pixels of a row, so that no lane is empty however few output channels there are. The usual col2im
makes the products of the whole image first, several times its size. Here those of the last rows are kept, in a ring, for as long
as windows reach: each result is the sum of what belongs to it there, and is written once. *Phases* of a row of results are those
with the same distance from the step before them: each phase is a convolution with stride 1 by some of the taps.
"""

from __future__ import annotations

import numpy as np

from ort_sdk_cpu.conv.arguments.transposed_col2im import TransposedCol2im
from ort_sdk_cpu.gemm.microkernels.sgemm import MR, NR_VECTORS, strided_tile
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.simd.arithmetic import add, splat_f32, zero_f32
from ort_sdk_cpu.simd.memory import load_f32, load_f32_masked, read_f32, store_f32, store_f32_masked, write_f32
from ort_sdk_cpu.simd.shuffles import interleave_high, interleave_low, transpose_rows

__all__ = ["transposed_col2im"]

_FLOAT = 4
_VECTOR = 64
_LANES = 16
_BLOCK = 32
"""Pixels of a tile."""
_PANEL_ROW = _BLOCK * _FLOAT
_TILE = NR_VECTORS * _VECTOR
_PAIR = 2


@inline
def _pack_row_major(args: TransposedCol2im, pixels: int, count: int, panel: int) -> None:
    """Pack pixels of NCHW data; zeros stand for those missing."""
    step = args.x_channel
    for channel in range(args.channels):
        source, target = pixels + channel * step, panel + channel * _PANEL_ROW
        store_f32(target, load_f32_masked(source, count))
        store_f32(target + _VECTOR, load_f32_masked(source + _VECTOR, count - _LANES))


@inline
def _pack_channels_last(args: TransposedCol2im, pixels: int, count: int, panel: int, transposed: int) -> None:
    """Pack pixels of NHWC data, transposed in registers."""
    channels, step = args.channels, args.x_pixel
    # 16 x 16 transposes in registers, of the two halves of a panel's 32 pixels.
    for half in range(2):
        left = count - half * _LANES
        for channel in range(0, channels, _LANES):
            target = panel + channel * _PANEL_ROW + half * _VECTOR
            if left > 0:
                address = pixels + half * _LANES * step + channel * _FLOAT
                transpose_rows(address, step, min(left, _LANES), min(channels - channel, _LANES), transposed)
                for lane in range(_LANES):
                    store_f32(target + lane * _PANEL_ROW, load_f32_masked(transposed + lane * _VECTOR, left))
            else:
                for lane in range(_LANES):
                    store_f32(target + lane * _PANEL_ROW, zero_f32())


@inline
def _multiply(args: TransposedCol2im, pixels: int, count: int, panel: int, transposed: int, target: int) -> None:
    """GEMM of all taps and some neighbouring pixels of a row, and behind them zeros for as many as make the last tile full.

    Args:
        args: of the task.
        pixels: address of the first one.
        count: how many.
        panel: room for as many as a tile has.
        transposed: room for 16 vectors.
        target: of the first tap's products.
    """
    # The panel is packed once, and read by all tiles of taps.
    taps, pitch = args.outputs * args.taps_down * args.taps_right, args.pitch
    parts = (taps + MR - 1) // MR
    for first in range(0, count, _BLOCK):
        address, left = pixels + first * args.x_pixel, count - first
        if args.x_pixel == _FLOAT:
            _pack_row_major(args, address, left, panel)
        else:
            _pack_channels_last(args, address, left, panel, transposed)
        for part in range(parts):
            tap = taps * part // parts
            rows, weights = taps * (part + 1) // parts - tap, args.weights + tap * _FLOAT
            found = target + tap * pitch + first * _FLOAT
            # With AVX2, a tile has half of the pixels of a panel.
            for offset in range(0, _PANEL_ROW, _TILE):
                source, channels = panel + offset, args.channels
                strided_tile(rows, source, _PANEL_ROW, weights, _FLOAT, taps * _FLOAT, channels, found + offset, pitch, 1)
    if count > 0:
        # A weight that is not finite times a missing pixel is NaN: what is behind the row has to be 0.
        for behind in range(target + count * _FLOAT, target + count * _FLOAT + taps * pitch, pitch):
            store_f32(behind, zero_f32())
            store_f32(behind + _VECTOR, zero_f32())


@inline
def _add_rows(
    args: TransposedCol2im, output: int, products: int, step: int, line: int, right: int, count: int, target: int
) -> None:
    """Sums of one phase of a row of results.

    Args:
        args: of the task.
        output: number of the channel.
        products: address of the ring, at the first pixel.
        step: number of the row of steps.
        line: phase of the row of results.
        right: phase of the results in the row.
        count: steps.
        target: of sums of whole vectors of steps.
    """
    rows, columns, down, across = args.taps_down, args.taps_right, args.step_down, args.step_right
    height, pitch, kept, bias = args.height, args.pitch, args.kept, args.bias
    lowest, highest = line + args.top, right + args.left
    # The bias begins the sums of a phase: a pass less.
    start = splat_f32(read_f32(bias + output * _FLOAT) if bias else np.float32(0))
    for column in range(0, count * _FLOAT, _VECTOR):
        store_f32(target + column, start)
    row = step + lowest // down
    for tap in range(lowest % down, rows, down):
        if 0 <= row < height:
            # Products of a row stay in their slot of the ring until no step reaches them.
            window = (row % kept * args.outputs + output) * rows + tap
            address = products + (highest // across - args.before) * _FLOAT
            for other in range(highest % across, columns, across):
                source = address + (window * columns + other) * pitch
                for column in range(0, count * _FLOAT, _VECTOR):
                    store_f32(target + column, add(load_f32(target + column), load_f32(source + column)))
                address -= _FLOAT
        row -= 1


@inline
def _interleave(phases: int, phase_pitch: int, across: int, count: int, target: int) -> None:
    """Write the results of all phases in turns.

    Args:
        phases: address of the first phase's results.
        phase_pitch: bytes to those of the next.
        across: how many phases there are.
        count: results.
        target: of the first.
    """
    # Stride 2 is nearly all there is: two phases are interleaved by shuffles of whole vectors.
    if across == _PAIR:
        for column in range(0, count, _PAIR * _LANES):
            even, address = phases + column // _PAIR * _FLOAT, target + column * _FLOAT
            first, second = load_f32(even), load_f32(even + phase_pitch)
            store_f32_masked(address, interleave_low(first, second), count - column)
            store_f32_masked(address + _VECTOR, interleave_high(first, second), count - column - _LANES)
    else:
        for right in range(across):
            source = phases + right * phase_pitch
            for column in range(right, count, across):
                write_f32(target + column * _FLOAT, read_f32(source))
                source += _FLOAT


@inline
def _write(args: TransposedCol2im, sample: int, products: int, step: int, begin: int, end: int, phases: int) -> None:
    """The results of a row of steps.

    Args:
        args: of the task.
        sample: its number.
        products: address of the ring.
        step: number of the row.
        begin: column of steps to begin with.
        end: that to end before.
        phases: room for whole vectors of each phase.
    """
    down, across, height, width = args.step_down, args.step_right, args.rows, args.columns
    phase_pitch, count = (end - begin + _LANES - 1) // _LANES * _VECTOR, min(end * across, width) - begin * across
    for line in range(min(down, height - step * down)):
        for output in range(args.outputs):
            row = (sample * args.outputs + output) * height + step * down + line
            target = args.out + (row * width + begin * across) * _FLOAT
            for right in range(across):
                _add_rows(args, output, products, step, line, right, end - begin, phases + right * phase_pitch)
            _interleave(phases, phase_pitch, across, count, target)


@inline
def _block(args: TransposedCol2im, sample: int, top: int, bottom: int, begin: int, end: int, work: int) -> None:
    """The results of some rows and columns of steps.

    Args:
        args: of the task.
        sample: its number.
        top: row of steps to begin with.
        bottom: that to end before.
        begin: column of steps to begin with.
        end: that to end before.
        work: workspace.
    """
    transposed = work + (args.channels + _LANES - 1) // _LANES * _LANES * _PANEL_ROW
    taps = args.outputs * args.taps_down * args.taps_right
    products, row_bytes, kept = transposed + _LANES * _VECTOR, taps * args.pitch, args.kept
    phases, below = products + kept * row_bytes, args.above + kept - 1
    for address in range(products, phases, _VECTOR):
        store_f32(address, zero_f32())
    reached = begin + args.before
    first = max(0, reached)
    count, shift = min(args.width, end + args.behind) - first, (first - reached) * _FLOAT
    for row in range(top + args.above, bottom + below):
        # Rows outside of X have no products: those taps are left out.
        if 0 <= row < args.height:
            offset = sample * args.x_sample + row * args.x_row + first * args.x_pixel
            target = products + row % kept * row_bytes + shift
            _multiply(args, args.x + offset, count, work, transposed, target)
        # All rows that the step is made of have been multiplied.
        if row - below >= top:
            _write(args, sample, products, row - below, begin, end, phases)


@task
def transposed_col2im(args: TransposedCol2im, thread: int, threads: int) -> None:
    """A transposed convolution with bias; each thread has a range of the blocks and chunks of steps of all samples."""
    down, across, blocks, chunks = args.step_down, args.step_right, args.blocks, args.chunks
    rows, columns = (args.rows + down - 1) // down, (args.columns + across - 1) // across
    samples, work = args.samples, args.work + thread * args.work_bytes
    jobs = blocks * samples * chunks
    for job in range(jobs * thread // threads, jobs * (thread + 1) // threads):
        block, begin = job // (samples * chunks), job % chunks * args.chunk
        top, bottom = rows * block // blocks, rows * (block + 1) // blocks
        _block(args, job // chunks % samples, top, bottom, begin, min(begin + args.chunk, columns), work)
