"""Tiling of convolutions of 8-bit tensors: where windows are read, what multiplies them, blocks, threads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ort_sdk_cpu.conv.geometry import Padding

from .arguments.amx import MODULE as AMX
from .arguments.vnni import MODULE as VNNI
from .arguments.windows import Windows
from .packing import PANEL

__all__ = [
    "AMX_WORKSPACE_BYTES",
    "MOST_INTERLEAVED",
    "ONES_COLUMNS",
    "TILE_ROWS",
    "TILE_STEPS",
    "Image",
    "Tiling",
    "is_interleaved",
    "sign_of",
]

AMX_WORKSPACE_BYTES = 64 + 4 * PANEL + 64 + 32 * (64 + 4 * PANEL)
"""Workspace of a thread for AMX, as in ``compiled.amx``."""
TILE_ROWS, TILE_STEPS = 16, 16
"""Of AMX: rows, and steps of four elements along K."""
ONES_COLUMNS = 1, 16
"""Columns of the panel of ones that sums windows' elements: for vectors, and for AMX."""
_BLOCK_BYTES, _AMX_BLOCK_BYTES = 1 << 18, 1 << 19
"""Of the input that is multiplied with all weights before the next, by vectors and by AMX, which has to get them from memory as
often as that: it stays in the second cache."""
MOST_INTERLEAVED = 4
"""Channels of NCHW up to which they are interleaved, four bytes for each pixel."""
_FOUR_BYTES, _SIGNS = 0x01010101, 0x80808080
_INT8 = np.dtype(np.int8)
_IN_PLACE, _FRAMED, _INTERLEAVED = range(3)


def sign_of(dtype: np.dtype[Any]) -> int:
    """What makes four elements uint8 by exclusive or."""
    return _SIGNS if dtype == _INT8 else 0


def is_interleaved(x_shape: Sequence[int], *, is_channels_last: bool) -> bool:
    """Whether the task interleaves the channels of X."""
    return len(x_shape) == 4 and 1 < x_shape[1] <= MOST_INTERLEAVED and not is_channels_last


class Image(NamedTuple):
    """One convolution of 2-D images; 1-D input is an image of one line."""

    samples: int
    size: tuple[int, int]
    channels: int
    out_size: tuple[int, int]
    outputs: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    begins: tuple[int, int]
    ends: tuple[int, int]

    @classmethod
    def of(
        cls,
        x_shape: Sequence[int],
        weight_shape: Sequence[int],
        out_shape: Sequence[int],
        padding: Padding,
        *,
        is_interleaved: bool,
    ) -> Image:
        """Pointwise convolutions have one line of all pixels, or one per sample where channels are interleaved."""
        samples, channels, *size = x_shape
        steps = (padding.strides, padding.dilations, padding.begins, padding.ends)
        kernel, out_size = tuple(weight_shape[2:]), tuple(out_shape[2:])
        if math.prod(kernel) == 1 and {*padding.strides} == {1} and not any((*padding.begins, *padding.ends)):
            lines = samples if is_interleaved else 1
            line = (1, samples * math.prod(size) // lines)
            return cls(lines, line, channels, line, weight_shape[0], (1, 1), (1, 1), (1, 1), (0, 0), (0, 0))
        missing = (1,) * (2 - len(size))
        pairs = [(*missing, *values) for values in (size, out_size, kernel, *steps[:2])]
        borders = [(*(0 for _ in missing), *values) for values in steps[2:]]
        return cls(samples, pairs[0], channels, pairs[1], weight_shape[0], *pairs[2:], *borders)

    @property
    def has_gaps(self) -> bool:
        """Whether the taps along a line are apart, so that each is a line of the window."""
        return self.dilations[1] > 1 and self.kernel[1] > 1

    def source(self, *, is_interleaved: bool) -> int:
        """From where windows are read."""
        if is_interleaved:
            return _INTERLEAVED
        is_whole = self.channels * (1 if self.has_gaps else self.kernel[1]) % 4 == 0
        return _FRAMED if any((*self.begins, *self.ends)) or not is_whole else _IN_PLACE


class Tiling(NamedTuple):
    """How a task computes a convolution."""

    image: Image
    source: int
    """See ``Image.source``."""
    panel: int
    """Columns of one."""
    threads: int
    chunk: int = 0
    """Steps that AMX takes at a time; 0 if vectors multiply."""

    @property
    def is_interleaved(self) -> bool:
        """Whether channels of NCHW are interleaved."""
        return self.source == _INTERLEAVED

    @property
    def module(self) -> str:
        """Where the tasks are."""
        return AMX if self.chunk else VNNI

    @property
    def pixel(self) -> int:
        """Bytes of one."""
        return MOST_INTERLEAVED if self.is_interleaved else self.image.channels

    @property
    def extent(self) -> int:
        """Lines from a window's first to the one behind its last."""
        return self.image.dilations[0] * (self.image.kernel[0] - 1) + 1

    @property
    def pitch(self) -> int:
        """Bytes of a line."""
        image = self.image
        if self.source == _IN_PLACE:
            return image.size[1] * self.pixel
        reach = (image.out_size[1] - 1) * image.strides[1] + image.dilations[1] * (image.kernel[1] - 1) + 1
        return max(reach, image.begins[1] + image.size[1]) * self.pixel

    @property
    def window(self) -> tuple[int, int, int]:
        """Lines, bytes from one to the next, steps in each."""
        image = self.image
        if image.has_gaps:
            return image.kernel[1], image.dilations[1] * self.pixel, -(-self.pixel // 4)
        return image.kernel[0], image.dilations[0] * self.pitch, -(-image.kernel[1] * self.pixel // 4)

    @property
    def block(self) -> int:
        """Windows of one, of whole rows where there is a frame."""
        image, most = self.image, _AMX_BLOCK_BYTES if self.chunk else _BLOCK_BYTES
        if self.source == _IN_PLACE:
            return max(PANEL, most // (image.strides[0] * image.strides[1] * self.pixel))
        lines = (most // self.pitch - self.extent) // image.strides[0] + 1
        return max(1, min(lines, image.out_size[0])) * image.out_size[1]

    @property
    def workspace_bytes(self) -> int:
        """Of each thread: for the frame of a block, which may begin within a line, and for sums."""
        spare = AMX_WORKSPACE_BYTES if self.chunk else 0
        if self.source == _IN_PLACE:
            return spare
        lines = self.block // self.image.out_size[1] * self.image.strides[0] + self.extent
        return -(-(lines * self.pitch + 64) // 64) * 64 + spare

    @property
    def shares_columns(self) -> bool:
        """Whether threads share the panels: where there are more weights than input, which each thread then reads alone."""
        image = self.image
        weights = math.prod((*image.kernel, image.channels, image.outputs))
        panels = -(-image.outputs // self.panel)
        is_even = panels % self.threads == 0 or panels >= 8 * self.threads
        return is_even and weights > image.samples * math.prod(image.size) * image.channels

    @property
    def ones_columns(self) -> int:
        """Columns of the panel of ones."""
        return ONES_COLUMNS[1 if self.chunk else 0]

    def shift_of(self, dtype: np.dtype[Any]) -> int:
        """What is added to an X of a type where it is multiplied, and so to its zero point."""
        return 128 if dtype == _INT8 and not self.chunk else 0

    def windows(self, x_zero_point: int, dtype: np.dtype[Any]) -> Windows:
        """Arguments of the task for an X of a type, with addresses to be set."""
        image, (lines, line_bytes, steps) = self.image, self.window
        return Windows(
            x=0,
            weights=0,
            out=0,
            columns=0,
            workspace=0,
            samples=image.samples,
            height=image.size[0],
            width=image.size[1],
            channels=image.channels,
            out_height=image.out_size[0],
            out_width=image.out_size[1],
            out_channels=image.outputs,
            lines=lines,
            line_bytes=line_bytes,
            steps=steps,
            window_bytes=image.strides[1] * self.pixel,
            stride=image.strides[0],
            top=image.begins[0],
            left=image.begins[1],
            extent=self.extent,
            pitch=self.pitch,
            source=self.source,
            fill=(x_zero_point & 255) * _FOUR_BYTES,
            block=self.block,
            shares_columns=int(self.shares_columns),
            workspace_bytes=self.workspace_bytes,
            sign=0 if self.chunk else sign_of(dtype),
            chunk_steps=self.chunk,
        )
