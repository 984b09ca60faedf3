"""First convolutions of networks for pictures: few channels, row-major, to channels last in one task."""

from __future__ import annotations

import math

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk.opset.nn.windows import WindowAttributes
from ort_sdk_cpu.kernel.layouts.memory import Layout, contiguous
from ort_sdk_cpu.kernel.work_stealing import CLAIMS
from ort_sdk_cpu.memory.workspace import aligned_bytes
from ort_sdk_cpu.platform import libraries

from .direct import TaskPlan
from .epilogue import ConvEpilogue
from .onednn import WEIGHT, Variant
from .winograd import WinogradKernel

__all__ = ["StemKernel", "is_for_stem"]

MOST_CHANNELS = 4
LEAST_OUTPUTS = 8
MOST_WINDOW = 256
"""Elements of a window up to which the weights of a vector of channels stay in the first cache."""
PIXELS = 8
"""Columns of output that the task computes together."""
_LANES, _FLOAT_BYTES = 16, 4
_FLOAT = np.dtype(np.float32)


def is_for_stem(info: KernelInfo) -> bool:
    """Whether a Conv node's weight is constant and has few input channels."""
    tensor = info.constants.get(WEIGHT)
    if tensor is None or info.op_type == "ConvTranspose" or int(info.attribute("group", 1)) != 1 or len(tensor.shape) != 4:
        return False
    outputs, channels, *kernel = tensor.shape
    windows = WindowAttributes.of(info)
    is_fit = 0 < channels <= MOST_CHANNELS and outputs >= LEAST_OUTPUTS and 1 < math.prod(kernel) * channels <= MOST_WINDOW
    if not is_fit or not {*(windows.dilations or ())} <= {1} or not libraries.numba().is_usable:
        return False
    return ConvEpilogue.of(info) is not None


class StemKernel(WinogradKernel):
    """activation(Conv(X, W, B) + Z) for constant weights of few input channels. Arguments as for ``ConvKernel``."""

    identity = "stem"
    reads_row_major = True

    def transform(self, weight: HostArray) -> HostArray:
        """Weights (M, C, *kernel) as (C, *kernel, M in whole vectors): uint8."""
        outputs, *window = self.constant_shape
        result = aligned_bytes(math.prod(window) * _whole(outputs) * _FLOAT_BYTES)
        lying = result.view(_FLOAT).reshape(-1, _whole(outputs))
        lying[:, outputs:] = 0
        source = np.frombuffer(weight.tobytes(), _FLOAT)
        lying[:, :outputs] = source.reshape(outputs, -1).T
        return result

    def restore(self, transformed: HostArray) -> HostArray:
        """The inverse."""
        outputs = self.constant_shape[0]
        lying = transformed.view(_FLOAT).reshape(-1, _whole(outputs))
        return np.ascontiguousarray(lying[:, :outputs].T).reshape(self.constant_shape)

    def source_layout(self, shape: tuple[int, ...]) -> Layout:
        """Row-major."""
        return contiguous(shape, _FLOAT)

    def arranged(self, x: HostArray) -> HostArray:
        """X, row-major."""
        return np.ascontiguousarray(x)

    def task(self, variant: Variant, out_shape: tuple[int, ...]) -> TaskPlan | None:
        """The task, but for the arrays of a call; None if the output is too narrow."""
        if out_shape[3] < PIXELS:
            return None
        (samples, channels, *size), (_, outputs, *out_size) = variant.x_shape, out_shape
        padding, kernel = self.geometry.padding(variant.x_shape, variant.weight_shape), variant.weight_shape[2:]
        length = -(-((out_size[1] - 1) * padding.strides[1] + kernel[1]) // _LANES) * _LANES
        work_bytes, threads = channels * kernel[0] * length * _FLOAT_BYTES, libraries.thread_count()
        geometry = (samples, *size, channels, outputs, *out_size, *kernel, *padding.strides, *padding.begins, work_bytes)
        arguments = (0, 0, 0, 0, 0, 0, *geometry, *self.epilogue().arguments, *CLAIMS)
        return TaskPlan("stem", "stem", arguments, threads, work_bytes * threads)

    def _can_follow(self, variant: Variant) -> bool:
        is_wide = self.geometry.output_shape(variant.x_shape, variant.weight_shape)[3] >= PIXELS
        return is_wide and super()._can_follow(variant)


def _whole(outputs: int) -> int:
    return -(-outputs // _LANES) * _LANES
