"""QLinearConv with constant weights: direct by compiled tasks, groups by oneDNN; channels last."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_sdk.api import HostArray, InvalidArgument, InvalidGraph, KernelInfo, RuntimeException
from ort_sdk_cpu.conv.geometry import ConvGeometry
from ort_sdk_cpu.kernel.layouts.channels_last import ArraysCall, Call, ChannelsLastKernel, readable
from ort_sdk_cpu.kernel.layouts.memory import AnyLayout, channels_last, contiguous, is_channels_last, layout_of
from ort_sdk_cpu.kernel.onednn import PrimitiveCall
from ort_sdk_cpu.onednn.attributes import PrimitiveAttributes
from ort_sdk_cpu.onednn.constants import Argument, scales_of, zero_points_of
from ort_sdk_cpu.onednn.execution import reordered
from ort_sdk_cpu.onednn.library import is_available
from ort_sdk_cpu.onednn.memory_descriptor import MemoryDescriptor, any_layout
from ort_sdk_cpu.onednn.primitive import Primitive, convolution
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import has_vnni

from .centered_weight import CenteredWeight
from .qlinear_constants import BIAS, X_SCALE, QLinearConvConstants, W, X
from .select import QLinearConvProblem, QuantizedConvAlgorithm, select_qlinear_conv

if TYPE_CHECKING:
    from .direct import DirectConvolution, QuantizedAdd
    from .dynamic_shapes import DynamicDepthwise
    from .wide_weights import WideConvolution

__all__ = ["QLinearConvKernel", "can_compute", "kernel_for"]

_BYTES = (np.dtype(np.uint8), np.dtype(np.int8))
_INT8 = np.dtype(np.int8)
_FLOAT = np.dtype(np.float32)


def kernel_for(info: KernelInfo, kernel: Any) -> QLinearConvKernel | None:
    """The kernel; None if there is none for the node.

    All parameters must be constant.

    Args:
        info: the node.
        kernel: computes what this one does not.
    """
    if not can_compute() or info.attribute("channels_last", 0):
        return None
    constants = [info.constant_input(index) for index in range(X_SCALE, BIAS)]
    if any(constant is None for constant in constants) or (info.has_input(BIAS) and info.constant_input(BIAS) is None):
        return None
    prepared = QLinearConvConstants.of([None, *constants, info.constant_input(BIAS)])
    if prepared is None:
        return None
    try:
        return QLinearConvKernel(info, kernel, prepared)
    except (InvalidArgument, InvalidGraph):
        return None  # The other kernel says so when it is run, as it does for shapes that are known only then.


def can_compute() -> bool:
    """Whether there is something to compute with.

    oneDNN loses exactness on processors without VNNI, where it adds pairs of products in 16 bits; the task does not.
    """
    return is_available() and (has_vnni() or libraries.compiled_kernels().is_usable)


def _centered(weight: HostArray, zero_points: HostArray | None) -> HostArray:
    """A weight less its zero point: int16."""
    return weight.astype(np.int16) if zero_points is None else _less_zero_points(weight, zero_points)


def _less_zero_points(weight: HostArray, zero_points: HostArray) -> HostArray:
    result: HostArray = weight - zero_points.reshape(-1, *(1 for _ in weight.shape[1:]))
    return result


class QLinearConvKernel(ChannelsLastKernel):
    """saturate((conv(x, w) + B) * x_scale * w_scale / y_scale + y_zero_point).

    The weight is packed when a shape is first seen: its layout belongs to the shape, and cannot be read back.

    Args:
        info: the node.
        kernel: computes what this one does not.
        constants: of the node.
    """

    _algorithm_of_fallback = QuantizedConvAlgorithm.NUMPY
    _used: QuantizedConvAlgorithm | None = None

    def __init__(self, info: KernelInfo, kernel: Any, constants: QLinearConvConstants) -> None:
        super().__init__(info, kernel)
        self._geometry, self._prepared = ConvGeometry.of(info), constants
        self._packed: dict[Any, HostArray] = {}
        self._task: tuple[DirectConvolution | None, ...] = ()
        """The convolution by a compiled task, once that was asked for."""
        self._wide: WideConvolution | None = None
        self._dynamic: tuple[DynamicDepthwise | None, ...] = ()
        """What computes inputs of any shape, once that was asked for."""

    def output_shape(self, inputs: Sequence[Any]) -> tuple[int, ...] | None:
        """(N, M, *spatial), if oneDNN computes it. Shapes that do not fit together are the other kernel's to refuse."""
        x = inputs[X]
        problem = QLinearConvProblem(
            self._geometry, self._prepared.weight_shape, x.shape, x.dtype, is_channels_last(x), self._prepared.is_wide
        )
        self._used = select_qlinear_conv(problem)
        return None if self._used is QuantizedConvAlgorithm.NUMPY else problem.output_shape

    def output_dtype(self, inputs: Sequence[Any]) -> np.dtype[Any]:
        """Type of y_zero_point."""
        return self._prepared.output_dtype

    def operands(self, inputs: Sequence[Any]) -> list[HostArray]:
        """X: all else is constant."""
        return [inputs[X]]

    def make_call(self, inputs: Sequence[Any], operands: Sequence[HostArray], out: HostArray) -> ArraysCall | None:
        """The task, or else the primitive, or two, on arrays of these layouts."""
        task = self._task_for(inputs[W])
        found = None if task is None else task.call(operands[0], out)
        if found is not None:
            return found
        # Not direct, or sums that may not fit into 32 bits.
        is_wide = self._prepared.is_wide
        self._used = QuantizedConvAlgorithm.ONEDNN_SPLIT if is_wide else QuantizedConvAlgorithm.ONEDNN
        return self._wide_for(inputs[W]).call(operands[0], out) if is_wide else self._primitive_call(inputs, operands[0], out)

    def write_varying(self, inputs: Sequence[Any], out: HostArray) -> bool:
        """Tasks that take sizes as arguments, for one filter per channel: the task of a single group is for any shape anyway."""
        if not self._dynamic:
            from .dynamic_shapes import dynamic_depthwise

            weight = functools.partial(_centered, inputs[W], self._prepared.weight_zero_points)
            is_usable = libraries.compiled_kernels().is_usable
            self._dynamic = (dynamic_depthwise(self._geometry, self._prepared, weight, self.workspace) if is_usable else None,)
        if self._dynamic[0] is None or not self._dynamic[0](inputs[X], out):
            return False
        self._used = QuantizedConvAlgorithm.FLOAT32
        return True

    def can_fuse_add(self, x_shape: tuple[int, ...], add: QuantizedAdd) -> bool:
        """Whether ``with_add`` computes the node for an X of this shape, and what is added to it. It has to have run before."""
        task = self._task[0] if self._task else None
        return task is not None and task.can_add and task.is_for(x_shape) and add.conv[1] == int(self._prepared.y_zero_point[0])

    def with_add(self, inputs: Sequence[Any], addend: HostArray, add: QuantizedAdd, out: HostArray) -> Call | None:
        """The call with another tensor added to its result, on arrays that stay; None if no task computes it."""
        x, task = inputs[X], self._task_for(inputs[W])
        if task is None or self.output_shape(inputs) is None or any(readable(array) is not array for array in (x, addend)):
            return None
        call = task.call(x, out, (addend, add))
        return None if call is None else call.bind_arrays(x, addend, out)

    def _task_for(self, weight: HostArray) -> DirectConvolution | None:
        if not self._task:
            self._task = (self._made_task(weight),)
        return self._task[0]

    def _wide_for(self, weight: HostArray) -> WideConvolution:
        if self._wide is None:
            from .wide_weights import WideConvolution

            prepared = self._prepared
            zero_points = prepared.x_zero_point, prepared.y_zero_point
            constants = _centered(weight, prepared.weight_zero_points), prepared.scales, prepared.sum_bias
            self._wide = WideConvolution(self._geometry, *constants, zero_points, self.workspace)
        return self._wide

    def _made_task(self, weight: HostArray) -> DirectConvolution | None:
        """The convolution by a compiled task; None where there is no compiler."""
        prepared = self._prepared
        if not libraries.compiled_kernels().is_usable or self._geometry.groups > 1:
            return None
        from .direct import DirectConvolution

        zero_points = int(prepared.x_zero_point[0]), int(prepared.y_zero_point[0])
        w_zero_points = np.zeros(1, np.int16) if prepared.weight_zero_points is None else prepared.weight_zero_points
        return DirectConvolution(
            self._geometry,
            prepared.weight_shape,
            lambda: CenteredWeight.of(weight, w_zero_points),
            can_add=not prepared.is_wide,
            scales=prepared.scales,
            bias=prepared.sum_bias,
            zero_points=zero_points,
            workspace=self.workspace,
        )

    def _plain(self, weight: HostArray) -> HostArray:
        """The weight less its zero point: int8."""
        zero_points = self._prepared.weight_zero_points
        return np.ascontiguousarray(weight if zero_points is None else _less_zero_points(weight, zero_points).astype(_INT8))

    def _primitive_call(self, inputs: Sequence[Any], x: HostArray, out: HostArray) -> PrimitiveCall | None:
        primitive = self._primitive(x, out) if has_vnni() else None
        if primitive is None:
            return None
        arguments = [
            (argument, layout_of(array) or contiguous(array.shape, array.dtype), channels_last(array.shape, array.dtype))
            for argument, array in ((Argument.SRC, x), (Argument.DST, out))
        ]
        return PrimitiveCall(primitive, arguments, self._constants(primitive, inputs[W]), self.workspace)

    def _constants(self, primitive: Primitive, weight: HostArray) -> list[tuple[int, AnyLayout, HostArray]]:
        prepared, layout = self._prepared, primitive.layout(Argument.WEIGHTS)
        found: list[tuple[int, HostArray]] = [(scales_of(Argument.WEIGHTS), prepared.scales)]
        if prepared.x_zero_point.any():
            found.append((zero_points_of(Argument.SRC), prepared.x_zero_point))
        if prepared.y_zero_point.any():
            found.append((zero_points_of(Argument.DST), prepared.y_zero_point))
        if prepared.bias is not None:
            found.append((Argument.BIAS, prepared.bias))
        described = [(argument, contiguous(array.shape, array.dtype), array) for argument, array in found]
        return [(Argument.WEIGHTS, layout, self._weight_in(layout, weight)), *described]

    def _weight_in(self, layout: MemoryDescriptor, weight: HostArray) -> HostArray:
        packed = self._packed.get(layout)
        if packed is None:
            made = reordered(self._plain(weight), self._geometry.weight_layout(weight.shape, _INT8), layout)
            if made is None:
                raise RuntimeException(f"oneDNN has no fast copy of a weight of shape {list(weight.shape)} to {layout.key}")
            packed = self._packed[layout] = made
        return packed

    def _primitive(self, x: HostArray, out: HostArray) -> Primitive | None:
        geometry, prepared = self._geometry, self._prepared
        shape = prepared.weight_shape
        padding = geometry.padding(x.shape, shape)
        if min(*padding.begins, *padding.ends) < 0:
            return None
        per_channel = 0b11 if geometry.groups > 1 else 0b1
        zero_points = [
            (argument, 0)
            for argument, value in ((Argument.SRC, prepared.x_zero_point), (Argument.DST, prepared.y_zero_point))
            if value.any()
        ]
        return convolution(
            channels_last(x.shape, x.dtype),
            any_layout(geometry.weight_dims(shape), _INT8),
            None if prepared.bias is None else contiguous(prepared.bias.shape, _FLOAT),
            channels_last(out.shape, out.dtype),
            padding.strides,
            padding.dilations,
            padding.begins,
            padding.ends,
            PrimitiveAttributes(
                scales=((Argument.WEIGHTS, per_channel if prepared.scales.size > 1 else 0),), zero_points=tuple(zero_points)
            ),
        )
