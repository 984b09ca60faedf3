"""How convolutions of 8-bit tensors are cut for compiled tasks: where windows lie, what multiplies them, blocks, threads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ort_sdk_cpu.conv.geometry import Padding
from ort_sdk_cpu.platform.cpu_features import has_matrix_unit

from .packing import PANEL

__all__ = [
    "LEAST_MATRIX_WORK",
    "LEAST_OF_TILE",
    "MATRIX_SPARE_BYTES",
    "MODULE",
    "MOST_SPREAD",
    "UNIT_COLUMNS",
    "Cut",
    "Image",
    "flip_of",
]

MODULE, _MATRIX_MODULE = "integer_convolution", "matrix_convolution"
"""Where the tasks are: that multiply by vectors, and by the matrix unit."""
MATRIX_SPARE_BYTES = 64 + 4 * PANEL + 64 + 32 * (64 + 4 * PANEL)
"""Working memory of a thread for the matrix unit, as in ``compiled.conv_amx``."""
_TILE_ROWS, _TILE_STEPS = 16, 16
UNIT_COLUMNS = 1, 16
"""In how many columns units of windows lie side by side: for vectors, and for the matrix unit."""
LEAST_OF_TILE, LEAST_MATRIX_WORK = 96, 1 << 21
"""Rows times steps of a tile, of 256, and multiplications and additions from which on the matrix unit is faster."""
_BLOCK_BYTES, _MATRIX_BLOCK_BYTES = 1 << 18, 1 << 19
"""Of the input that is multiplied with all weights before the next, by vectors and by the matrix unit, which has to get them from
memory as often as that: it stays in the second cache."""
MOST_SPREAD = 4
"""Channels of row-major data up to which they are put side by side, four bytes for each pixel."""
_FOUR_BYTES, _FLIPPED = 0x01010101, 0x80808080
_INT8 = np.dtype(np.int8)
_IN_PLACE, _FRAMED, _SPREAD = range(3)


def flip_of(dtype: np.dtype[Any]) -> int:
    """What to turn over in four numbers to have them as uint8."""
    return _FLIPPED if dtype == _INT8 else 0


class Image(NamedTuple):
    """One convolution over pictures; signals are pictures of one line."""

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
        is_spread: bool,
    ) -> Image:
        """Pointwise convolutions of all pixels have one line of them; where pixels are put side by side, one for each sample."""
        samples, channels, *size = x_shape
        steps = (padding.strides, padding.dilations, padding.begins, padding.ends)
        kernel, out_size = tuple(weight_shape[2:]), tuple(out_shape[2:])
        if math.prod(kernel) == 1 and {*padding.strides} == {1} and not any((*padding.begins, *padding.ends)):
            apart = samples if is_spread else 1
            line = (1, samples * math.prod(size) // apart)
            return cls(apart, line, channels, line, weight_shape[0], (1, 1), (1, 1), (1, 1), (0, 0), (0, 0))
        missing = (1,) * (2 - len(size))
        pairs = [(*missing, *values) for values in (size, out_size, kernel, *steps[:2])]
        borders = [(*(0 for _ in missing), *values) for values in steps[2:]]
        return cls(samples, pairs[0], channels, pairs[1], weight_shape[0], *pairs[2:], *borders)

    @property
    def has_gaps(self) -> bool:
        """Whether the taps along a line are apart, so that each is a line of the window."""
        return self.dilations[1] > 1 and self.kernel[1] > 1

    def kind(self, *, is_spread: bool) -> int:
        """From where windows are read."""
        if is_spread:
            return _SPREAD
        is_whole = self.channels * (1 if self.has_gaps else self.kernel[1]) % 4 == 0
        return _FRAMED if any((*self.begins, *self.ends)) or not is_whole else _IN_PLACE


class Cut(NamedTuple):
    """How a convolution is described to the task."""

    image: Image
    kind: int
    panel: int
    """Columns of one."""
    threads: int
    chunk: int = 0
    """Steps that the matrix unit takes at a time; 0 if vectors multiply."""

    def on_matrix_unit(self) -> Cut:
        """The same by the matrix unit, where there is one that gains."""
        image, steps = self.image, self.window[2]
        work = 2 * math.prod((image.samples, *image.out_size, image.outputs, image.channels, *image.kernel))
        if not has_matrix_unit() or work < LEAST_MATRIX_WORK:
            return self
        chunk = max(count for count in range(1, _TILE_STEPS + 1) if steps % count == 0)
        rows = image.out_size[1] / -(-image.out_size[1] // _TILE_ROWS)
        return self._replace(chunk=chunk) if rows * chunk >= LEAST_OF_TILE else self

    @property
    def module(self) -> str:
        """Where the tasks are."""
        return _MATRIX_MODULE if self.chunk else MODULE

    @property
    def pixel(self) -> int:
        return MOST_SPREAD if self.kind == _SPREAD else self.image.channels

    @property
    def extent(self) -> int:
        """Lines from a window's first to its last."""
        return self.image.dilations[0] * (self.image.kernel[0] - 1) + 1

    @property
    def pitch(self) -> int:
        """Bytes of a line."""
        image = self.image
        if self.kind == _IN_PLACE:
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
        """Windows."""
        image, most = self.image, _MATRIX_BLOCK_BYTES if self.chunk else _BLOCK_BYTES
        if self.kind == _IN_PLACE:
            return max(PANEL, most // (image.strides[0] * image.strides[1] * self.pixel))
        lines = (most // self.pitch - self.extent) // image.strides[0] + 1
        return max(1, min(lines, image.out_size[0])) * image.out_size[1]

    @property
    def work_bytes(self) -> int:
        """Of a thread: for the frame of a block, which may begin within a line, and for sums."""
        spare = MATRIX_SPARE_BYTES if self.chunk else 0
        if self.kind == _IN_PLACE:
            return spare
        lines = self.block // self.image.out_size[1] * self.image.strides[0] + self.extent
        return -(-(lines * self.pitch + 64) // 64) * 64 + spare

    @property
    def shares_columns(self) -> bool:
        """Whether each thread takes a part of the columns: where there are more weights than input."""
        image = self.image
        weights = math.prod((*image.kernel, image.channels, image.outputs))
        panels = -(-image.outputs // self.panel)
        is_even = panels % self.threads == 0 or panels >= 8 * self.threads
        return is_even and weights > image.samples * math.prod(image.size) * image.channels

    @property
    def unit_columns(self) -> int:
        """In how many columns the units of a window lie side by side."""
        return UNIT_COLUMNS[1 if self.chunk else 0]

    def shift_of(self, dtype: np.dtype[Any]) -> int:
        """What is added to an X of a type where it is multiplied, and so to its zero point."""
        return 128 if dtype == _INT8 and not self.chunk else 0

    def arguments(self, x_zero_point: int, dtype: np.dtype[Any]) -> tuple[int, ...]:
        """Of the task for an X of a type, from the sizes to its flip."""
        image = self.image
        sizes = (image.samples, *image.size, image.channels, *image.out_size, image.outputs)
        steps = (*self.window, image.strides[1] * self.pixel, image.strides[0], *image.begins, self.extent)
        fill = (x_zero_point & 255) * _FOUR_BYTES
        cut = (self.block, int(self.shares_columns), self.work_bytes)
        return (*sizes, *steps, self.pitch, self.kind, fill, *cut, self.chunk or flip_of(dtype))
