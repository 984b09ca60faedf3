"""Where the windows of Conv and ConvTranspose lie, in the words both ONNX and oneDNN use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_sdk.api import KernelInfo
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.nn.conv_transpose import TransposeAttributes
from ort_sdk.opset.nn.windows import WindowAttributes
from ort_sdk_cpu.kernel.layouts.memory import Layout, row_major_strides

__all__ = ["ConvGeometry", "Padding"]


@dataclass(frozen=True, slots=True)
class Padding:
    """Steps and borders of one convolution; one number per spatial axis."""

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
        """Steps and borders over an input."""
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
        """How ONNX's weight lies in memory, seen with ``weight_dims``.

        Args:
            weight_shape: of the weight.
            dtype: of its elements.
            strides: in elements, along ONNX's axes; None for row-major order.
        """
        first, second, *spatial = strides or row_major_strides(weight_shape)
        outputs, inputs = (first, second) if self.transpose is None else (second, first)
        grouped = () if self.groups == 1 else (first * (weight_shape[0] // self.groups),)
        return Layout(self.weight_dims(weight_shape), (*grouped, outputs, inputs, *spatial), dtype)
