"""Arguments of LogSoftmax, ReduceLogSumExp, LpNormalization and CumSum."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, INT64

__all__ = ["CumSumFloat", "CumSumInt64", "LogSoftmax", "LogSumExp", "LpNormalization"]

MODULE = "normalization.log_softmax"


class LogSoftmax(TaskArguments, module=MODULE, tasks=("log_softmax",)):
    """LogSoftmax along the last axis."""

    x: Pointer
    """float32 (rows, width)."""
    out: Pointer
    """float32 (rows, width)."""
    rows: int
    width: int

    def extents(self) -> Extents:
        """What is read and written."""
        nbytes = self.rows * self.width * FLOAT
        return reads(self.x, nbytes), writes(self.out, nbytes)


class LogSumExp(TaskArguments, module=MODULE, tasks=("log_sum_exp",)):
    """ReduceLogSumExp along the last axis."""

    x: Pointer
    """float32 (rows, width)."""
    out: Pointer
    """float32 (rows)."""
    rows: int
    width: int

    def extents(self) -> Extents:
        """What is read and written."""
        return reads(self.x, self.rows * self.width * FLOAT), writes(self.out, self.rows * FLOAT)


class LpNormalization(LogSoftmax, module=MODULE, tasks=("lp_normalization",)):
    """Rows divided by their norm, unless that is 0."""

    p: int
    """1 for sums of magnitudes, 2 for lengths."""


class _CumSum(TaskArguments):
    x: Pointer
    """(outer, size, inner); sums run along the second axis."""
    out: Pointer
    """(outer, size, inner)."""
    outer: int
    size: int
    inner: int
    is_exclusive: int
    """Whether an element's sum leaves out itself."""
    is_reversed: int
    """Whether sums run from the end."""

    @property
    def elements(self) -> int:
        """How many there are."""
        return self.outer * self.size * self.inner


class CumSumFloat(_CumSum, module=MODULE, tasks=("cum_sum_f32",)):
    """CumSum of float32."""

    def extents(self) -> Extents:
        """What is read and written."""
        return reads(self.x, self.elements * FLOAT), writes(self.out, self.elements * FLOAT)


class CumSumInt64(_CumSum, module=MODULE, tasks=("cum_sum_i64",)):
    """CumSum of int64."""

    def extents(self) -> Extents:
        """What is read and written."""
        return reads(self.x, self.elements * INT64), writes(self.out, self.elements * INT64)
