"""Where pooling windows are along one axis."""

from __future__ import annotations

from ort_sdk.opset.nn.windows import Windows
from ort_sdk_cpu.jit.arguments import TaskArguments

__all__ = ["WindowAxis", "axes_dhw", "axes_hw"]


class WindowAxis(TaskArguments):
    """Windows along one spatial axis."""

    size: int
    """Of the input."""
    out_size: int
    kernel: int
    """Taps of a window."""
    stride: int
    dilation: int
    pad: int
    """Padding before the first element."""


_ABSENT = WindowAxis(1, 1, 1, 1, 1, 0)
"""An axis that the array lacks: one window of one element."""


def axes_dhw(windows: Windows) -> tuple[WindowAxis, WindowAxis, WindowAxis]:
    """The last three spatial axes; those that the array lacks come first."""
    values = (windows.input_shape, windows.output_shape, windows.kernel_shape, windows.strides, windows.dilations)
    axes = [WindowAxis(*axis) for axis in zip(*values, windows.pads_begin, strict=True)]
    d, h, w = (*(_ABSENT,) * 3, *axes)[-3:]
    return d, h, w


def axes_hw(windows: Windows) -> tuple[WindowAxis, WindowAxis]:
    """The last two."""
    return axes_dhw(windows)[1:]
