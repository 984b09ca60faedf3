"""Sliding windows over spatial axes: the attributes, output sizes and padding that convolution and pooling share."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ort_sdk.api import Array, InvalidArgument, InvalidGraph, KernelInfo
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.opset.sizes import item_bytes, require_size

__all__ = ["WindowAttributes", "Windows", "im2col", "padded", "tap_slices", "window_view"]

POOLS = frozenset({"AveragePool", "LpPool", "MaxPool", "MaxpoolWithMask", "NhwcMaxPool", "QLinearAveragePool"})
"""Operators whose windows may be larger than their input; see ``_explicit``."""
AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


@dataclass(frozen=True, slots=True)
class Windows:
    """Geometry of the windows of a node, for one input size. All tuples have one entry per spatial axis.

    Window ``o`` of an axis reads input positions ``o * stride - pad_begin + t * dilation`` for taps ``t`` of the kernel.
    """

    input_shape: tuple[int, ...]
    kernel_shape: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]
    output_shape: tuple[int, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """Elements the windows span along each axis, padding included."""
        return tuple(
            (out - 1) * stride + (kernel - 1) * dilation + 1
            for out, stride, kernel, dilation in zip(
                self.output_shape, self.strides, self.kernel_shape, self.dilations, strict=True
            )
        )

    @property
    def is_pointwise(self) -> bool:
        """Whether each window is one element and windows cover the input exactly (a 1x1 convolution)."""
        covers = self.output_shape == self.input_shape == self.extents and not any(self.pads_begin)
        return covers and all(kernel == 1 for kernel in self.kernel_shape)

    def trimmed(self) -> Windows:
        """These windows without the last taps that are behind the input in all of them."""
        rows = zip(self.kernel_shape, self.input_shape, self.pads_begin, self.dilations, strict=True)
        kernel = tuple(min(taps, max(1, -(-(size + begin) // dilation))) for taps, size, begin, dilation in rows)
        return self if kernel == self.kernel_shape else replace(self, kernel_shape=kernel)

    def tap_positions(self, axis: int) -> np.ndarray[Any, Any]:
        """Input position each tap of each window reads along an axis: int64, (kernel, output); outside [0, size) is padding."""
        taps = np.arange(self.kernel_shape[axis])[:, None] * self.dilations[axis]
        return np.arange(self.output_shape[axis]) * self.strides[axis] - self.pads_begin[axis] + taps


@dataclass(frozen=True, slots=True)
class WindowAttributes:
    """The attributes of a convolution or pooling node, before the input size is known; None where left to the default."""

    description: str = field(compare=False)
    """For errors; nodes with equal attributes share what is computed of these."""
    kernel_shape: tuple[int, ...] | None
    strides: tuple[int, ...] | None
    dilations: tuple[int, ...] | None
    pads: tuple[int, ...] | None
    auto_pad: str
    ceil_mode: bool
    is_pool: bool = False

    @classmethod
    def of(cls, info: KernelInfo) -> WindowAttributes:
        """Attributes of a node.

        Raises:
            InvalidGraph: ``auto_pad`` has a value ONNX does not know.
        """
        auto_pad = info.attribute("auto_pad", "NOTSET") or "NOTSET"
        if auto_pad not in AUTO_PADS:
            raise InvalidGraph(f"{info.describe()}: auto_pad is '{auto_pad}'; it must be one of {', '.join(AUTO_PADS)}")
        return cls(
            description=info.describe(),
            kernel_shape=_ints(info, "kernel_shape"),
            strides=_ints(info, "strides"),
            dilations=_ints(info, "dilations"),
            pads=_ints(info, "pads"),
            auto_pad=auto_pad,
            ceil_mode=bool(info.attribute("ceil_mode", 0)),
            is_pool=info.op_type in POOLS,
        )

    def windows(self, input_shape: tuple[int, ...], kernel_shape: tuple[int, ...] | None = None) -> Windows:
        """The windows over an input.

        Args:
            input_shape: spatial axes of the input.
            kernel_shape: spatial axes of the weight; the attribute must agree with it. None: the attribute decides.

        Raises:
            InvalidArgument: attributes do not fit the input's rank or the weight, a kernel is larger than the input, or what is
                pooled is empty.
        """
        return _windows(self, input_shape, kernel_shape)

    def per_axis(self, name: str, rank: int, default: int) -> tuple[int, ...]:
        """An attribute with one value per spatial axis, or the default for each.

        Raises:
            InvalidArgument: the attribute has another number of values.
        """
        values = getattr(self, name)
        if values is None:
            return (default,) * rank
        if len(values) != rank:
            raise InvalidArgument(
                f"{self.description}: attribute '{name}' is {list(values)}; the input has {rank} spatial axes, so it needs {rank}"
            )
        return tuple(values)

    def explicit_pads(self, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """``pads`` as (begins, ends)."""
        pads = self.pads or (0,) * (2 * rank)
        if len(pads) != 2 * rank:
            raise InvalidArgument(
                f"{self.description}: attribute 'pads' is {list(pads)}; the input has {rank} spatial axes, so it needs {2 * rank}"
            )
        return pads[:rank], pads[rank:]

    def kernel(self, rank: int, weight_shape: tuple[int, ...] | None) -> tuple[int, ...]:
        """Kernel shape, from the weight or the attribute."""
        if weight_shape is None:
            if self.kernel_shape is None:
                raise InvalidGraph(f"{self.description}: required attribute 'kernel_shape' is missing")
            return self.per_axis("kernel_shape", rank, 1)
        if self.kernel_shape and self.kernel_shape != weight_shape:
            raise InvalidArgument(
                f"{self.description}: attribute 'kernel_shape' is {list(self.kernel_shape)}, the weight's is {list(weight_shape)}"
            )
        return weight_shape


def _ints(info: KernelInfo, name: str) -> tuple[int, ...] | None:
    values = info.attributes.get(name)
    return tuple(map(int, values)) if values else None


@functools.lru_cache(maxsize=4096)
def _windows(attributes: WindowAttributes, input_shape: tuple[int, ...], weight_shape: tuple[int, ...] | None) -> Windows:
    rank = len(input_shape)
    kernel = attributes.kernel(rank, weight_shape)
    strides = attributes.per_axis("strides", rank, 1)
    dilations = attributes.per_axis("dilations", rank, 1)
    begins, ends = attributes.explicit_pads(rank) if attributes.auto_pad == "NOTSET" else ((0,) * rank, (0,) * rank)
    rows = []
    for axis, size in enumerate(input_shape):
        span = (kernel[axis] - 1) * dilations[axis] + 1
        if attributes.auto_pad.startswith("SAME"):
            row = _same(size, span, strides[axis], attributes.auto_pad)
        else:
            row = _explicit(size, span, strides[axis], begins[axis], ends[axis], attributes)
        rows.append(row)
    outputs = tuple(row[2] for row in rows)
    if attributes.is_pool and 0 in input_shape:
        raise InvalidArgument(
            f"{attributes.description}: there is nothing to pool in an input of spatial shape {list(input_shape)}"
        )
    if any(size < 0 for size in outputs) or (0 in outputs and 0 not in input_shape and not attributes.is_pool):
        raise InvalidArgument(
            f"{attributes.description}: kernel {list(kernel)} (dilations {list(dilations)}, pads {list(begins)}..{list(ends)})"
            f" does not fit into an input of spatial shape {list(input_shape)}"
        )
    windows = Windows(
        input_shape=input_shape,
        kernel_shape=kernel,
        strides=strides,
        dilations=dilations,
        pads_begin=tuple(row[0] for row in rows),
        pads_end=tuple(row[1] for row in rows),
        output_shape=outputs,
    )
    require_size(attributes.description, windows.extents, 1)
    return windows


def _same(size: int, span: int, stride: int, auto_pad: str) -> tuple[int, int, int]:
    output = -(-size // stride)
    total = max(0, (output - 1) * stride + span - size)
    begin = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
    return begin, total - begin, output


def _explicit(size: int, span: int, stride: int, begin: int, end: int, attributes: WindowAttributes) -> tuple[int, int, int]:
    room = size + begin + end - span
    output = room // stride + 1
    if room < 0 and attributes.is_pool:
        # ONNX Runtime rounds towards zero: a window that reaches over the end by less than its stride is one.
        output = 1 - (-room // stride)
    # A last, partial window counts only if it starts inside the input or its left padding.
    elif attributes.ceil_mode and room % stride and output * stride < size + begin:
        output += 1
    return begin, end, output


def padded(xp: Any, x: Array, windows: Windows, value: float = 0) -> Array:
    """The input extended with ``value`` (or cut) to exactly what the windows span.

    Args:
        xp: array namespace.
        x: (..., *spatial), spatial as in ``windows.input_shape``.
        windows: their geometry.
        value: what padding holds; a Python number of the input's kind.

    Returns:
        (..., *windows.extents); a view of the input if nothing is to be added.
    """
    extents = windows.extents
    lead = x.ndim - len(extents)
    sources, targets = [], []
    for size, begin, extent in zip(windows.input_shape, windows.pads_begin, extents, strict=True):
        first = max(0, -begin)
        stop = max(min(size, extent - begin), first)
        sources.append(slice(first, stop))
        targets.append(slice(begin + first, begin + stop))
    cut = x[(..., *sources)]
    if cut.shape[lead:] == extents:
        return cut
    shape = require_size("a padded input", (*x.shape[:lead], *extents), item_bytes(x.dtype))
    result = xp.full(shape, value, dtype=x.dtype)
    result[(..., *targets)] = cut
    return result


def tap_slices(windows: Windows) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """For each tap of the kernel, in row-major order: the tap and the slices of the padded input it reads."""
    for tap in itertools.product(*map(range, windows.kernel_shape)):
        yield tap, tap_slice(tap, windows.dilations, windows.strides, windows.output_shape)


def tap_slice(
    tap: Sequence[int], dilations: Sequence[int], strides: Sequence[int], output_shape: Sequence[int]
) -> tuple[slice, ...]:
    """Slices of the padded input that one tap reads for all windows."""
    return tuple(
        slice(index * dilation, index * dilation + (out - 1) * stride + 1, stride)
        for index, dilation, stride, out in zip(tap, dilations, strides, output_shape, strict=True)
    )


def window_view(xp: Any, x: Array, windows: Windows, value: float = 0) -> Array:
    """All windows of an input.

    Args:
        xp: array namespace.
        x: (N, C, *spatial).
        windows: their geometry.
        value: what padding holds.

    Returns:
        (N, C, *kernel, *output); a read-only view where the library can make one.
    """
    return xp.sliding_windows(padded(xp, x, windows, value), windows.kernel_shape, windows.strides, windows.dilations)


def im2col(xp: Any, x: Array, windows: Windows, groups: int = 1, value: float = 0) -> Array:
    """Windows as columns, for convolution as a GEMM (im2col).

    Args:
        xp: array namespace.
        x: (N, C, *spatial).
        windows: their geometry.
        groups: groups the channels are divided into.
        value: what padding holds (a zero point, for quantized convolution).

    Returns:
        (N, groups, C / groups * kernel elements, output elements). May share memory with the input.
    """
    batch, channels = x.shape[:2]
    if windows.is_pointwise:
        return xp.reshape(x, (batch, groups, channels // groups, 0 if 0 in x.shape else -1))
    return columns(xp, window_view(xp, x, windows, value), groups, len(windows.kernel_shape))


def columns(xp: Any, view: Array, groups: int, rank: int) -> Array:
    """A window view (N, C, *kernel, *output) as (N, groups, C / groups * kernel elements, output elements), a new array.

    Where windows overlap along one axis only, a view would do; but libraries multiply such matrices number by number.
    """
    batch, channels = view.shape[:2]
    taps = int(np.prod(view.shape[2 : 2 + rank], dtype=np.int64))
    outputs = int(np.prod(view.shape[2 + rank :], dtype=np.int64))
    return xp.reshape(view, (batch, groups, channels // groups * taps, outputs), copy=True)
