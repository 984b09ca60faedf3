"""Convolutions of 3 by 3 taps by Winograd's minimal filtering: fewer products than oneDNN's direct ones, and shorter sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.kernel.work_stealing import groups_for
from ort_sdk_cpu.memory.workspace import aligned_bytes
from ort_sdk_cpu.platform import libraries

from .arguments.direct import POINTED_LATER
from .arguments.winograd import MODULE, Winograd, WinogradWeights
from .base import Variant
from .direct import DirectConvKernel, Positions, TaskPlan
from .epilogue import ConvEpilogue
from .packing import panel_width, panels_of
from .select import ConvAlgorithm

__all__ = ["WinogradKernel"]

TILES_AT_ONCE = 48
"""Tiles whose transforms stay in a core's cache."""
LEAST_TILES = 16
"""Tiles per thread below which threads share tiles and take their own output channels."""
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
        return _transformed(weight, *self.constant_shape[:2])

    def unpack_weight(self, packed: HostArray) -> HostArray:
        """The inverse, but for rounding."""
        return _original(packed, *self.constant_shape[:2])

    def plan(self, variant: Variant, out_shape: tuple[int, ...]) -> TaskPlan | None:
        """The task for inputs of some shapes."""
        sizes = _Sizes(variant.x_shape, out_shape, libraries.thread_count())
        begins = self.geometry.padding(variant.x_shape, variant.weight_shape).begins
        return sizes.plan(begins, self.epilogue())


class _Sizes(NamedTuple):
    """Of one convolution, and how its work is cut."""

    x_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    threads: int

    @property
    def tiles(self) -> tuple[int, int]:
        """Rows and columns of tiles."""
        height, width = self.out_shape[2:]
        return -(-height // 2), -(-width // 2)

    @property
    def parts(self) -> tuple[int, int]:
        """Blocks of tiles, and parts of the output channels."""
        tiles, panels = self.x_shape[0] * math.prod(self.tiles), panels_of(self.out_shape[1])
        blocks = -(-tiles // (TILES_AT_ONCE * self.threads)) * self.threads if tiles >= LEAST_TILES * self.threads else 1
        return blocks, min(panels, groups_for(blocks, self.threads))

    @property
    def work_bytes(self) -> int:
        """Working memory of a thread: transformed tiles and their products with a panel."""
        at_once = -(-self.x_shape[0] * math.prod(self.tiles) // self.parts[0])
        inputs = _POINTS * (at_once * (-(-self.x_shape[1] // 16) + 1) * _ALIGNMENT + _ALIGNMENT)
        return inputs + at_once * (_POINTS * panel_width() * _FLOAT_BYTES + _ALIGNMENT)

    def plan(self, begins: Sequence[int], epilogue: ConvEpilogue) -> TaskPlan:
        """The task, but for the arrays of a call."""
        (samples, channels, height, width), (_, outputs, rows, columns) = self.x_shape, self.out_shape
        (tile_rows, tile_columns), (blocks, channel_parts), (top, left) = self.tiles, self.parts, begins
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
            work_bytes=self.work_bytes,
            epilogue=epilogue.arguments,
        )
        return TaskPlan(MODULE, "winograd", arguments, _POSITIONS, self.threads, self.work_bytes * self.threads)


def _transformed(weight: HostArray, outputs: int, channels: int) -> HostArray:
    """Weights (M, C, 3, 3) of float32, given as any contiguous array, as the task reads them: uint8."""
    threads = libraries.thread_count()
    result = aligned_bytes(panels_of(outputs) * _POINTS * channels * panel_width() * _FLOAT_BYTES)
    work = aligned_bytes(threads * _TAPS * 1024)
    TaskCall(MODULE, "winograd_weights", WinogradWeights(weight, result, work, outputs, channels), threads).run()
    return result


def _original(transformed: HostArray, outputs: int, channels: int) -> HostArray:
    """The inverse, but for rounding: (M, C, 3, 3)."""
    panels = transformed.view(_FLOAT).reshape(-1, 4, 4, channels, panel_width())
    ends, middle = panels[:, ::3], panels[:, 1:2] - panels[:, 2:3]
    rows = np.concatenate((ends[:, :1], middle, ends[:, 1:]), axis=1)
    taps = np.stack((rows[:, :, 0], rows[:, :, 1] - rows[:, :, 2], rows[:, :, 3]), axis=2)
    return np.ascontiguousarray(taps.transpose(0, 4, 3, 1, 2).reshape(-1, channels, 3, 3)[:outputs])
