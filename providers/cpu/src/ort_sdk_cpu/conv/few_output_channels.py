"""Last convolutions of networks that make pictures: a few channels of many, channels last."""

from __future__ import annotations

import math

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk.opset.nn.windows import WindowAttributes
from ort_sdk_cpu.memory.workspace import aligned_bytes
from ort_sdk_cpu.platform import libraries

from .direct import TaskPlan
from .epilogue import ConvEpilogue
from .onednn import WEIGHT, Variant
from .winograd import WinogradKernel

__all__ = ["FewOutputsKernel", "is_for_few_outputs"]

MOST_OUTPUTS = 4
"""Up to which vectors of output channels would be mostly empty."""
LEAST_RUN = 16
"""Elements of a row of a window from which on vectors along it are full."""
_FLOAT = np.dtype(np.float32)


def is_for_few_outputs(info: KernelInfo) -> bool:
    """Whether a Conv node's weight is constant and makes few channels of windows of many numbers."""
    tensor = info.constants.get(WEIGHT)
    if tensor is None or info.op_type == "ConvTranspose" or int(info.attribute("group", 1)) != 1 or len(tensor.shape) != 4:
        return False
    outputs, channels, *kernel = tensor.shape
    is_fit = 0 < outputs <= MOST_OUTPUTS and channels * kernel[1] >= LEAST_RUN and math.prod(kernel) > 1
    if not is_fit or not {*(WindowAttributes.of(info).dilations or ())} <= {1} or not libraries.numba().is_usable:
        return False
    return ConvEpilogue.of(info) is not None


class FewOutputsKernel(WinogradKernel):
    """activation(Conv(X, W, B) + Z) for constant weights of few output channels. Arguments as for ``ConvKernel``."""

    identity = "few-outputs"

    def transform(self, weight: HostArray) -> HostArray:
        """Weights (M, C, *kernel) as (M, *kernel, C): uint8."""
        source = np.frombuffer(weight.tobytes(), _FLOAT).reshape(self.constant_shape)
        result = aligned_bytes(source.nbytes)
        lying = np.moveaxis(source, 1, -1)
        np.copyto(result.view(_FLOAT).reshape(lying.shape), lying)
        return result

    def restore(self, transformed: HostArray) -> HostArray:
        """The inverse."""
        outputs, channels, *kernel = self.constant_shape
        return np.ascontiguousarray(np.moveaxis(transformed.view(_FLOAT).reshape(outputs, *kernel, channels), -1, 1))

    def task(self, variant: Variant, out_shape: tuple[int, ...]) -> TaskPlan:
        """The task, but for the arrays of a call."""
        (samples, channels, *size), (_, outputs, *out_size) = variant.x_shape, out_shape
        padding, kernel = self.geometry.padding(variant.x_shape, variant.weight_shape), variant.weight_shape[2:]
        geometry = (samples, *size, channels, outputs, *out_size, *kernel, *padding.strides, *padding.begins, 0)
        arguments = (0, 0, 0, 0, 0, 0, *geometry, *self.epilogue().arguments)
        return TaskPlan("few_outputs", "few_outputs", arguments, libraries.thread_count(), 0)
