"""Direct convolutions of 8-bit tensors with an 8-bit result: packed weights, and calls of compiled tasks."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.sizes import repeated
from ort_sdk_cpu.conv.geometry import ConvGeometry
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.kernel.layouts.call import LayoutCall
from ort_sdk_cpu.kernel.layouts.channels_last import ArraysCall
from ort_sdk_cpu.kernel.layouts.memory import Layout, channels_last, contiguous, is_channels_last, layout_of
from ort_sdk_cpu.kernel.layouts.task_execution import TaskExecution
from ort_sdk_cpu.memory.workspace import Workspace
from ort_sdk_cpu.onednn.constants import Argument

from .arguments.windows import Addition, QuantizedConv, QuantizedConvAdd, QuantizedConvWithZeroPoints, Windows
from .centered_weight import CenteredWeight
from .packing import PANEL, pack_columns, pack_panels, pack_panels_plain
from .select import PLAIN, WITH_ZERO_POINTS, is_direct, is_large, panel_for, task_name, threads_for_work, tiling_for
from .tiling import MOST_INTERLEAVED, Tiling, sign_of

__all__ = [
    "FIELDS",
    "DirectConvolution",
    "LineOrder",
    "QuantizedAdd",
    "call_on",
]

_ADD = "quantized_conv_add"
_MOST_COPIED = 1 << 13
"""Bytes of arrays of other layouts than the task's, up to which NumPy copies them."""
_LARGEST_SUM, _LARGEST_RESULT = 2**31 - 1, 2**30
"""Of magnitudes, so that int32 holds sums, and scaled sums with a zero point and an addend."""
_LARGEST_WEIGHT = 255
"""Less its zero point."""
_INT8, _FLOAT = np.dtype(np.int8), np.dtype(np.float32)
FIELDS: dict[int, int] = {
    Argument.SRC: Windows.x,
    Argument.WEIGHTS: Windows.weights,
    Argument.DST: Windows.out,
    Argument.BIAS: Windows.columns,
}
"""Argument → field of the task's arguments, which begin with ``Windows``."""


class QuantizedAdd(NamedTuple):
    """A QLinearAdd fused behind a convolution: (scale, zero point) of each, as the node has them."""

    conv: tuple[float, int]
    """Of the convolution's result."""
    conv_dtype: np.dtype[Any]
    addend: tuple[float, int]
    total: tuple[float, int]

    def arguments(self, windows: Windows, addend_dtype: np.dtype[Any], dtype: np.dtype[Any]) -> QuantizedConvAdd:
        """Of the task."""
        limits = np.iinfo(self.conv_dtype)
        (scale, zero), (addend_scale, addend_zero), (total_scale, total_zero) = self.conv, self.addend, self.total
        sign, addend_sign = sign_of(dtype), sign_of(addend_dtype)
        addition = Addition(
            low=limits.min - zero,
            high=limits.max - zero,
            scale=scale,
            addend_zero_point=addend_zero + (128 if addend_sign else 0),
            addend_scale=addend_scale,
            sum_scale=total_scale,
            sum_inverse=float(np.float32(1) / np.float32(total_scale)),
        )
        return QuantizedConvAdd(windows, total_zero + (128 if sign else 0), sign, 0, addend_sign, addition)


class LineOrder(NamedTuple):
    """The order of a window's elements."""

    is_interleaved: bool
    """Whether X has four bytes for each pixel."""
    has_gaps: bool
    """Whether the taps along a line are apart, so that each is a line of the window."""

    def lines_of(self, weight: HostArray) -> HostArray:
        """Int8 (M, C, *kernel) in the order of a window's lines: (M, lines, length)."""
        outputs, channels, *kernel = weight.shape
        pixel = MOST_INTERLEAVED if self.is_interleaved else channels
        pixels: HostArray = np.moveaxis(weight, 1, -1).reshape(outputs, -1, channels)
        if pixel > channels:
            pixels = np.pad(pixels, ((0, 0), (0, 0), (0, pixel - channels)))
        lines: HostArray = pixels if self.has_gaps else pixels.reshape(outputs, -1, kernel[-1] * pixel)
        return lines

    def ones_of(self, weight: HostArray, columns: int) -> HostArray:
        """For each step along the lines, 1 in the bytes that belong to a window, 0 in the others: int32, (steps, columns)."""
        ones = np.ones((1, *weight.shape[1:]), np.int8)
        return repeated(pack_panels_plain(self.lines_of(ones))[0, :, :1], columns, axis=1)


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight as tasks read it, and what belongs to its columns."""

    depth: int
    """K: products in each sum."""
    panels: HostArray
    columns: HostArray
    ones: HostArray | None
    """The panel of ones that sums windows' elements; None for weights without zero points."""

    @classmethod
    def of(
        cls,
        weight: CenteredWeight,
        scales: HostArray,
        bias: HostArray | None,
        x_zero_point: int,
        order: LineOrder,
        panel: int,
        ones_columns: int,
    ) -> PackedWeight | None:
        """From a weight (M, C, *kernel); None if sums, or what they are scaled to, may not fit into 32 bits.

        Args:
            weight: with zero points where it does not fit into 8 bits without.
            scales: float32, of sums divided by that of the result: (1,) or (M,).
            bias: int32, (M,).
            x_zero_point: as if X were uint8.
            order: of what is multiplied.
            panel: columns of one.
            ones_columns: of the panel of ones.
        """
        values, zero_points = weight.values, weight.zero_points
        outputs, depth = len(values), math.prod(values.shape[1:])
        offsets = np.zeros(outputs, np.int64) + (0 if bias is None else bias)
        if x_zero_point:
            offsets -= x_zero_point * weight.sums().astype(np.int64)
        factors = np.ascontiguousarray(np.broadcast_to(scales, (outputs,)), _FLOAT)
        if not _fit_int32(depth * _LARGEST_WEIGHT, offsets, factors) and not _fit_int32(weight.magnitudes(), offsets, factors):
            return None
        ones = None if zero_points is None else order.ones_of(values, ones_columns)
        columns = pack_columns(panel, offsets.astype(np.int32), factors, *([] if zero_points is None else [zero_points]))
        return cls(depth, pack_panels(order.lines_of(values), panel), columns, ones)


def _fit_int32(magnitudes: HostArray | int, offsets: HostArray, factors: HostArray) -> bool:
    """Whether sums, and what they are scaled to, fit into 32 bits for weights whose absolute values have sums up to some."""
    largest = 255 * magnitudes + np.abs(offsets)
    return bool(largest.max() <= _LARGEST_SUM and (largest * np.abs(factors.astype(np.float64))).max() <= _LARGEST_RESULT)


class DirectConvolution:
    """A node's convolution by the task, for inputs of any shape.

    Args:
        geometry: of the node.
        shape: of the weight, (M, C, *kernel).
        weight: gives it when it is packed; it is not kept.
        can_add: whether a call may add another tensor: if the weight has no zero points.
        scales: float32, of sums divided by that of the result: (1,) or (M,).
        bias: int32, (M,), or None.
        zero_points: of X and of the result.
        workspace: the workspace.
    """

    def __init__(
        self,
        geometry: ConvGeometry,
        shape: Sequence[int],
        weight: Callable[[], CenteredWeight],
        *,
        can_add: bool,
        scales: HostArray,
        bias: HostArray | None,
        zero_points: tuple[int, int],
        workspace: Workspace,
    ) -> None:
        self._geometry, self._shape, self._weight, self._scales, self._bias = geometry, tuple(shape), weight, scales, bias
        self.can_add = can_add
        self._x_zero_point, self._y_zero_point = zero_points
        self._workspace = workspace
        self._packed: dict[tuple[LineOrder, int, int, int], PackedWeight | None] = {}

    def is_for(self, x_shape: Sequence[int]) -> bool:
        """Whether the task computes the convolution of an X of this shape."""
        shape = self._shape
        is_fit = len(x_shape) == len(shape) and 0 not in x_shape and x_shape[1] == shape[1]
        return is_fit and is_direct(shape, self._geometry, x_shape)

    def call(self, x: HostArray, out: HostArray, added: tuple[HostArray, QuantizedAdd] | None = None) -> ArraysCall | None:
        """The call on arrays like these: X, what is added if anything is, and the output.

        Returns:
            None if the task does not compute it.
        """
        shape = self._shape
        if not is_direct(shape, self._geometry, x.shape):
            return None
        work = 2 * out.size * math.prod(shape[1:])
        # Little work is left to the task with the widest panels: others would have to be compiled or loaded, too, for little.
        panel = panel_for(shape[0], is_plain=self.can_add and x.dtype != _INT8) if is_large(work) else PANEL
        shapes, is_last = (x.shape, shape, out.shape), is_channels_last(x)
        threads = threads_for_work(work)
        tiling = tiling_for(self._geometry, *shapes, is_channels_last=is_last, panel=panel, threads=threads)
        weight = self._packed_for(tiling, x.dtype)
        if weight is None:
            return None
        name, arguments = self._arguments(tiling.windows(self._x_zero_point, x.dtype), weight, out, added)
        task = TaskCall(tiling.module, task_name(name, x.dtype, panel), arguments, tiling.threads)
        other = QuantizedConvAdd.addend if added else QuantizedConvWithZeroPoints.ones
        workspace = Windows.workspace, tiling.workspace_bytes * tiling.threads
        execution = TaskExecution(task, {**FIELDS, Argument.SRC_1: other}, self._workspace, workspace)
        execution.set(Argument.WEIGHTS, weight.panels)
        execution.set(Argument.BIAS, weight.columns)
        if weight.ones is not None:
            execution.set(Argument.SRC_1, weight.ones)
        given = [(Argument.SRC, x), *([(Argument.SRC_1, added[0])] if added else []), (Argument.DST, out)]
        return call_on(execution, given, self._workspace, is_interleaved=tiling.is_interleaved)

    def _arguments(
        self, windows: Windows, weight: PackedWeight, out: HostArray, added: tuple[HostArray, QuantizedAdd] | None
    ) -> tuple[str, QuantizedConv]:
        """A task's name and arguments."""
        if added is not None:
            return _ADD, added[1].arguments(windows, added[0].dtype, out.dtype)
        sign = sign_of(out.dtype)
        zero_point = self._y_zero_point + (128 if sign else 0)
        if weight.ones is None:
            return PLAIN, QuantizedConv(windows, zero_point, sign)
        return WITH_ZERO_POINTS, QuantizedConvWithZeroPoints(windows, zero_point, sign, 0)

    def _packed_for(self, tiling: Tiling, dtype: np.dtype[Any]) -> PackedWeight | None:
        order = LineOrder(tiling.is_interleaved, tiling.image.has_gaps)
        shift, ones = tiling.shift_of(dtype), 1 if self.can_add else tiling.ones_columns
        key = (order, shift, tiling.panel, ones)
        if key not in self._packed:
            x_zero_point, weight = self._x_zero_point + shift, self._weight()
            self._packed[key] = PackedWeight.of(weight, self._scales, self._bias, x_zero_point, order, tiling.panel, ones)
        return self._packed[key]


def call_on(
    execution: TaskExecution, given: Sequence[tuple[int, HostArray]], workspace: Workspace, *, is_interleaved: bool
) -> _PlainCall | LayoutCall:
    """A call of the task on arrays like those of each argument, DST last."""
    orders = [_axes(argument, array, is_plain=is_interleaved) for argument, array in given]
    copied = sum(array.size for (_, array), axes in zip(given, orders, strict=True) if not _has_order(array, axes))
    if copied <= _MOST_COPIED:
        return _PlainCall(execution, [(argument, axes) for (argument, _), axes in zip(given, orders, strict=True)])
    return LayoutCall(execution, [_argument(*pair, is_plain=is_interleaved) for pair in given], workspace)


class _PlainCall:
    """The task without oneDNN, which would copy arrays of other layouts than the task's. For one thread at a time.

    Args:
        execution: what runs.
        arguments: of a call, DST last: which, and its axes from the outermost in memory to the innermost.
    """

    def __init__(self, execution: TaskExecution, arguments: Sequence[tuple[int, tuple[int, ...]]]) -> None:
        self._execution, self._arguments = execution, arguments

    def run(self, *arrays: HostArray) -> None:
        """Compute; the arrays are not kept."""
        for (argument, axes), array in zip(self._arguments, arrays, strict=True):
            self._execution.set(argument, array if _has_order(array, axes) else np.ascontiguousarray(array.transpose(axes)))
        (argument, axes), out = self._arguments[-1], arrays[-1]
        written = out if _has_order(out, axes) else np.empty([out.shape[axis] for axis in axes], out.dtype)
        self._execution.set(argument, written)
        self._execution()
        if written is not out:
            np.copyto(out.transpose(axes), written)
        for argument, _ in self._arguments:
            self._execution.forget(argument)

    def bind_arrays(self, *arrays: HostArray) -> Callable[[], Any]:
        """The call on arrays that stay the same; it keeps them."""
        pairs = zip(self._arguments, arrays, strict=True)
        if not all(_has_order(array, axes) for (_, axes), array in pairs):
            return functools.partial(self.run, *arrays)
        for (argument, _), array in zip(self._arguments, arrays, strict=True):
            self._execution.set(argument, array)
        return self._execution


def _axes(argument: int, array: HostArray, *, is_plain: bool) -> tuple[int, ...]:
    """From the outermost in memory to the innermost, as the task wants them."""
    if array.ndim <= 1 or (is_plain and argument == Argument.SRC):
        return tuple(range(array.ndim))
    return (0, *range(2, array.ndim), 1)


def _has_order(array: HostArray, axes: Sequence[int]) -> bool:
    return array.transpose(axes).flags.c_contiguous


def _argument(argument: int, array: HostArray, *, is_plain: bool) -> tuple[int, Layout, Layout]:
    """The layout of an array, and the task's."""
    plain = contiguous(array.shape or (1,), array.dtype)
    if array.ndim <= 1:
        return int(argument), plain, plain
    wanted = plain if is_plain and argument == Argument.SRC else channels_last(array.shape, array.dtype)
    return int(argument), layout_of(array) or plain, wanted
