"""Arguments of depthwise convolutions with the pointwise ones, or the first one of a network, around them."""

from __future__ import annotations

from typing import NamedTuple

from ort_sdk_cpu.jit.arguments import NullablePointer, Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, reads_if_given, require_at_most
from ort_sdk_cpu.jit.extents.sizes import FLOAT, VECTOR, panel_bytes, panel_count, register_tile

from .direct import ActivationWords, Epilogue, JobCounters, results, workspace

__all__ = ["MODULE", "ImageSizes", "Separable", "SeparableSizes", "check_lines", "weights_of", "workspace_of"]

MODULE = "conv.separable"
_LINES = 64
"""Most lines under a row of windows of which workspace has the addresses."""


class ImageSizes(TaskArguments):
    """An image of few channels, and its convolution, which is before the filters."""

    taps_down: int
    taps_right: int
    step_down: int
    step_right: int
    top: int
    """Rows of zeros above the image."""
    left: int
    """Columns of zeros to the left of it."""
    height: int
    width: int
    length: int
    """Elements of a line with its zeros, in whole vectors."""


class SeparableSizes(TaskArguments):
    """What is the same of images and of volumes, whose planes are convolved one by one."""

    x: Pointer
    """float32 (samples, height, width, channels); of images of few channels (samples, channels, image.height, image.width)."""
    weights: NullablePointer
    """Of the pointwise convolution behind the filters, in panels; 0 for none."""
    bias: Pointer
    """Of that; or of the filters, if there is none behind them."""
    added: Pointer
    """float32, as ``out``: added before the last activation; 0 for none."""
    out: Pointer
    """float32 (samples, rows, columns, outputs)."""
    work: Pointer
    """Workspace of all threads, ``work_bytes`` each."""
    samples: int
    height: int
    """Of what the filters read, as ``width``."""
    width: int
    channels: int
    """Of X."""
    outputs: int
    rows: int
    """Of the output, as ``columns``."""
    columns: int
    taps_down: int
    """Of the filters, as all that follows up to ``left``."""
    taps_right: int
    step_down: int
    step_right: int
    top: int
    """Rows of zeros above what they read."""
    left: int
    """Columns of zeros to the left of it."""
    work_bytes: int
    epilogue: Epilogue
    """Of the last convolution."""
    line_weights: NullablePointer
    """Of the convolution before the filters, in panels; 0 for none."""
    line_bias: Pointer
    """Of that; 0 for none."""
    filters: Pointer
    """float32 (panels of filtered, taps, channels of a panel)."""
    window_bias: Pointer
    """Of the filters; 0 for none."""
    filtered: int
    """Channels of the filters."""
    dilation_down: int
    dilation_right: int
    strip: int
    """Rows of windows whose results are multiplied together."""
    is_by_channels: int
    """Whether threads share channels in place of rows."""
    line_activation: ActivationWords
    """Of the convolution before the filters."""
    window_activation: ActivationWords
    """Of the filters, if another convolution follows."""
    line: int
    """Pixels of a line with its zeros."""
    image: ImageSizes
    """All 0 unless X is an image of few channels."""


class Workspace(NamedTuple):
    """What a thread's is made of."""

    channels: int
    outputs: int
    columns: int
    filtered: int
    strip: int
    image: int
    """Elements of the lines of an image."""
    lines: int
    line: int
    reach: int
    """Pixels of a line that are used."""
    has_results: bool

    @property
    def nbytes(self) -> int:
        """Bytes that a thread uses."""
        vectors = 1 + panel_count(self.outputs) + register_tile()[0] + 2 * panel_count(self.filtered)
        results = self.strip * self.columns * (panel_count(self.filtered) * panel_bytes() + VECTOR) if self.has_results else 0
        lines = (self.lines - 1) * self.line + max(self.line, self.reach)
        return vectors * panel_bytes() + _LINES * 8 + self.image * FLOAT + results + lines * panel_bytes()


def workspace_of(args: SeparableSizes, lines: int) -> Workspace:
    """What a thread uses that keeps so many lines of a panel."""
    windows = (args.columns - 1) * args.step_right + (args.taps_right - 1) * args.dilation_right + 1
    return Workspace(
        args.channels,
        args.outputs,
        args.columns,
        args.filtered,
        args.strip,
        args.channels * args.image.taps_down * args.image.length,
        lines,
        args.line,
        max(windows, args.left + args.width),
        bool(args.weights.is_given),
    )


def weights_of(args: SeparableSizes, taps: int) -> Extents:
    """Weights and biases of all convolutions but for the first one's weights."""
    yield reads_if_given(args.weights, panel_count(args.outputs) * args.filtered * panel_bytes())
    yield reads_if_given(args.line_bias, args.filtered * FLOAT)
    yield reads(args.filters, panel_count(args.filtered) * taps * panel_bytes())
    yield reads_if_given(args.window_bias, args.filtered * FLOAT)


def check_lines(count: int) -> None:
    """Refuse more lines under a row of windows than there is room for.

    Raises:
        ExtentError: there are more.
    """
    require_at_most("lines under a row of windows", count, _LINES)


class Separable(SeparableSizes, module=MODULE, tasks=("separable",)):
    """Of images."""

    jobs: JobCounters = JobCounters()

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        slots = (self.strip - 1) * self.step_down + (self.taps_down - 1) * self.dilation_down + 1
        used = workspace_of(self, slots * (1 if self.is_by_channels else panel_count(self.filtered)))
        check_lines(max(self.taps_down, self.channels * self.image.taps_down))
        depth = self.channels * (self.image.taps_down * self.image.taps_right or 1)
        if self.image.taps_down:
            require_at_most(
                "numbers of a line", (self.width - 1) * self.image.step_right + self.image.taps_right, self.image.length
            )
            yield reads(self.x, self.samples * self.channels * self.image.height * self.image.width * FLOAT)
        else:
            yield reads(self.x, self.samples * self.height * self.width * self.channels * FLOAT)
        if self.image.taps_down or self.line_weights.is_given:
            yield reads(self.line_weights, panel_count(self.filtered) * depth * panel_bytes())
        if not self.weights.is_given:
            require_at_most("channels of filters", self.filtered, self.outputs)
        yield from weights_of(self, self.taps_down * self.taps_right)
        yield workspace(self.work, threads, self.work_bytes, used.nbytes)
        pixels = self.samples * self.rows * self.columns
        yield from results(self.bias, self.added, self.out, self.epilogue.last, pixels, self.outputs)
