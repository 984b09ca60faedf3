"""Direct convolutions of 8-bit tensors whose zero point and scale come with each run, with a float32 result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.conv.geometry import ConvGeometry
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.kernel.layouts.channels_last import ArraysCall
from ort_sdk_cpu.kernel.layouts.memory import is_channels_last
from ort_sdk_cpu.kernel.layouts.task_execution import TaskExecution
from ort_sdk_cpu.memory.workspace import Workspace
from ort_sdk_cpu.onednn.constants import Argument, scales_of, zero_points_of

from .arguments.windows import Dequantization, DequantizedConv, DequantizedConvWithZeroPoints, Windows
from .centered_weight import CenteredWeight
from .direct import FIELDS, LineOrder, call_on
from .packing import pack_columns_plain, pack_panels_plain
from .select import QuantizedConvAlgorithm, algorithm_of, is_direct, task_name, threads_for_work, tiling_for
from .tiling import ONES_COLUMNS, Tiling

__all__ = ["DequantizationEpilogue", "DequantizedConvolution"]

_TASK, _TASK_WITH_ZERO_POINTS = "dequantized_conv", "dequantized_conv_with_zero_points"
_ZERO_POINT, _SCALE = zero_points_of(Argument.SRC), scales_of(Argument.SRC)
_FIELDS: dict[int, int] = {
    **FIELDS,
    Argument.SRC_1: DequantizedConvWithZeroPoints.ones,
    _ZERO_POINT: DequantizedConv.dequantization.zero_point,
    _SCALE: DequantizedConv.dequantization.scale,
}
"""Argument → field of the task's arguments."""
_INT32, _FLOAT = np.dtype(np.int32), np.dtype(np.float32)


class DequantizationEpilogue(NamedTuple):
    """What follows the sums: they are multiplied by the scale of X and these scales, a bias is added, and results are clipped."""

    scales: HostArray
    """float32, (1,) or (M,)."""
    bias: HostArray | None = None
    """float32, (M,)."""
    low: float = -math.inf
    high: float = math.inf


class _Packed(NamedTuple):
    """A weight as the tasks read it."""

    panels: HostArray
    columns: HostArray
    ones: dict[int, HostArray] | None
    """Columns → the panel of ones that sums windows' elements; None for weights without zero points."""


class DequantizedConvolution:
    """A node's convolution by the tasks, for inputs of any shape.

    Args:
        geometry: of the node, with one group.
        shape: of the weight, (M, C, *kernel).
        weight: gives it when it is packed; it is not kept.
        epilogue: what follows the sums.
        workspace: the workspace.
    """

    def __init__(
        self,
        geometry: ConvGeometry,
        shape: Sequence[int],
        weight: Callable[[], CenteredWeight],
        epilogue: DequantizationEpilogue,
        workspace: Workspace,
    ) -> None:
        self._geometry, self._shape, self._weight, self._epilogue, self._workspace = (
            geometry,
            tuple(shape),
            weight,
            epilogue,
            workspace,
        )
        self._packed: dict[LineOrder, _Packed] = {}
        self.algorithm: QuantizedConvAlgorithm | None = None
        """Of the last call that was made."""

    @property
    def channels(self) -> int:
        """C of X."""
        return self._shape[1]

    def is_for(self, x_shape: Sequence[int]) -> bool:
        """Whether the tasks compute the convolution of an X of this shape, which fits to the weight."""
        return 0 not in x_shape and is_direct(self._shape, self._geometry, x_shape)

    def call(self, x: HostArray, zero_point: HostArray, scale: HostArray, out: HostArray) -> ArraysCall:
        """The call on arrays like these.

        Args:
            x: uint8 or int8, of a shape that ``is_for``.
            zero_point: one element, of its type.
            scale: float32, one element.
            out: float32.
        """
        threads = threads_for_work(2 * out.size * math.prod(self._shape[1:]))
        shapes, is_last = (x.shape, self._shape, out.shape), is_channels_last(x)
        tiling = tiling_for(self._geometry, *shapes, is_channels_last=is_last, threads=threads)
        self.algorithm = algorithm_of(tiling)
        packed = self._packed_in(LineOrder(tiling.is_interleaved, tiling.image.has_gaps))
        task = self._task(tiling, x.dtype, has_zero_points=packed.ones is not None)
        execution = TaskExecution(task, _FIELDS, self._workspace, (Windows.workspace, tiling.workspace_bytes * threads))
        execution.set(Argument.WEIGHTS, packed.panels)
        execution.set(Argument.BIAS, packed.columns)
        if packed.ones is not None:
            execution.set(Argument.SRC_1, packed.ones[tiling.ones_columns])
        given = [(Argument.SRC, x), (_ZERO_POINT, zero_point), (_SCALE, scale), (Argument.DST, out)]
        return call_on(execution, given, self._workspace, is_interleaved=tiling.is_interleaved)

    def _task(self, tiling: Tiling, dtype: np.dtype[Any], *, has_zero_points: bool) -> TaskCall:
        windows = tiling.windows(0, dtype)
        finish = Dequantization(0, 0, float(self._epilogue.low), float(self._epilogue.high))
        if has_zero_points:
            name, arguments = task_name(_TASK_WITH_ZERO_POINTS, dtype), DequantizedConvWithZeroPoints(windows, finish, 0)
            return TaskCall(tiling.module, name, arguments, tiling.threads)
        return TaskCall(tiling.module, task_name(_TASK, dtype), DequantizedConv(windows, finish), tiling.threads)

    def _packed_in(self, order: LineOrder) -> _Packed:
        found = self._packed.get(order)
        if found is None:
            weight, epilogue = self._weight(), self._epilogue
            outputs, zeros = self._shape[:1], np.zeros(self._shape[0], _INT32)
            scales = np.broadcast_to(epilogue.scales, outputs).astype(_FLOAT)
            shifts = zeros if weight.zero_points is None else weight.zero_points
            columns = pack_columns_plain(weight.sums(), scales, zeros if epilogue.bias is None else epilogue.bias, shifts)
            ones = None
            if weight.zero_points is not None:
                ones = {count: order.ones_of(weight.values, count) for count in ONES_COLUMNS}
            found = self._packed[order] = _Packed(pack_panels_plain(order.lines_of(weight.values)), columns, ones)
        return found
