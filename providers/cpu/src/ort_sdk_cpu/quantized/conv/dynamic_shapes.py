"""ConvInteger, and QLinearConv with one filter per channel, of inputs whose shape is another in each run.

They are computed in float32, which holds all sums, by tasks that take sizes as arguments: a primitive of oneDNN is made for one
shape, which takes longer than most convolutions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.conv.geometry import ConvGeometry
from ort_sdk_cpu.conv.im2row.dynamic_shapes import DynamicConvolution, dynamic_convolution
from ort_sdk_cpu.elementwise.arguments.cast import MODULE as CAST
from ort_sdk_cpu.elementwise.arguments.cast import Cast
from ort_sdk_cpu.kernel.task_writer import threads_for
from ort_sdk_cpu.memory.workspace import Workspace
from ort_sdk_cpu.quantized.arguments.linear import MODULE as LINEAR
from ort_sdk_cpu.quantized.arguments.linear import Dequantize, Requantize
from ort_sdk_cpu.quantized.parameters import EXACT_FLOAT, limits, sign_bit

if TYPE_CHECKING:
    from .dequantized import DequantizedConvolution
    from .qlinear_constants import QLinearConvConstants

__all__ = ["DynamicConvInteger", "DynamicDepthwise", "dynamic_depthwise"]

_INT32, _FLOAT = np.dtype(np.int32), np.dtype(np.float32)
_ONE = np.ones(1, _FLOAT)
_LARGEST_PRODUCT = 255 * 255


class DynamicConvInteger:
    """Sums of products of X less its zero point with W less its own, for inputs of any shape. For one thread at a time.

    Args:
        geometry: of the node.
        direct: the convolution of 8-bit tensors, whose scales are 1; None for a node of several groups.
        weight: gives W less its zero point, (M, C / groups, *kernel), once, if ``direct`` does not compute the node.
        workspace: the workspace.
    """

    def __init__(
        self, geometry: ConvGeometry, direct: DequantizedConvolution | None, weight: Callable[[], HostArray], workspace: Workspace
    ) -> None:
        self._geometry, self._direct, self._weight, self._workspace = geometry, direct, weight, workspace

    def __call__(self, x: HostArray, zero_point: HostArray, out: HostArray) -> bool:
        """Write the sums.

        Args:
            x: uint8 or int8, (N, C, *spatial).
            zero_point: of its type, (1,).
            out: int32, (N, M, *spatial).

        Returns:
            False if no task computes them, or the output's channels are not last in memory.
        """
        target = _channels_last(out)
        if not target.flags.c_contiguous:
            return False
        sums = self._workspace.array("integer sums", target.shape, _FLOAT)
        image = np.moveaxis(sums, -1, 1)
        if self._direct is not None and self._direct.is_for(x.shape):
            self._direct.call(x, zero_point, _ONE, image).run(x, zero_point, _ONE, image)
        elif self._convolve is None or not self._convolve(self._centered(x, zero_point), None, None, image):
            return False
        from ort_sdk_cpu.jit.task import task_function

        task_function(CAST, "f32_to_i32")(threads_for(sums.size), Cast(sums, target, sums.size))
        return True

    @functools.cached_property
    def _convolve(self) -> DynamicConvolution | None:
        """The convolution in float32."""
        return dynamic_convolution(self._geometry, self._weight().astype(_FLOAT), (), self._workspace)

    def _centered(self, x: HostArray, zero_point: HostArray) -> HostArray:
        """X less its zero point, float32, channels last."""
        from ort_sdk_cpu.jit.task import task_function

        nhwc, sign = np.ascontiguousarray(_channels_last(x)), sign_bit(x)
        real = self._workspace.array("centered", nhwc.shape, _FLOAT)
        arguments = Dequantize(nhwc, real, x.size, sign, float(zero_point[0]) + sign, 1.0)
        task_function(LINEAR, "dequantize_8")(threads_for(x.size), arguments)
        return np.moveaxis(real, -1, 1)


def _channels_last(array: HostArray) -> HostArray:
    return np.moveaxis(array, 1, -1)


def dynamic_depthwise(
    geometry: ConvGeometry, constants: QLinearConvConstants, weight: Callable[[], HostArray], workspace: Workspace
) -> DynamicDepthwise | None:
    """What computes a node for inputs of any shape; None if it has other groups, or windows whose sums float32 does not hold.

    Args:
        geometry: of the node.
        constants: of the node.
        weight: gives W less its zero point, once.
        workspace: the workspace.
    """
    outputs, channels, *taps = constants.weight_shape
    is_depthwise = geometry.groups == outputs and channels == 1
    if not is_depthwise or math.prod(taps) * _LARGEST_PRODUCT > EXACT_FLOAT:
        return None
    return DynamicDepthwise(DynamicConvInteger(geometry, None, weight, workspace), constants, workspace)


class DynamicDepthwise:
    """Sums, and their requantization. For one thread at a time.

    Args:
        sums: the convolution in int32.
        constants: of the node.
        workspace: the workspace.
    """

    def __init__(self, sums: DynamicConvInteger, constants: QLinearConvConstants, workspace: Workspace) -> None:
        self._sums, self._workspace = sums, workspace
        self._scales = np.ascontiguousarray(np.broadcast_to(constants.scales, constants.weight_shape[:1]), _FLOAT)
        self._bias = None if constants.sum_bias is None else np.ascontiguousarray(constants.sum_bias, _INT32)
        self._x_zero_point, self._y_zero_point = constants.x_zero_point, float(constants.y_zero_point[0])

    def __call__(self, x: HostArray, out: HostArray) -> bool:
        """Write the output; False if no task computes it, or its channels are not last in memory."""
        target = np.moveaxis(out, 1, -1)
        sums = self._workspace.array("depthwise sums", target.shape, _INT32)
        zero_point = self._x_zero_point.astype(x.dtype)
        if not target.flags.c_contiguous or not self._sums(x, zero_point, np.moveaxis(sums, -1, 1)):
            return False
        from ort_sdk_cpu.jit.task import task_function

        rows, columns = out.size // out.shape[1], out.shape[1]
        arguments = Requantize(sums, target, self._scales, self._bias, rows, columns, self._y_zero_point, *limits(out))
        task_function(LINEAR, "requantize")(threads_for(out.size), arguments)
        return True
