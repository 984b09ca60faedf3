"""The windows of Conv and ConvTranspose, in the words that ONNX and oneDNN share."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ort_sdk.api import KernelInfo
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.nn.conv_transpose import TransposeAttributes
from ort_sdk.opset.nn.windows import WindowAttributes
from ort_sdk_cpu.kernel.layouts.memory import Layout, row_major_strides

__all__ = ["AxisWindows", "ConvGeometry", "Padding"]


@dataclass(frozen=True, slots=True)
class Padding:
    """Strides, dilations and padding of one convolution; one number per spatial axis."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    """What ONNX Runtime leaves unread at the end of an axis may make these less than the node's own."""


@dataclass(frozen=True, slots=True)
class ConvGeometry:
    """The attributes of a node."""

    windows: WindowAttributes
    groups: int
    transpose: TransposeAttributes | None = None
    """For ConvTranspose."""

    @classmethod
    def of(cls, info: KernelInfo) -> ConvGeometry:
        """Attributes of a Conv, FusedConv, QLinearConv or ConvTranspose node."""
        windows, groups = WindowAttributes.of(info), int(info.attribute("group", 1))
        if info.op_type != "ConvTranspose":
            return cls(windows, groups)
        return cls(windows, groups, TransposeAttributes.of(info))

    def input_channels(self, weight_shape: Sequence[int]) -> int:
        """C of X."""
        return weight_shape[0] if self.transpose is not None else weight_shape[1] * self.groups

    def output_channels(self, weight_shape: Sequence[int]) -> int:
        """M of Y."""
        return weight_shape[0] if self.transpose is None else weight_shape[1] * self.groups

    def output_shape(self, x_shape: Sequence[int], weight_shape: Sequence[int]) -> tuple[int, ...]:
        """(N, M, *spatial)."""
        spatial, kernel = tuple(x_shape[2:]), tuple(weight_shape[2:])
        if self.transpose is None:
            size = self.windows.windows(spatial, kernel).output_shape
        else:
            size = self.transpose.windows(spatial, kernel).input_shape
        return (x_shape[0], self.output_channels(weight_shape), *size)

    def padding(self, x_shape: Sequence[int], weight_shape: Sequence[int]) -> Padding:
        """Strides, dilations and padding over an input."""
        spatial, kernel = tuple(x_shape[2:]), tuple(weight_shape[2:])
        if self.transpose is None:
            found = self.windows.windows(spatial, kernel)
            return Padding(found.strides, found.dilations, found.pads_begin, found.pads_end)
        found = self.transpose.windows(spatial, kernel)
        ends = tuple(
            extent - begin - size for extent, begin, size in zip(found.extents, found.pads_begin, found.input_shape, strict=True)
        )
        return Padding(found.strides, found.dilations, found.pads_begin, ends)

    def weight_dims(self, weight_shape: Sequence[int]) -> tuple[int, ...]:
        """The weight as oneDNN has it: (M, C, *kernel), with groups (G, M / G, C / G, *kernel)."""
        outputs, inputs = self.output_channels(weight_shape), self.input_channels(weight_shape)
        kernel = tuple(weight_shape[2:])
        if self.groups == 1:
            return (outputs, inputs, *kernel)
        return (self.groups, outputs // self.groups, inputs // self.groups, *kernel)

    def weight_layout(self, weight_shape: Sequence[int], dtype: np.dtype, strides: Sequence[int] | None = None) -> Layout:
        """The layout of ONNX's weight, seen with ``weight_dims``.

        Args:
            weight_shape: of the weight.
            dtype: of its elements.
            strides: in elements, along ONNX's axes; None for row-major order.
        """
        first, second, *spatial = strides or row_major_strides(weight_shape)
        outputs, inputs = (first, second) if self.transpose is None else (second, first)
        grouped = () if self.groups == 1 else (first * (weight_shape[0] // self.groups),)
        return Layout(self.weight_dims(weight_shape), (*grouped, outputs, inputs, *spatial), dtype)


@dataclass(frozen=True, slots=True)
class AxisWindows:
    """Windows along one axis: of a 1-D input, or of a 2-D one whose other axis has one element, or is covered by each window."""

    channels: int
    """Those of X, or, if there is but one, the size of the axis that windows cover."""
    outputs: int
    axis: int
    """Spatial axis along which windows follow each other."""
    taps: int
    stride: int
    begin: int
    """Zeros before the axis."""
    end: int
    """And behind it."""
    covered: int | None = None
    """Spatial axis that each window covers, as of the vectors of words."""

    @classmethod
    def of(cls, geometry: ConvGeometry, weight_shape: Sequence[int], x_shape: Sequence[int | None] | None) -> AxisWindows | None:
        """Of a convolution with one group; None if it is of another kind, dilated, or cuts its input.

        Args:
            geometry: of the node.
            weight_shape: (M, C, *kernel).
            x_shape: of X as far as it is known.
        """
        rank, windows = len(weight_shape) - 2, geometry.windows
        if rank not in {1, 2} or geometry.groups != 1 or windows.auto_pad not in {"NOTSET", "VALID"}:
            return None
        outputs, channels, *kernel = weight_shape
        covered = _covered_axis(channels, kernel, x_shape)
        along = [axis for axis, size in enumerate(kernel) if size > 1 and axis != covered]
        if len(along) != 1:
            return None
        (axis,), (begins, ends) = along, windows.explicit_pads(rank)
        dilations = windows.per_axis("dilations", rank, 1)
        is_padded = any(begins[other] or ends[other] for other in range(rank) if other != axis)
        if is_padded or dilations[axis] != 1 or (covered is not None and dilations[covered] != 1):
            return None
        if min(begins[axis], ends[axis]) < 0:
            return None
        stride = windows.per_axis("strides", rank, 1)[axis]
        channels *= 1 if covered is None else kernel[covered]
        return cls(channels, outputs, axis, kernel[axis], stride, begins[axis], ends[axis], covered)

    def count(self, length: int) -> int:
        """Windows along an axis of a length."""
        return (self.begin + length + self.end - self.taps) // self.stride + 1

    def are_over(self, shape: tuple[int, ...]) -> bool:
        """Whether an X of this shape extends along the windows, and the channels, only."""
        channels, spatial = shape[1], shape[2:]
        found = channels if self.covered is None else spatial[self.covered]
        return found == self.channels and math.prod(shape[1:]) == found * spatial[self.axis]


def _covered_axis(channels: int, kernel: Sequence[int], x_shape: Sequence[int | None] | None) -> int | None:
    """The axis of one channel's images that a window covers: windows follow each other along the other one."""
    if channels != 1 or len(kernel) != 2 or min(kernel) == 1 or x_shape is None or len(x_shape) != 4:
        return None
    return next((axis for axis in (1, 0) if x_shape[2 + axis] == kernel[axis]), None)
