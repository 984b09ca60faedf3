"""1x1 convolutions by a compiled task: GEMM of pixels and panels of weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.kernel.task_writer import team_for
from ort_sdk_cpu.kernel.work_stealing import jobs_per_block

from .arguments.direct import POINTED_LATER, JobCounters
from .arguments.pointwise import MODULE, Pointwise
from .base import Variant
from .direct import DirectConvKernel, Positions, TaskPlan
from .packing import pack_panels, panel_count, panel_width, unpack_panels
from .problem import ConvAlgorithm
from .select import TEAM_WORK

__all__ = ["PANEL_ROWS", "PointwiseKernel"]

PANEL_ROWS = 12
"""Most pixels of a tile."""
# A block's pixels stay in the second cache while all panels are multiplied with them, and each panel is read once for a block.
BLOCK_PIXELS, BLOCK_BYTES, LEAST_PIXELS = 96, 1 << 18, 24
"""Most pixels of a block, most bytes of their channels, and fewest pixels."""
FEW_WEIGHTS, MORE_PIXELS = 1 << 18, 48
"""Of more weights than so many, the fewest pixels of a thread."""
_FLOAT_BYTES = 4
_FLOAT = np.dtype(np.float32)


class PointwiseKernel(DirectConvKernel):
    """activation(Conv(X, W, B) + Z) for constant 1x1 weights. Arguments as for ``ConvKernel``."""

    own_algorithm = ConvAlgorithm.POINTWISE
    identity = "pointwise"
    positions = Positions.of(Pointwise)

    def pack_weight(self, weight: HostArray) -> HostArray:
        """Weights (M, C, 1, ...) in panels: uint8."""
        return pack_panels(weight, self.constant_shape[0])

    def unpack_weight(self, packed: HostArray) -> HostArray:
        """The inverse."""
        return unpack_panels(packed, self.constant_shape)

    def output_shape(self, inputs: Sequence[Any]) -> tuple[int, ...] | None:
        """As for all direct convolutions, without windows to compute."""
        shape = self.fitted_shape(inputs[0].shape) if self.is_packed else None
        return super().output_shape(inputs) if shape is None else shape

    def fitted_shape(self, x_shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """As for all direct convolutions, without windows to compute."""
        outputs, channels, *kernel = self.constant_shape
        is_fit = len(x_shape) == 2 + len(kernel) and x_shape[1] == channels and 0 not in x_shape
        return (x_shape[0], outputs, *x_shape[2:]) if is_fit else None

    def plan(self, variant: Variant, out_shape: tuple[int, ...]) -> TaskPlan | None:
        """The task, but for the arrays of a call."""
        channels, outputs = variant.x_shape[1], out_shape[1]
        pixels = variant.x_shape[0] * math.prod(out_shape[2:])
        threads = team_for(2 * pixels * channels * outputs, TEAM_WORK)
        work_bytes = (1 + panel_count(outputs) + PANEL_ROWS) * panel_width() * _FLOAT_BYTES
        blocks, groups = _parts(pixels, channels, outputs, threads)
        arguments = Pointwise(
            **POINTED_LATER,
            pixels=pixels,
            channels=channels,
            blocks=blocks,
            groups=groups,
            outputs=outputs,
            jobs=JobCounters(),
            work_bytes=work_bytes,
            epilogue=self.epilogue().arguments,
        )
        return TaskPlan(MODULE, "pointwise", arguments, self.positions, threads, work_bytes * threads)


def _parts(pixels: int, channels: int, outputs: int, threads: int) -> tuple[int, int]:
    """Blocks of pixels, and groups of panels.

    Threads with pixels of their own find what they wrote in their own cache, and prefetch nothing that others write (where the
    hardware prefetches lines that another thread writes, a convolution takes 15 % longer); but each reads all weights, and has to
    multiply them with enough pixels for the next ones to arrive.
    """
    panels = panel_count(outputs)
    if pixels < (LEAST_PIXELS if channels * outputs <= FEW_WEIGHTS else MORE_PIXELS) * threads:
        return 1, min(panels, jobs_per_block(1, threads))
    most = max(LEAST_PIXELS, min(BLOCK_PIXELS, BLOCK_BYTES // (_FLOAT_BYTES * channels)))
    blocks = threads * -(-pixels // (threads * most))
    return blocks, min(panels, jobs_per_block(blocks, threads))
