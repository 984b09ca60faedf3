"""ConvInteger of inputs whose shape is another in each run: by tasks in float32, which holds all sums.

A primitive of oneDNN is made for one shape, which takes longer than most convolutions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.conv.geometry import ConvGeometry
from ort_sdk_cpu.conv.im2row.dynamic_shapes import DynamicConvolution, dynamic_convolution
from ort_sdk_cpu.elementwise.arguments.cast import MODULE as CAST
from ort_sdk_cpu.elementwise.arguments.cast import Cast
from ort_sdk_cpu.kernel.task_writer import threads_for
from ort_sdk_cpu.memory.workspace import Scratch
from ort_sdk_cpu.quantized.arguments.linear import MODULE as LINEAR
from ort_sdk_cpu.quantized.arguments.linear import Dequantize
from ort_sdk_cpu.quantized.parameters import sign_bit

if TYPE_CHECKING:
    from .dequantized import FloatConvolution

__all__ = ["VaryingSums"]

_FLOAT = np.dtype(np.float32)
_ONE = np.ones(1, _FLOAT)


class VaryingSums:
    """Sums of products of X less its zero point with W less its own, for inputs of any shape. For one thread at a time.

    Args:
        geometry: of the node.
        products: the convolution of 8-bit tensors, whose scales are 1; None for a node of several groups.
        weight: gives W less its zero point, (M, C / groups, *kernel), once, if ``products`` does not compute the node.
        scratch: working memory.
    """

    def __init__(
        self, geometry: ConvGeometry, products: FloatConvolution | None, weight: Callable[[], HostArray], scratch: Scratch
    ) -> None:
        self._geometry, self._products, self._weight, self._scratch = geometry, products, weight, scratch

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
        sums = self._scratch.array("integer sums", target.shape, _FLOAT)
        image = np.moveaxis(sums, -1, 1)
        if self._products is not None and self._products.is_for(x.shape):
            self._products.call(x, zero_point, _ONE, image).run(x, zero_point, _ONE, image)
        elif self._convolve is None or not self._convolve(self._centred(x, zero_point), None, None, image):
            return False
        from ort_sdk_cpu.jit.task import task_function

        task_function(CAST, "f32_to_i32")(threads_for(sums.size), Cast(sums, target, sums.size))
        return True

    @functools.cached_property
    def _convolve(self) -> DynamicConvolution | None:
        """The convolution in float32."""
        return dynamic_convolution(self._geometry, self._weight().astype(_FLOAT), (), self._scratch)

    def _centred(self, x: HostArray, zero_point: HostArray) -> HostArray:
        """X less its zero point, float32, channels last."""
        from ort_sdk_cpu.jit.task import task_function

        nhwc, sign = np.ascontiguousarray(_channels_last(x)), sign_bit(x)
        real = self._scratch.array("centered", nhwc.shape, _FLOAT)
        arguments = Dequantize(nhwc, real, x.size, sign, float(zero_point[0]) + sign, 1.0)
        task_function(LINEAR, "dequantize_8")(threads_for(x.size), arguments)
        return np.moveaxis(real, -1, 1)


def _channels_last(array: HostArray) -> HostArray:
    return np.moveaxis(array, 1, -1)
