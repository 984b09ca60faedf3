"""Arguments of Gather, Scatter and their like, of OneHot and of ReverseSequence.

Elements and slices are moved as words of 4 bytes. Indices are int32 or int64; negative ones count from the end of their axis.
What offsets and tables of strides name is checked where they are made: here it is seen that the first of it is there.
"""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, accesses, reads, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, INT64

__all__ = [
    "MODULE",
    "Gather",
    "GatherElements",
    "GatherNd",
    "OffsetElements",
    "OneHot",
    "ReverseSequence",
    "ScatterElements",
    "ScatterElementsAdd",
    "ScatterNd",
    "TakeAlongAxis",
]

MODULE = "movement.gather_scatter"


class Gather(TaskArguments, module=MODULE, tasks=("gather",)):
    """Slices along an axis."""

    failed: int
    """1 where an index is out of range: nothing is read or written for it. 0 before, if several threads do the work."""
    data: Pointer
    """(outer, limit, slice_words)."""
    indices: Pointer
    """(count), ``index_stride`` bytes apart."""
    out: Pointer
    """(outer, count, slice_words)."""
    index_bytes: int
    """Bytes of an index, here and in all others: 4 or 8."""
    limit: int
    """Size of the axis, here and in all others."""
    count: int
    outer: int
    slice_words: int
    index_stride: int
    least: int
    """Smallest index there may be: 0, or ``-limit``."""

    def extents(self) -> Extents:
        """What is read and written."""
        row = self.slice_words * FLOAT
        yield reads(self.data, self.outer * self.limit * row)
        yield accesses(
            self.indices, (self.count if self.outer * self.slice_words > 0 else 0,), (self.index_stride,), self.index_bytes
        )
        yield writes(self.out, self.outer * self.count * row)


class OffsetElements(TaskArguments):
    """Elements at an index along an axis, each from an offset of its own."""

    failed: int
    """1 where an index is out of range: nothing is read or written for it."""
    data: Pointer
    """Where elements are gathered from, or scattered to."""
    indices: Pointer
    """(count)."""
    values: Pointer
    """(count, slice_words): what is gathered, or scattered."""
    index_bytes: int
    limit: int
    count: int
    offsets: Pointer
    """int64 (count): the element that index 0 names."""
    stride: int
    """Elements from an index to the next."""

    def _touched(self, words: int, *, scatters: bool) -> Extents:
        row = words * FLOAT
        yield accesses(self.data, (self.limit,), (self.stride * row,), row, is_written=scatters)
        yield reads(self.indices, self.count * self.index_bytes)
        yield reads(self.values, self.count * row) if scatters else writes(self.values, self.count * row)
        yield reads(self.offsets, self.count * INT64)


class GatherElements(OffsetElements, module=MODULE, tasks=("gather_elements",)):
    """Elements, where the data has more columns than there are indices."""

    slice_words: int

    def extents(self) -> Extents:
        """What is read and written."""
        return self._touched(self.slice_words, scatters=False)


class ScatterElements(OffsetElements, module=MODULE, tasks=("scatter_elements",)):
    """Elements replaced by updates."""

    slice_words: int

    def extents(self) -> Extents:
        """What is read and written."""
        return self._touched(self.slice_words, scatters=True)


class ScatterElementsAdd(OffsetElements, module=MODULE, tasks=("scatter_elements_add",)):
    """float32 updates added to elements, one after the other."""

    def extents(self) -> Extents:
        """What is read and written."""
        return self._touched(1, scatters=True)


class TakeAlongAxis(TaskArguments, module=MODULE, tasks=("take_along_axis",)):
    """GatherElements where each column of the data has as many indices: an element's offset follows from its column."""

    failed: int
    """As for Gather."""
    data: Pointer
    """(outer, limit, inner, slice_words)."""
    indices: Pointer
    """(outer, count, inner)."""
    out: Pointer
    """(outer, count, inner, slice_words)."""
    index_bytes: int
    outer: int
    limit: int
    count: int
    inner: int
    slice_words: int
    """1 or 2."""

    def extents(self) -> Extents:
        """What is read and written."""
        rows, row = self.outer * self.inner, self.slice_words * FLOAT
        yield reads(self.data, rows * self.limit * row)
        yield reads(self.indices, rows * self.count * self.index_bytes)
        yield writes(self.out, rows * self.count * row)


class ScatterNd(TaskArguments, module=MODULE, tasks=("scatter_nd",)):
    """Slices at index tuples replaced by updates, or combined with them as float32."""

    failed: int
    """As for Gather."""
    out: Pointer
    """A copy of the data."""
    indices: Pointer
    """(count, depth)."""
    updates: Pointer
    """(count, slice_words)."""
    index_bytes: int
    depth: int
    count: int
    slice_words: int
    axes: Pointer
    """int64 (depth, 2): for each index of a tuple its axis's size, and its stride in slices."""
    reduction: int
    """0: none; 1: add; 2: mul; 3: max; 4: min."""

    def extents(self) -> Extents:
        """What is read and written."""
        row = self.slice_words * FLOAT
        yield writes(self.out, row)
        yield reads(self.indices, self.count * self.depth * self.index_bytes)
        yield reads(self.updates, self.count * row)
        yield reads(self.axes, self.depth * 2 * INT64)


class GatherNd(TaskArguments, module=MODULE, tasks=("gather_nd",)):
    """Slices at index tuples, of batches that follow each other."""

    failed: int
    """As for Gather."""
    data: Pointer
    """(batches, slices, slice_words)."""
    indices: Pointer
    """(count, depth)."""
    out: Pointer
    """(count, slice_words)."""
    index_bytes: int
    depth: int
    count: int
    slice_words: int
    axes: Pointer
    """As for ScatterND."""
    batch: int
    """Tuples of each batch."""
    slices: int
    """Slices of each batch."""

    def extents(self) -> Extents:
        """What is read and written."""
        row = self.slice_words * FLOAT
        yield reads(self.data, -(-self.count // self.batch) * self.slices * row if self.batch else 0)
        yield reads(self.indices, self.count * self.depth * self.index_bytes)
        yield writes(self.out, self.count * row)
        yield reads(self.axes, self.depth * 2 * INT64)


class OneHot(TaskArguments, module=MODULE, tasks=("one_hot",)):
    """Rows of one value, but at an index of another."""

    indices: Pointer
    """(count)."""
    values: Pointer
    """(2, slice_words): off, on."""
    out: Pointer
    """(count, depth, slice_words)."""
    index_bytes: int
    depth: int
    count: int
    slice_words: int

    def extents(self) -> Extents:
        """What is read and written."""
        yield reads(self.indices, self.count * self.index_bytes)
        yield reads(self.values, 2 * self.slice_words * FLOAT)
        yield writes(self.out, self.count * self.depth * self.slice_words * FLOAT)


class ReverseSequence(TaskArguments, module=MODULE, tasks=("reverse_sequence",)):
    """The first elements of each sequence in reverse order."""

    failed: int
    """1 where a length is out of range; nothing is written for that batch."""
    x: Pointer
    """(times, batches, slice_words), or (batches, times, slice_words)."""
    lengths: Pointer
    """int64 (batches)."""
    out: Pointer
    """As x."""
    times: int
    batches: int
    time_stride: int
    """In rows of words, like the next."""
    batch_stride: int
    slice_words: int

    def extents(self) -> Extents:
        """What is read and written."""
        row, sizes = self.slice_words * FLOAT, (self.times, self.batches)
        strides = (self.time_stride * row, self.batch_stride * row)
        yield accesses(self.x, sizes, strides, row)
        yield accesses(self.out, sizes, strides, row, is_written=True)
        yield reads(self.lengths, self.batches * INT64)
