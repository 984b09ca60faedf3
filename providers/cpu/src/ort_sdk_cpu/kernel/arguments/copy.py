"""Arguments of copies between layouts of up to five axes."""

from __future__ import annotations

from typing import ClassVar

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, accesses

__all__ = ["MODULE", "Axes", "StridedCopy"]

MODULE = "kernel.copy"


class Axes(TaskArguments):
    """A number for each axis: of sizes in elements, of strides in bytes."""

    first: int
    second: int
    third: int
    rows: int
    columns: int
    """The axis along which a task goes innermost."""


class StridedCopy(TaskArguments):
    """Elements that two layouts of the same shape have, copied from one to the other.

    What tasks know of the last two strides, they do not read: it is fixed by the subclass of each.
    """

    target: Pointer
    source: Pointer
    sizes: Axes
    target_strides: Axes
    source_strides: Axes

    itemsize: ClassVar[int] = 4
    fixed_target_strides: ClassVar[tuple[int | None, int | None]] = (None, None)
    """Of rows and columns, in elements; None for those that the task reads."""
    fixed_source_strides: ClassVar[tuple[int | None, int | None]] = (None, None)
    channels: ClassVar[int] = 0
    """Number of rows that the task is made for; 0 for any."""

    def extents(self) -> Extents:
        """What is read and written."""
        sizes = list(self.sizes.words)
        sizes[-2] = self.channels or sizes[-2]
        target = _strides(self.target_strides, self.fixed_target_strides, self.itemsize)
        source = _strides(self.source_strides, self.fixed_source_strides, self.itemsize)
        yield accesses(self.target, sizes, target, self.itemsize, is_written=True)
        yield accesses(self.source, sizes, source, self.itemsize)


def _strides(given: Axes, fixed: tuple[int | None, int | None], itemsize: int) -> list[int]:
    last = [own if stride is None else stride * itemsize for own, stride in zip(given.words[-2:], fixed, strict=True)]
    return [*given.words[:-2], *last]


class CopyElements(StridedCopy, module=MODULE, tasks=("copy_elements_x32",)):
    """Any strides."""


class CopyRows(StridedCopy, module=MODULE, tasks=("copy_rows_x32",)):
    """Columns are contiguous in both."""

    fixed_target_strides = fixed_source_strides = (None, 1)


class CopyByteRows(CopyRows, module=MODULE, tasks=("copy_rows_x8",)):
    """The same of bytes."""

    itemsize = 1


class Transpose(StridedCopy, module=MODULE, tasks=("transpose_x32",)):
    """Columns are contiguous in the target, rows in the source."""

    fixed_target_strides, fixed_source_strides = (None, 1), (1, None)


class TransposePairs(Transpose, module=MODULE, tasks=("transpose_x16",)):
    """The same of elements of two bytes."""

    itemsize = 2


class TransposeBytes(Transpose, module=MODULE, tasks=("transpose_x8",)):
    """The same of bytes."""

    itemsize = 1


class DeinterleaveThree(StridedCopy, module=MODULE, tasks=("deinterleave_3_x32",)):
    """Columns are contiguous in the target; in the source, each is three rows that are contiguous."""

    fixed_target_strides, fixed_source_strides, channels = (None, 1), (1, 3), 3


class DeinterleaveFour(StridedCopy, module=MODULE, tasks=("deinterleave_4_x32",)):
    """The same of four."""

    fixed_target_strides, fixed_source_strides, channels = (None, 1), (1, 4), 4


class DeinterleaveThreeBytes(DeinterleaveThree, module=MODULE, tasks=("deinterleave_3_x8",)):
    """The same of three bytes."""

    itemsize = 1


class DeinterleaveFourBytes(DeinterleaveFour, module=MODULE, tasks=("deinterleave_4_x8",)):
    """The same of four bytes."""

    itemsize = 1
