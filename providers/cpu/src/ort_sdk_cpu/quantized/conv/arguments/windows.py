"""Arguments of convolutions of 8-bit data: where windows are, and what follows the sums."""

from __future__ import annotations

from typing import ClassVar

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, accesses, reads, uses_workspace, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT

__all__ = [
    "Addition",
    "Convolution",
    "Dequantization",
    "DequantizedConv",
    "DequantizedConvWithZeroPoints",
    "QuantizedConv",
    "QuantizedConvAdd",
    "QuantizedConvWithZeroPoints",
    "Windows",
    "declare_convolutions",
]

PANEL = 64
"""Columns of a panel, unless the task's name has another number."""
_AMX_BYTES = 64 + 4 * PANEL + 64 + 32 * (64 + 4 * PANEL)
"""Workspace of a thread for AMX, behind its frame."""
_BEHIND_FRAME = 63
"""Bytes behind a frame that are written, too."""


class Windows(TaskArguments):
    """Where windows are, and how threads share them.

    Windows are read from x itself, if nothing is outside of it; else from a *frame*: a copy of some lines with the zero point
    around them. A line of a window is one piece of memory, so that the loop along K goes over the lines of a window only.
    """

    x: Pointer
    """8-bit (samples, height, width, channels), or NCHW for ``source`` 2."""
    weights: Pointer
    """Packed panels: (panels, lines, steps, panel columns, 4)."""
    out: Pointer
    """(samples, out height, out width, out channels)."""
    columns: Pointer
    """What belongs to each panel's columns, int32 or float32: (panels, parameters, panel columns)."""
    workspace: Pointer
    """(threads, workspace_bytes)."""
    samples: int
    height: int
    width: int
    channels: int
    out_height: int
    out_width: int
    out_channels: int
    lines: int
    """Of a window."""
    line_bytes: int
    """From line to line of a window."""
    steps: int
    """Along K, of four elements each, in a line of a window."""
    window_bytes: int
    """From window to window of a row."""
    stride: int
    """Lines from a row of windows to the next."""
    top: int
    """Padding above x."""
    left: int
    """Padding left of x."""
    extent: int
    """Lines from a window's first to the one behind its last."""
    pitch: int
    """Bytes of a line of what windows are read from."""
    source: int
    """0: x itself; 1: a frame; 2: a frame in which channels of NCHW are interleaved, four bytes for each pixel."""
    fill: int
    """x's zero point in all of four bytes; not read by convolutions with a float32 result."""
    block: int
    """Windows that are multiplied with all weights before the next."""
    shares_columns: int
    """Whether threads share the panels, and not the windows."""
    workspace_bytes: int
    """Of each thread."""
    sign: int
    """0x80808080 for int8 x without AMX, else 0: exclusive or with four elements makes them uint8."""
    chunk_steps: int
    """Steps that AMX takes at a time."""

    def frame_bytes(self) -> int:
        """Bytes of a thread's frame, if there is one."""
        if not self.source:
            return 0
        # A block may begin within a line.
        most = min(self.out_height, (self.block + self.out_width - 2) // self.out_width + 1)
        return ((most - 1) * self.stride + self.extent) * self.pitch + _BEHIND_FRAME

    def results(self) -> int:
        """Elements of the output."""
        return self.samples * self.out_height * self.out_width * self.out_channels


class Convolution(TaskArguments):
    """A convolution of 8-bit data."""

    panel: ClassVar = PANEL
    """Columns of a panel."""
    is_amx: ClassVar = False
    parameters: ClassVar = 2
    """Numbers that belong to each column."""
    windows: Windows

    def _extents(self, threads: int, itemsize: int = 1) -> Extents:
        windows = self.windows
        panels = -(-windows.out_channels // self.panel)
        yield from _reads_x(windows)
        yield reads(windows.weights, panels * windows.lines * windows.steps * 4 * self.panel)
        yield writes(windows.out, windows.results() * itemsize)
        yield reads(windows.columns, panels * FLOAT * self.panel * self.parameters)
        used, nbytes = windows.frame_bytes(), windows.workspace_bytes
        if self.is_amx:
            # What AMX needs is at the end of a thread's workspace.
            yield uses_workspace(windows.workspace, threads * max(nbytes, used + _AMX_BYTES))
        else:
            yield uses_workspace(windows.workspace, (threads - 1) * nbytes + used if used else 0)

    def _reads_ones(self, ones: int) -> Extents:
        windows = self.windows
        yield reads(ones, windows.lines * windows.steps * 4 * (16 if self.is_amx else 1))


def _reads_x(windows: Windows) -> Extents:
    if windows.source:
        yield reads(windows.x, windows.samples * windows.height * windows.width * windows.channels)
        return
    sizes = (windows.samples, windows.out_height, windows.out_width, windows.lines)
    row, pitch = windows.stride * windows.pitch, windows.height * windows.pitch
    yield accesses(windows.x, sizes, (pitch, row, windows.window_bytes, windows.line_bytes), 4 * windows.steps)


class QuantizedConv(Convolution):
    """With an 8-bit result: round(sums * scale) + zero point, saturated.

    To a column belong what its sums begin with (int32) and its scale (float32).
    """

    out_zero_point: int
    """As if the result were uint8."""
    out_sign: int
    """0x80808080 for an int8 result, else 0."""

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        yield from self._extents(threads)


class Addition(TaskArguments):
    """Scales of what is added to an 8-bit result."""

    low: float
    """Least of the convolution's results, less its zero point."""
    high: float
    scale: float
    """Of the convolution's result."""
    addend_zero_point: float
    """As if the addend were uint8."""
    addend_scale: float
    sum_scale: float
    sum_inverse: float
    """1 / sum_scale."""


class QuantizedConvAdd(QuantizedConv):
    """The same with another 8-bit tensor added to the rounded result; zero point and sign of the result are the sum's."""

    addend: Pointer
    """8-bit, as the output."""
    addend_sign: int
    """0x80808080 for an int8 addend, else 0."""
    addition: Addition

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        yield from self._extents(threads)
        yield reads(self.addend, self.windows.results())


class QuantizedConvWithZeroPoints(QuantizedConv):
    """The same as ``QuantizedConv`` of weights with zero points, which belong to columns, too (int32, behind the scales)."""

    parameters = 3
    ones: Pointer
    """8-bit (lines, steps, 4), 16 times side by side for AMX: 1 for what belongs to a window, else 0. Sums of a window's
    elements are a column of the GEMM."""

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        yield from self._extents(threads)
        yield from self._reads_ones(self.ones)


class Dequantization(TaskArguments):
    """What follows the sums of a convolution with a float32 result."""

    zero_point: Pointer
    """Of x and of its type (1)."""
    scale: Pointer
    """float32 (1): of x."""
    low: float
    """Bounds of the result."""
    high: float


class DequantizedConv(Convolution):
    """With a float32 result, of an x whose zero point and scale come with each run: sums * scales + bias, within bounds.

    To a column belong the sum of its weights less their zero points (int32), its scale and bias (float32), and its zero point
    (int32).
    """

    parameters = 4
    dequantization: Dequantization

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        yield from self._extents(threads, FLOAT)
        yield reads(self.dequantization.zero_point, 1)
        yield reads(self.dequantization.scale, FLOAT)


class DequantizedConvWithZeroPoints(DequantizedConv):
    """The same of weights with zero points."""

    ones: Pointer
    """See ``QuantizedConvWithZeroPoints``."""

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        yield from super().extents(threads=threads)
        yield from self._reads_ones(self.ones)


def _declare(base: type[Convolution], module: str, name: str, columns: int, *, on_amx: bool) -> None:
    suffix = "" if columns == PANEL else f"_{columns}"

    tasks = f"{name}{suffix}", f"{name}{suffix}_int8"

    class _Declared(base, module=module, tasks=tasks):  # type: ignore[valid-type, misc, call-arg]
        panel = columns
        is_amx = on_amx


_KINDS: dict[str, type[Convolution]] = {
    "quantized_conv": QuantizedConv,
    "quantized_conv_add": QuantizedConvAdd,
    "quantized_conv_with_zero_points": QuantizedConvWithZeroPoints,
    "dequantized_conv": DequantizedConv,
    "dequantized_conv_with_zero_points": DequantizedConvWithZeroPoints,
}


def declare_convolutions(module: str, *, on_amx: bool) -> None:
    """Say what all tasks of a module touch: of each kind for x of uint8 and int8, 8-bit results also with narrower panels."""
    for name, base in _KINDS.items():
        for columns in (PANEL, 32, 16) if issubclass(base, QuantizedConv) else (PANEL,):
            _declare(base, module, name, columns, on_amx=on_amx)
