"""Arguments of reductions."""

from __future__ import annotations

from typing import ClassVar

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, accesses
from ort_sdk_cpu.jit.extents.sizes import FLOAT

__all__ = ["MODULE", "Reduce"]

MODULE = "reduction.reduce"


class Reduce(TaskArguments):
    """A reduction of two axes of five, in any layout: the other three are kept. All strides are in bytes."""

    x: Pointer
    """float32."""
    out: Pointer
    """float32."""
    kept_0: int
    """Sizes of the axes that are kept."""
    kept_1: int
    kept_2: int
    x_kept_stride_0: int
    """Strides of these in x."""
    x_kept_stride_1: int
    x_kept_stride_2: int
    out_stride_0: int
    out_stride_1: int
    out_stride_2: int
    reduced_0: int
    """Sizes of the axes that are reduced."""
    reduced_1: int
    x_reduced_stride_0: int
    """Strides of these in x."""
    x_reduced_stride_1: int
    factor: float
    """Of each element: -1 makes of a maximum a minimum."""
    divisor: float
    """Of each result: the number of elements for means."""
    has_root: int
    """Whether the result is the square root of that."""

    is_of_rows: ClassVar[bool] = True
    """Whether x is contiguous along ``reduced_1``; else x and out along ``kept_2``. The task reads no stride of these."""

    def extents(self) -> Extents:
        """What is read and written."""
        kept, reduced = (self.kept_0, self.kept_1, self.kept_2), (self.reduced_0, self.reduced_1)
        strides = [
            *(self.x_kept_stride_0, self.x_kept_stride_1, self.x_kept_stride_2 if self.is_of_rows else FLOAT),
            *(self.x_reduced_stride_0, FLOAT if self.is_of_rows else self.x_reduced_stride_1),
        ]
        out_strides = (self.out_stride_0, self.out_stride_1, self.out_stride_2 if self.is_of_rows else FLOAT)
        yield accesses(self.x, (*kept, *reduced), strides, FLOAT)
        yield accesses(self.out, kept, out_strides, FLOAT, is_written=True)


class ReduceRows(Reduce, module=MODULE, tasks=("max_rows", "prod_rows", "sum_rows", "sum_square_rows")):
    """Elements of the last axis that is reduced are contiguous in x."""


class ReduceColumns(Reduce, module=MODULE, tasks=("max_columns", "prod_columns", "sum_columns", "sum_square_columns")):
    """Elements of the last axis that is kept are contiguous in x and out."""

    is_of_rows = False
