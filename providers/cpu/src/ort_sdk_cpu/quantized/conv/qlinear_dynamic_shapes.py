"""QLinearConv with one filter per channel, for inputs whose shape is another in each run: no primitive is made for one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.conv.geometry import ConvGeometry
from ort_sdk_cpu.kernel.task_writer import threads_for
from ort_sdk_cpu.memory.workspace import Scratch
from ort_sdk_cpu.quantized.arguments.linear import MODULE as LINEAR
from ort_sdk_cpu.quantized.arguments.linear import Requantize
from ort_sdk_cpu.quantized.parameters import EXACT_FLOAT, limits

from .integer_dynamic_shapes import VaryingSums

if TYPE_CHECKING:
    from .qlinear import QuantizedConv

__all__ = ["VaryingFilters", "filters_of"]

_LARGEST_PRODUCT = 255 * 255
_INT32, _FLOAT = np.dtype(np.int32), np.dtype(np.float32)


def filters_of(
    geometry: ConvGeometry, parameters: QuantizedConv, weight: Callable[[], HostArray], scratch: Scratch
) -> VaryingFilters | None:
    """What computes a node for inputs of any shape; None if it has other groups, or windows whose sums float32 does not hold.

    Args:
        geometry: of the node.
        parameters: its constants.
        weight: gives W less its zero point, once.
        scratch: working memory.
    """
    outputs, channels, *taps = parameters.weight_shape
    is_of_filters = geometry.groups == outputs and channels == 1
    if not is_of_filters or math.prod(taps) * _LARGEST_PRODUCT > EXACT_FLOAT:
        return None
    return VaryingFilters(VaryingSums(geometry, None, weight, scratch), parameters, scratch)


class VaryingFilters:
    """Sums, and what makes steps of Y of them. For one thread at a time.

    Args:
        sums: of products.
        parameters: of the node.
        scratch: working memory.
    """

    def __init__(self, sums: VaryingSums, parameters: QuantizedConv, scratch: Scratch) -> None:
        self._sums, self._scratch = sums, scratch
        self._scales = np.ascontiguousarray(np.broadcast_to(parameters.scales, parameters.weight_shape[:1]), _FLOAT)
        self._bias = None if parameters.sum_bias is None else np.ascontiguousarray(parameters.sum_bias, _INT32)
        self._x_zero_point, self._y_zero_point = parameters.x_zero_point, float(parameters.y_zero_point[0])

    def __call__(self, x: HostArray, out: HostArray) -> bool:
        """Write the output; False if no task computes it, or its channels are not last in memory."""
        target = np.moveaxis(out, 1, -1)
        sums = self._scratch.array("filters' sums", target.shape, _INT32)
        zero_point = self._x_zero_point.astype(x.dtype)
        if not target.flags.c_contiguous or not self._sums(x, zero_point, np.moveaxis(sums, -1, 1)):
            return False
        from ort_sdk_cpu.jit.task import task_function

        rows, columns = out.size // out.shape[1], out.shape[1]
        arguments = Requantize(sums, target, self._scales, self._bias, rows, columns, self._y_zero_point, *limits(out))
        task_function(LINEAR, "requantize")(threads_for(out.size), arguments)
        return True
