"""Arguments of QuantizeLinear, DequantizeLinear, and of the requantization of int32 sums."""

from __future__ import annotations

from typing import ClassVar

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, reads_if_given, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT

__all__ = ["MODULE", "Dequantize", "DequantizePerAxis", "Quantize", "QuantizePerAxis", "Requantize"]

MODULE = "quantized.linear"


class Quantize(TaskArguments, module=MODULE, tasks=("quantize_8",)):
    """QuantizeLinear with one scale, to 8 bits."""

    itemsize: ClassVar = 1
    """Bytes of a quantized element."""
    x: Pointer
    """float32 (count)."""
    out: Pointer
    """uint8 or int8 (count)."""
    count: int
    zero_point: float
    scale: float
    lowest: float
    """Of the type of ``out``."""
    highest: float

    def extents(self) -> Extents:
        """What is read and written."""
        return reads(self.x, self.count * FLOAT), writes(self.out, self.count * self.itemsize)


class _Quantize16(Quantize, module=MODULE, tasks=("quantize_16",)):
    itemsize = 2


class Dequantize(TaskArguments, module=MODULE, tasks=("dequantize_8",)):
    """DequantizeLinear with one scale, of 8 bits."""

    itemsize: ClassVar = 1
    """Bytes of a quantized element."""
    x: Pointer
    """uint8 or int8 (count)."""
    out: Pointer
    """float32 (count)."""
    count: int
    sign: int
    """The sign bit for signed elements, else 0: exclusive or with it makes them unsigned, and larger by as much."""
    zero_point: float
    """Of unsigned elements."""
    scale: float

    def extents(self) -> Extents:
        """What is read and written."""
        return reads(self.x, self.count * self.itemsize), writes(self.out, self.count * FLOAT)


class _Dequantize16(Dequantize, module=MODULE, tasks=("dequantize_16",)):
    itemsize = 2


class _PerAxis(TaskArguments):
    itemsize: ClassVar = 1
    """Bytes of a quantized element."""
    x: Pointer
    """(outer, size, inner)."""
    out: Pointer
    """(outer, size, inner)."""
    scales: Pointer
    """float32 (size)."""
    zero_points: Pointer
    """(size), of the quantized type; 0 for none."""
    outer: int
    size: int
    """Of the axis that scales run along."""
    inner: int
    sign: int
    """As for ``Dequantize``."""

    def _extents(self, read: int, written: int) -> Extents:
        count, along = self.outer * self.size * self.inner, self.size if self.outer * self.inner > 0 else 0
        yield reads(self.x, count * read)
        yield writes(self.out, count * written)
        yield reads(self.scales, along * FLOAT)
        yield reads_if_given(self.zero_points, along * self.itemsize)


class QuantizePerAxis(_PerAxis, module=MODULE, tasks=("quantize_per_axis_8",)):
    """QuantizeLinear per axis, from float32 to 8 bits."""

    lowest: float
    highest: float

    def extents(self) -> Extents:
        """What is read and written."""
        yield from self._extents(FLOAT, self.itemsize)


class _QuantizePerAxis16(QuantizePerAxis, module=MODULE, tasks=("quantize_per_axis_16",)):
    itemsize = 2


class DequantizePerAxis(_PerAxis, module=MODULE, tasks=("dequantize_per_axis_8",)):
    """DequantizeLinear per axis, from 8 bits to float32."""

    def extents(self) -> Extents:
        """What is read and written."""
        yield from self._extents(self.itemsize, FLOAT)


class _DequantizePerAxis16(DequantizePerAxis, module=MODULE, tasks=("dequantize_per_axis_16",)):
    itemsize = 2


class _DequantizePerAxis32(DequantizePerAxis, module=MODULE, tasks=("dequantize_per_axis_32",)):
    itemsize = 4


class Requantize(TaskArguments, module=MODULE, tasks=("requantize",)):
    """8-bit integers of int32 sums."""

    sums: Pointer
    """int32 (rows, columns)."""
    out: Pointer
    """uint8 or int8 (rows, columns)."""
    scales: Pointer
    """float32 (columns): of the sums divided by that of the result."""
    bias: Pointer
    """int32 (columns), added to sums; 0 for none."""
    rows: int
    columns: int
    zero_point: float
    lowest: float
    """Of the type of ``out``."""
    highest: float

    def extents(self) -> Extents:
        """What is read and written."""
        yield reads(self.sums, self.rows * self.columns * FLOAT)
        yield writes(self.out, self.rows * self.columns)
        yield reads(self.scales, self.columns * FLOAT if self.rows > 0 else 0)
        yield reads_if_given(self.bias, self.columns * FLOAT)
