"""Arguments of convolutions of few multiplications."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, accesses, reads, reads_if_given, uses_workspace, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, LANES

__all__ = ["MODULE", "Axes", "NaiveConv"]

MODULE = "conv.naive"


class Axes(TaskArguments):
    """One number for each of three spatial axes, of which those before the last ones may be missing."""

    depth: int
    height: int
    width: int


class NaiveConv(TaskArguments, module=MODULE, tasks=("naive_conv",)):
    """Up to three spatial axes, NCHW. A transposed convolution is one of X with zeros between its elements."""

    x: Pointer
    """float32 (samples, channels, *size)."""
    weights: Pointer
    """float32; one tap of one input and output channel is at the strides below."""
    bias: Pointer
    """float32 (outputs); 0 for none."""
    out: Pointer
    """float32 (samples, outputs, *out)."""
    work: Pointer
    """float32 for each thread: X's channels of what windows span, and 16 elements more."""
    samples: int
    channels: int
    outputs: int
    groups: int
    size: Axes
    """Of X."""
    begin: Axes
    """Where X begins in what windows span."""
    spread: Axes
    """Distances of its elements there."""
    span: Axes
    """Of windows."""
    kernel: Axes
    result: Axes
    stride: Axes
    dilation: Axes
    output_bytes: int
    """Of the weights from one output to the next, ..."""
    group_bytes: int
    """... from group to group, ..."""
    channel_bytes: int
    """... from channel to channel, ..."""
    tap_bytes: int
    """... and from tap to tap; negative where the taps are read from the last to the first."""
    first_tap_bytes: int
    """Before the first tap."""
    slope: float
    """Factor of results below zero."""

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        span, kernel, result, stride, dilation = self.span, self.kernel, self.result, self.stride, self.dilation
        taps = kernel.depth * kernel.height * kernel.width
        count = self.channels * span.depth * span.height * span.width
        planes = (result.depth - 1) * stride.depth + (kernel.depth - 1) * dilation.depth
        lines = (result.height - 1) * stride.height + (kernel.height - 1) * dilation.height
        column = (result.width - 1) // LANES * LANES
        last = column * stride.width + (kernel.width - 1) * dilation.width
        behind = LANES if stride.width == 1 else (result.width - column - 1) * stride.width + 1
        read = (((self.channels - 1) * span.depth + planes) * span.height + lines) * span.width + last + behind
        each = (self.outputs // self.groups, self.groups, self.channels // self.groups, taps)
        steps = (self.output_bytes, self.group_bytes, self.channel_bytes, self.tap_bytes)
        yield reads(self.x, self.samples * self.channels * self.size.depth * self.size.height * self.size.width * FLOAT)
        yield accesses(self.weights, each, steps, FLOAT, offset=self.first_tap_bytes)
        yield reads_if_given(self.bias, self.outputs * FLOAT)
        yield writes(self.out, self.samples * self.outputs * result.depth * result.height * result.width * FLOAT)
        yield uses_workspace(self.work, FLOAT * max(threads * (count + LANES), (threads - 1) * (count + LANES) + read))
