"""3x3 convolutions by Winograd's minimal filtering F(2x2, 3x3): how a problem is cut into jobs, and weights are packed.

Lavin and Gray 2016; ``conv.compiled.winograd`` has the transforms, the stages and the layout of packed weights. F(4x4, 3x3) would
save more multiplications (4x in place of 2.25x), but its transforms have factors up to 8, which cost accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.kernel.work_stealing import jobs_per_block
from ort_sdk_cpu.memory.workspace import aligned_bytes
from ort_sdk_cpu.platform import libraries

from .arguments.direct import POINTED_LATER
from .arguments.winograd import MODULE, Winograd, WinogradWeights
from .base import Variant
from .direct import DirectConvKernel, Positions, TaskPlan
from .epilogue import ConvEpilogue
from .packing import panel_count, panel_width
from .problem import ConvAlgorithm

__all__ = ["WinogradKernel"]

# A block's transformed tiles stay in a core's cache while all panels are multiplied with them; a panel is read once for a block.
TILES_AT_ONCE = 48
"""Most tiles of a block: 16 points of 256 channels are 768 KiB."""
# A GEMM of fewer rows does not fill the register tiles: then all threads transform the same tiles, and share output channels.
LEAST_TILES = 16
"""Fewest tiles for each thread that are cut into blocks."""
_TAPS, _POINTS, _ALIGNMENT, _FLOAT_BYTES = 9, 16, 64, 4
_POSITIONS = Positions.of(Winograd)
_FLOAT = np.dtype(np.float32)


class WinogradKernel(DirectConvKernel):
    """activation(Conv(X, W, B) + Z) for constant weights of 3 x 3 and stride 1. Arguments as for ``ConvKernel``."""

    own_algorithm = ConvAlgorithm.WINOGRAD
    identity = "winograd-2x2"
    positions = _POSITIONS

    def pack_weight(self, weight: HostArray) -> HostArray:
        """Weights (M, C, 3, 3) transformed, in panels: uint8."""
        return _pack(weight, *self.constant_shape[:2])

    def unpack_weight(self, packed: HostArray) -> HostArray:
        """The inverse, but for rounding."""
        return _unpack(packed, *self.constant_shape[:2])

    def plan(self, variant: Variant, out_shape: tuple[int, ...]) -> TaskPlan | None:
        """The task for inputs of some shapes."""
        sizes = _Sizes(variant.x_shape, out_shape, libraries.thread_count())
        begins = self.geometry.padding(variant.x_shape, variant.weight_shape).begins
        return sizes.plan(begins, self.epilogue())


class _Sizes(NamedTuple):
    """One convolution, and how its work is cut into jobs."""

    x_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    threads: int

    @property
    def tiles(self) -> tuple[int, int]:
        """Rows and columns of tiles."""
        height, width = self.out_shape[2:]
        return -(-height // 2), -(-width // 2)

    @property
    def cuts(self) -> tuple[int, int]:
        """Blocks of tiles, and parts of the output channels."""
        tiles, panels = self.x_shape[0] * math.prod(self.tiles), panel_count(self.out_shape[1])
        blocks = -(-tiles // (TILES_AT_ONCE * self.threads)) * self.threads if tiles >= LEAST_TILES * self.threads else 1
        return blocks, min(panels, jobs_per_block(blocks, self.threads))

    @property
    def work_bytes(self) -> int:
        """Workspace of a thread: transformed tiles, and their products with a panel."""
        at_once = -(-self.x_shape[0] * math.prod(self.tiles) // self.cuts[0])
        inputs = _POINTS * (at_once * (-(-self.x_shape[1] // 16) + 1) * _ALIGNMENT + _ALIGNMENT)
        return inputs + at_once * (_POINTS * panel_width() * _FLOAT_BYTES + _ALIGNMENT)

    def plan(self, begins: Sequence[int], epilogue: ConvEpilogue) -> TaskPlan:
        """The task, but for the arrays of a call."""
        (samples, channels, height, width), (_, outputs, rows, columns) = self.x_shape, self.out_shape
        (tile_rows, tile_columns), (blocks, channel_parts), (top, left) = self.tiles, self.cuts, begins
        work_bytes = self.work_bytes
        arguments = Winograd(
            **POINTED_LATER,
            samples=samples,
            height=height,
            width=width,
            channels=channels,
            outputs=outputs,
            rows=rows,
            columns=columns,
            top=top,
            left=left,
            tile_rows=tile_rows,
            tile_columns=tile_columns,
            blocks=blocks,
            channel_parts=channel_parts,
            work_bytes=work_bytes,
            epilogue=epilogue.arguments,
        )
        return TaskPlan(MODULE, "winograd", arguments, _POSITIONS, self.threads, work_bytes * self.threads)


def _pack(weight: HostArray, outputs: int, channels: int) -> HostArray:
    """Weights (M, C, 3, 3), given as any contiguous array, as [panels][16 points][C][channels of a panel]: uint8."""
    threads = libraries.thread_count()
    result = aligned_bytes(panel_count(outputs) * _POINTS * channels * panel_width() * _FLOAT_BYTES)
    work = aligned_bytes(threads * _TAPS * 1024)
    TaskCall(MODULE, "winograd_weights", WinogradWeights(weight, result, work, outputs, channels), threads).run()
    return result


def _unpack(packed: HostArray, outputs: int, channels: int) -> HostArray:
    """The inverse, but for rounding: (M, C, 3, 3)."""
    # G has the taps at both ends as they are, and (g0 + g2 +- g1) / 2 between them, whose difference is the middle tap.
    panels = packed.view(_FLOAT).reshape(-1, 4, 4, channels, panel_width())
    ends, middle = panels[:, ::3], panels[:, 1:2] - panels[:, 2:3]
    rows = np.concatenate((ends[:, :1], middle, ends[:, 1:]), axis=1)
    taps = np.stack((rows[:, :, 0], rows[:, :, 1] - rows[:, :, 2], rows[:, :, 3]), axis=2)
    return np.ascontiguousarray(taps.transpose(0, 4, 3, 1, 2).reshape(-1, channels, 3, 3)[:outputs])
