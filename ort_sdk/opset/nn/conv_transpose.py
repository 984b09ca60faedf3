"""ConvTranspose: one GEMM, and col2im: columns are summed where the windows overlap."""

from __future__ import annotations

import functools
import math
from typing import Any

from ort_sdk.api import Array, Compute, InvalidArgument, KernelInfo
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.definition import operator
from ort_sdk.opset.input_shapes import InputShapes
from ort_sdk.opset.sizes import item_bytes, require_size

from .conv import add_bias
from .windows import WindowAttributes, Windows, tap_slices

__all__ = ["TransposeAttributes", "conv_transpose"]


def transposed_shapes(info: KernelInfo, shapes: InputShapes) -> None:
    """Input and weight of as many axes, and a bias for each channel of the result."""
    shapes.match(0, "X", ("batch", "inputs", ...))
    shapes.match(1, "W", ("inputs", "outputs of a group", *(None for _ in (shapes.of(0) or ())[2:])))
    shapes.match(2, "B", (int(info.attribute("group", 1)) * shapes["outputs of a group"],))


@operator("ConvTranspose", shapes=transposed_shapes)
def conv_transpose(info: KernelInfo, xp: Any) -> Compute:
    """Transposed convolution over any number of spatial axes."""
    attributes = TransposeAttributes.of(info)
    groups = int(info.attribute("group", 1))

    def compute(x: Array, weight: Array, bias: Array | None = None) -> Array:
        if x.ndim != weight.ndim or x.ndim < 3 or x.shape[1] != weight.shape[0] or x.shape[1] % groups:
            raise InvalidArgument(
                f"{info.describe()}: input X has shape {list(x.shape)}, weight W has {list(weight.shape)}, group is {groups};"
                " X must be (N, C, *spatial) and W (C, M / group, *kernel) with C a multiple of group"
            )
        windows = _windows(attributes, tuple(x.shape[2:]), tuple(weight.shape[2:]))
        return add_bias(xp, _transposed(xp, x, weight, windows, groups), bias)

    return compute


@dataclass(frozen=True, slots=True)
class TransposeAttributes:
    """Attributes of a ConvTranspose node."""

    base: WindowAttributes
    output_padding: tuple[int, ...]
    output_shape: tuple[int, ...]

    @classmethod
    def of(cls, info: KernelInfo) -> TransposeAttributes:
        """Attributes of a node.

        Raises:
            InvalidGraph: see ``WindowAttributes.of``.
        """
        return cls(
            WindowAttributes.of(info),
            tuple(info.attribute("output_padding", None) or ()),
            tuple(info.attribute("output_shape", None) or ()),
        )

    def windows(self, input_shape: tuple[int, ...], weight_shape: tuple[int, ...]) -> Windows:
        """The windows of the convolution this node transposes: its input is our output, and the other way round.

        Raises:
            InvalidArgument: attributes do not fit the input's rank or the weight, or leave no output that can be.
        """
        base, rank = self.base, len(input_shape)
        kernel = base.kernel(rank, weight_shape)
        strides, dilations = base.per_axis("strides", rank, 1), base.per_axis("dilations", rank, 1)
        begins, ends = base.explicit_pads(rank)
        extra = self.output_padding or (0,) * rank
        if len(extra) != rank or (self.output_shape and len(self.output_shape) < rank):
            raise InvalidArgument(
                f"{base.description}: output_padding {list(self.output_padding)} and output_shape {list(self.output_shape)}"
                f" need one value per spatial axis; the input has {rank}"
            )
        full = tuple(
            stride * (size - 1) + more + (taps - 1) * dilation + 1
            for stride, size, more, taps, dilation in zip(strides, input_shape, extra, kernel, dilations, strict=True)
        )
        target = self._target(input_shape, strides)
        if self.output_shape and any(size >= whole + s for size, whole, s in zip(target or (), full, strides, strict=True)):
            raise InvalidArgument(
                f"{base.description}: output_shape is {list(self.output_shape)}; kernel, strides {list(strides)} and"
                f" output_padding make {list(full)}, and each axis may exceed that by less than its stride"
            )
        if target is not None:
            pad_pairs = [_split(max(0, whole - size), base.auto_pad) for whole, size in zip(full, target, strict=True)]
            begins, ends = tuple(pair[0] for pair in pad_pairs), tuple(pair[1] for pair in pad_pairs)
        elif base.auto_pad == "VALID":
            begins = ends = (0,) * rank
        output = target or tuple(whole - begin - end for whole, begin, end in zip(full, begins, ends, strict=True))
        require_size(base.description, full, 1)
        require_size(base.description, output, 1)
        return Windows(output, kernel, strides, dilations, begins, ends, input_shape)

    def _target(self, input_shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...] | None:
        """Output size that padding is to be derived from, if one is asked for."""
        if self.output_shape:
            return self.output_shape[-len(input_shape) :]
        if self.base.auto_pad.startswith("SAME"):
            return tuple(size * stride for size, stride in zip(input_shape, strides, strict=True))
        return None


@functools.lru_cache(maxsize=1024)
def _windows(attributes: TransposeAttributes, input_shape: tuple[int, ...], weight_shape: tuple[int, ...]) -> Windows:
    return attributes.windows(input_shape, weight_shape)


def _split(total: int, auto_pad: str) -> tuple[int, int]:
    begin = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
    return begin, total - begin


def _transposed(xp: Any, x: Array, weight: Array, windows: Windows, groups: int) -> Array:
    """(N, C, *input) and (C, M / groups, *kernel) to (N, M, *output), without bias."""
    batch, channels = x.shape[:2]
    per_group = channels // groups
    outputs = weight.shape[1] * groups
    matrix = xp.matrix_transpose(xp.reshape(weight, (groups, per_group, -1)))
    taps = xp.matmul(matrix, xp.reshape(x, (batch, groups, per_group, math.prod(windows.output_shape))))
    taps = xp.reshape(taps, (batch, outputs, *windows.kernel_shape, *windows.output_shape))
    spans = tuple(
        max(extent, begin + size)
        for extent, begin, size in zip(windows.extents, windows.pads_begin, windows.input_shape, strict=True)
    )
    if spans == windows.input_shape and all(size == 1 for size in windows.kernel_shape) and set(windows.strides) == {1}:
        return xp.reshape(taps, (batch, outputs, *spans))
    shape = require_size("the result of ConvTranspose", (batch, outputs, *spans), item_bytes(x.dtype))
    total = xp.zeros(shape, dtype=x.dtype)
    for tap, slices in tap_slices(windows):
        total[(..., *slices)] += taps[(slice(None), slice(None), *tap, ...)]
    inner = tuple(slice(begin, begin + size) for begin, size in zip(windows.pads_begin, windows.input_shape, strict=True))
    return total[(..., *inner)]
