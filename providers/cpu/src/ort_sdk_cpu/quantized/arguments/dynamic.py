"""Arguments of DynamicQuantizeLinear."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, VECTOR

__all__ = ["MODULE", "DynamicQuantize", "DynamicQuantizeByRanges", "Ranges"]

MODULE = "quantized.dynamic"


class DynamicQuantize(TaskArguments, module=MODULE, tasks=("dynamic_quantize",)):
    """DynamicQuantizeLinear by one thread."""

    x: Pointer
    """float32 (count)."""
    out: Pointer
    """uint8 (count)."""
    scale: Pointer
    """float32 (1), written."""
    zero_point: Pointer
    """uint8 (1), written."""
    count: int

    def extents(self) -> Extents:
        """What is read and written."""
        yield reads(self.x, self.count * FLOAT)
        yield writes(self.out, self.count)
        yield writes(self.scale, FLOAT)
        yield writes(self.zero_point, 1)


class Ranges(TaskArguments, module=MODULE, tasks=("ranges",)):
    """The first step of several threads: the range of each span of x."""

    x: Pointer
    """float32 (count)."""
    ranges: Pointer
    """float32 (spans, 2, 16), written: minima and maxima, a vector each."""
    count: int
    spans: int

    def extents(self) -> Extents:
        """What is read and written."""
        return reads(self.x, self.count * FLOAT), writes(self.ranges, self.spans * 2 * VECTOR)


class DynamicQuantizeByRanges(TaskArguments, module=MODULE, tasks=("dynamic_quantize_by_ranges",)):
    """The second step."""

    x: Pointer
    """float32 (count)."""
    out: Pointer
    """uint8 (count)."""
    scale: Pointer
    """float32 (1), written."""
    zero_point: Pointer
    """uint8 (1), written."""
    ranges: Pointer
    """As ``Ranges`` writes them."""
    count: int
    spans: int

    def extents(self) -> Extents:
        """What is read and written."""
        yield reads(self.x, self.count * FLOAT)
        yield writes(self.out, self.count)
        yield writes(self.scale, FLOAT)
        yield writes(self.zero_point, 1)
        yield reads(self.ranges, self.spans * 2 * VECTOR)
