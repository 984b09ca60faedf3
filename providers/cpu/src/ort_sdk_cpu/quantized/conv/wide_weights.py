"""QLinearConv whose weights less their zero point need 9 bits: two or three convolutions of int8, added up in 32 bits."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, RuntimeException
from ort_sdk_cpu.conv.geometry import ConvGeometry
from ort_sdk_cpu.jit.native_call import in_sequence
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.kernel.layouts.memory import AnyLayout, channels_last, contiguous, empty_channels_last, layout_of
from ort_sdk_cpu.kernel.onednn import PrimitiveCall
from ort_sdk_cpu.kernel.task_writer import threads_for
from ort_sdk_cpu.memory.workspace import Workspace
from ort_sdk_cpu.onednn.attributes import PrimitiveAttributes
from ort_sdk_cpu.onednn.constants import Argument, zero_points_of
from ort_sdk_cpu.onednn.execution import reordered
from ort_sdk_cpu.onednn.memory_descriptor import any_layout
from ort_sdk_cpu.onednn.post_ops import Sum
from ort_sdk_cpu.onednn.primitive import Primitive, convolution
from ort_sdk_cpu.quantized.arguments.linear import MODULE as LINEAR
from ort_sdk_cpu.quantized.arguments.linear import Requantize
from ort_sdk_cpu.quantized.parameters import limits

__all__ = ["WideConvolution"]

OWN_BYTES = 1 << 16
"""Sums up to which a call on arrays that stay has memory of its own, and needs no Python."""
_INT8, _INT32, _FLOAT = np.dtype(np.int8), np.dtype(np.int32), np.dtype(np.float32)


class WideConvolution:
    """The convolution's calls.

    Args:
        geometry: of the node.
        weight: less its zero point, int16, (M, C / groups, *kernel).
        scales: of sums divided by that of Y: float32, (1,) or (M,).
        bias: added to sums: int32, (M,), or None.
        zero_points: of X and Y: int32, (1,) each.
        workspace: the workspace.
    """

    def __init__(
        self,
        geometry: ConvGeometry,
        weight: HostArray,
        scales: HostArray,
        bias: HostArray | None,
        zero_points: tuple[HostArray, HostArray],
        workspace: Workspace,
    ) -> None:
        self._parts = list(_parts_of(weight))
        self._geometry, self._workspace, self._zero_points = geometry, workspace, zero_points
        self._scales = np.ascontiguousarray(np.broadcast_to(scales, weight.shape[:1]), _FLOAT)
        self._bias = None if bias is None else np.ascontiguousarray(bias, _INT32)

    def call(self, x: HostArray, out: HostArray) -> _WideCall | None:
        """The call for arrays of these layouts, ``out`` channels last; None if oneDNN has no fast convolution."""
        if not np.moveaxis(out, 1, -1).flags.c_contiguous:
            return None
        passes = [self._pass(index, x, out.shape) for index in range(len(self._parts))]
        if None in passes:
            return None
        rows, channels = out.size // out.shape[1], out.shape[1]
        zero_point = float(self._zero_points[1][0])
        arguments = Requantize(0, 0, self._scales, self._bias, rows, channels, zero_point, *limits(out))
        finish = TaskCall(LINEAR, "requantize", arguments, threads_for(out.size))
        return _WideCall([each for each in passes if each is not None], finish, self, self._workspace)

    def _pass(self, index: int, x: HostArray, out_shape: tuple[int, ...]) -> PrimitiveCall | None:
        primitive = self._primitive(index, x, out_shape)
        if primitive is None:
            return None
        target = channels_last(out_shape, _INT32)
        ends = [
            (int(Argument.SRC), layout_of(x) or contiguous(x.shape, x.dtype), channels_last(x.shape, x.dtype)),
            (int(Argument.DST), target, target),
        ]
        layout = primitive.layout(Argument.WEIGHTS)
        part = self._parts[index]
        packed = reordered(part, self._geometry.weight_layout(part.shape, _INT8), layout)
        if packed is None:
            raise RuntimeException(f"oneDNN has no fast copy of a weight of shape {list(part.shape)} to {layout.key}")
        constants: list[tuple[int, AnyLayout, HostArray]] = [(int(Argument.WEIGHTS), layout, packed)]
        if self._zero_points[0].any():
            constants.append((zero_points_of(Argument.SRC), contiguous((1,), _INT32), self._zero_points[0]))
        return PrimitiveCall(primitive, ends, constants, self._workspace)

    def _primitive(self, index: int, x: HostArray, out_shape: tuple[int, ...]) -> Primitive | None:
        geometry, shape = self._geometry, self._parts[index].shape
        padding = geometry.padding(x.shape, shape)
        if min(*padding.begins, *padding.ends) < 0:
            return None
        zero_points = ((Argument.SRC, 0),) if self._zero_points[0].any() else ()
        return convolution(
            channels_last(x.shape, x.dtype),
            any_layout(geometry.weight_dims(shape), _INT8),
            None,
            channels_last(out_shape, _INT32),
            padding.strides,
            padding.dilations,
            padding.begins,
            padding.ends,
            PrimitiveAttributes((Sum(),) if index else (), zero_points=zero_points),
        )


def _parts_of(weight: HostArray) -> Iterator[HostArray]:
    """Int8 arrays whose sum is a weight: two, or three where it is as large as 255."""
    remainder = weight
    while remainder.any():
        part = np.clip(remainder, -128, 127)
        yield np.ascontiguousarray(part, _INT8)
        remainder = remainder - part


class _WideCall:
    """Convolutions, each added to those before, and their requantization. For one thread at a time.

    Args:
        passes: of X, into sums with channels last.
        finish: the task of requantization, but for sums and output.
        kept: what holds the task's constants.
        workspace: the workspace.
    """

    def __init__(self, passes: Sequence[PrimitiveCall], finish: TaskCall, kept: Any, workspace: Workspace) -> None:
        self._passes, self._finish, self._kept, self._workspace = passes, finish, kept, workspace

    def run(self, *arrays: HostArray) -> None:
        """Compute; the arrays, X and the output, are not kept."""
        x, out = arrays
        shape = (out.shape[0], *out.shape[2:], out.shape[1])
        sums = np.moveaxis(self._workspace.array("wide sums", shape, _INT32), -1, 1)
        for each in self._passes:
            each.run(x, sums)
        self._finish.point(Requantize.sums, sums)
        self._finish.point(Requantize.out, out)
        self._finish.run()

    def bind_arrays(self, *arrays: HostArray) -> Callable[[], Any]:
        """The call on arrays that stay the same; it keeps them."""
        x, out = arrays
        if math.prod(out.shape) * _INT32.itemsize > OWN_BYTES:
            return functools.partial(self.run, x, out)
        sums = empty_channels_last(out.shape, _INT32)
        self._finish.point(Requantize.sums, sums)
        self._finish.point(Requantize.out, out)
        return in_sequence([*(each.bind_arrays(x, sums) for each in self._passes), self._finish.bound_call(self, sums, out)])
