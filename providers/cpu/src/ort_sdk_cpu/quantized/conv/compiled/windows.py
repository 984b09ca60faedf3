"""How convolutions of 8-bit data read their windows, and how threads share them: the outer loops of all their tasks.

An implicit GEMM: windows are rows of the matrix that im2col would make, and are read where they are. Only what is around the data
has to be made up, which a frame does for a block of lines at a time, in memory that stays in the second cache.
"""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import Task, task
from ort_sdk_cpu.quantized.conv.arguments.windows import Convolution, DequantizedConv, QuantizedConv, Windows
from ort_sdk_cpu.simd.arithmetic import add, multiply, shift_left, splat_i32
from ort_sdk_cpu.simd.int8 import broadcast_u8, load_bytes_masked
from ort_sdk_cpu.simd.memory import load_i32, load_u8_masked, store_i32

__all__ = ["constant_fill", "dynamic_fill", "panel_at", "panel_bytes", "windows_task"]

_EVERY_BYTE = 0x01010101
_INTERLEAVED = 2


@inline
def _fill(target: int, stop: int, value: Any) -> None:
    """Up to 63 bytes behind ``stop`` are written, too: a frame's lines are written in order, and its last has room behind."""
    for address in range(target, stop, 64):
        store_i32(address, value)


@inline
def _copy(source: int, target: int, count: int) -> None:
    """Up to 63 bytes behind the target are written, too; none behind the source is read."""
    whole = count // 64 * 64
    for offset in range(0, whole, 64):
        store_i32(target + offset, load_i32(source + offset))
    if whole < count:
        store_i32(target + whole, load_bytes_masked(source + whole, count - whole))


@inline
def _interleave(source: int, plane: int, channels: int, target: int, count: int) -> None:
    """Up to four planes: four bytes for each element. Up to 60 bytes behind the target are written, too.

    A pixel is then one step along K: images of three channels need no copy with channels last first.
    """
    for element in range(0, count, 16):
        value = load_u8_masked(source + element, count - element)
        for channel in range(1, channels):
            value = add(value, shift_left(load_u8_masked(source + channel * plane + element, count - element), 8 * channel))
        store_i32(target + element * 4, value)


@inline
def constant_fill(args: QuantizedConv) -> Any:
    """What is around x, in every byte: its zero point."""
    return splat_i32(args.windows.fill)


@inline
def dynamic_fill(args: DequantizedConv) -> Any:
    """The same where x's zero point comes with each run."""
    return multiply(broadcast_u8(args.dequantization.zero_point), splat_i32(_EVERY_BYTE))


@inline
def _frame(windows: Windows, fill: Any, sample: int, line: int, lines: int, frame: int) -> None:
    """Lines of the input that some lines of the output are made of, with what is around them."""
    height, width, channels = windows.height, windows.width, windows.channels
    pitch, is_interleaved = windows.pitch, windows.source == _INTERLEAVED
    pixel = 4 if is_interleaved else channels
    first, before = line * windows.stride - windows.top, windows.left * pixel
    source = windows.x + sample * height * width * channels
    for index in range((lines - 1) * windows.stride + windows.extent):
        target, row = frame + index * pitch, first + index
        if 0 <= row < height:
            _fill(target, target + before, fill)
            if is_interleaved:
                _interleave(source + row * width, height * width, channels, target + before, width)
            else:
                _copy(source + row * width * channels, target + before, width * channels)
            _fill(target + before + width * pixel, target + pitch, fill)
        else:
            _fill(target, target + pitch, fill)


@inline
def panel_bytes(windows: Windows, columns: int) -> int:
    """Bytes of a panel of some columns."""
    steps: int = windows.lines * windows.steps
    return steps * 4 * columns


@inline
def panel_at(windows: Windows, panel: int, columns: int, parameters: int) -> tuple[int, int, int]:
    """Addresses of a panel and of the numbers that belong to its columns, and the columns there are from its first on."""
    weights = windows.weights + panel * panel_bytes(windows, columns)
    return weights, windows.columns + panel * 4 * columns * parameters, windows.out_channels - panel * columns


def windows_task(name: str, block: Any, fill_of: Any, arguments: type[Convolution], columns: int) -> Task:
    """The task that multiplies windows of samples with panels by ``block``, which gets the thread's workspace, too."""

    @inline
    def multiply_windows(args: Any, first: int, stop: int, begin: int, end: int, work: int) -> None:
        # In blocks that stay in the second cache while all panels go by, which come from further away; ``base`` is the address of
        # the line of a block's first window.
        windows = args.windows
        width, size, pitch = windows.out_width, windows.block, windows.pitch
        sample_windows = windows.out_height * width
        while first < stop:
            sample = first // sample_windows
            start = first - sample * sample_windows
            count = min(size, stop - first, sample_windows - start)
            line, last = start // width, (start + count - 1) // width
            base = work
            # Convolutions without padding whose lines are of whole steps copy nothing.
            if windows.source:
                _frame(windows, fill_of(args), sample, line, last - line + 1, work)
            else:
                base = windows.x + (sample * windows.height + line * windows.stride) * pitch
            block(args, sample, start, start + count, begin, end, base, pitch, work)
            first += count

    def convolution(args: Any, thread: int, threads: int) -> None:
        windows = args.windows
        count = windows.samples * windows.out_height * windows.out_width
        panels, work = (windows.out_channels + columns - 1) // columns, windows.workspace
        work += thread * windows.workspace_bytes
        if windows.shares_columns:
            # More weights than input: each is then read by one thread only, and all threads read all of the input.
            multiply_windows(args, 0, count, panels * thread // threads, panels * (thread + 1) // threads, work)
        else:
            multiply_windows(args, count * thread // threads, count * (thread + 1) // threads, 0, panels, work)

    convolution.__name__ = name
    convolution.__annotations__["args"] = arguments
    return task(convolution)
