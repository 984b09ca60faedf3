"""Convolutions of one tap by a compiled task: products of pixels with weights in panels."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk.opset.nn.windows import WindowAttributes
from ort_sdk_cpu.kernel.work_stealing import CLAIMS, groups_for
from ort_sdk_cpu.memory.workspace import aligned_bytes
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set

from .direct import TaskPlan
from .epilogue import ConvEpilogue
from .onednn import TEAM_WORK, WEIGHT, Variant
from .winograd import WinogradKernel

__all__ = ["PANEL_ROWS", "PointwiseKernel", "in_panels", "is_for_pointwise", "out_of_panels", "panel_width", "panels_of"]

LEAST_CHANNELS = 8
"""Channels, in and out, from which on there is enough to do for vectors."""
PANEL_ROWS = 12
"""Most pixels of a tile."""
BLOCK_PIXELS, BLOCK_BYTES, LEAST_PIXELS = 96, 1 << 18, 24
"""Pixels of a block: their channels stay in a core's cache while all panels are multiplied."""
FEW_WEIGHTS, MORE_PIXELS = 1 << 18, 48
"""Of more weights than so many, the fewest pixels of a thread."""
_FLOAT_BYTES = 4
_FLOAT = np.dtype(np.float32)


def is_for_pointwise(info: KernelInfo) -> bool:
    """Whether a Conv node's weight is constant and of one tap, every pixel is read, and there are enough channels."""
    tensor = info.constants.get(WEIGHT)
    if tensor is None or info.op_type == "ConvTranspose" or int(info.attribute("group", 1)) != 1 or len(tensor.shape) < 3:
        return False
    outputs, channels, *kernel = tensor.shape
    windows = WindowAttributes.of(info)
    is_plain = {*kernel, *(windows.strides or ())} <= {1} and not any(windows.pads or ())
    if not is_plain or min(outputs, channels) < LEAST_CHANNELS or not libraries.numba().is_usable:
        return False
    return ConvEpilogue.of(info) is not None


class PointwiseKernel(WinogradKernel):
    """activation(Conv(X, W, B) + Z) for constant weights of one tap. Arguments as for ``ConvKernel``."""

    identity = "pointwise"

    def transform(self, weight: HostArray) -> HostArray:
        """Weights (M, C, 1, ...) in panels: uint8."""
        return in_panels(weight, self.constant_shape[0])

    def restore(self, transformed: HostArray) -> HostArray:
        """The inverse."""
        return out_of_panels(transformed, self.constant_shape)

    def output_shape(self, inputs: Sequence[Any]) -> tuple[int, ...] | None:
        """As the other kernels', told faster."""
        shape = self.fitted_shape(inputs[0].shape) if self.is_packed else None
        return super().output_shape(inputs) if shape is None else shape

    def fitted_shape(self, x_shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """As the other kernels', told faster."""
        outputs, channels, *kernel = self.constant_shape
        is_fit = len(x_shape) == 2 + len(kernel) and x_shape[1] == channels and 0 not in x_shape
        return (x_shape[0], outputs, *x_shape[2:]) if is_fit else None

    def task(self, variant: Variant, out_shape: tuple[int, ...]) -> TaskPlan | None:
        """The task, but for the arrays of a call."""
        channels, outputs = variant.x_shape[1], out_shape[1]
        pixels = variant.x_shape[0] * math.prod(out_shape[2:])
        threads = libraries.thread_count() if 2 * pixels * channels * outputs >= TEAM_WORK else 1
        work_bytes = (1 + panels_of(outputs) + PANEL_ROWS) * panel_width() * _FLOAT_BYTES
        sizes = (pixels, channels, *_parts(pixels, channels, outputs, threads), outputs, *CLAIMS, work_bytes)
        arguments = (0, 0, 0, 0, 0, 0, *sizes, *self.epilogue().arguments)
        return TaskPlan("pointwise", "pointwise", arguments, threads, work_bytes * threads)


def _parts(pixels: int, channels: int, outputs: int, threads: int) -> tuple[int, int]:
    """Blocks of pixels, and groups of panels.

    Threads with pixels of their own find what they wrote in their own cache, and ask for nothing that others write; but each
    reads all weights, and has to multiply them with enough pixels for the next ones to come.
    """
    panels = panels_of(outputs)
    if pixels < (LEAST_PIXELS if channels * outputs <= FEW_WEIGHTS else MORE_PIXELS) * threads:
        return 1, min(panels, groups_for(1, threads))
    most = max(LEAST_PIXELS, min(BLOCK_PIXELS, BLOCK_BYTES // (_FLOAT_BYTES * channels)))
    blocks = threads * -(-pixels // (threads * most))
    return blocks, min(panels, groups_for(blocks, threads))


@functools.cache
def panel_width() -> int:
    """Output channels of a panel."""
    return 32 if instruction_set() >= InstructionSet.AVX512 else 16


def panels_of(channels: int) -> int:
    """How many panels hold so many channels."""
    return -(-channels // panel_width())


def in_panels(weight: HostArray, outputs: int) -> HostArray:
    """Rows, one per output channel, given as any contiguous array, as (panels, row, channels of a panel): uint8."""
    width = panel_width()
    rows = weight.reshape(-1).view(_FLOAT).reshape(outputs, -1)
    result = aligned_bytes(panels_of(outputs) * width * rows.shape[1] * _FLOAT_BYTES)
    panels = result.view(_FLOAT).reshape(-1, rows.shape[1], width)
    for index, panel in enumerate(panels):
        part = rows[index * width : (index + 1) * width]
        panel[:, : len(part)] = part.T
        panel[:, len(part) :] = 0
    return result


def out_of_panels(transformed: HostArray, shape: tuple[int, ...]) -> HostArray:
    """The inverse: weights of a shape."""
    panels = transformed.view(_FLOAT).reshape(panels_of(shape[0]), -1, panel_width())
    return np.ascontiguousarray(panels.transpose(0, 2, 1).reshape(-1, panels.shape[1])[: shape[0]]).reshape(shape)
