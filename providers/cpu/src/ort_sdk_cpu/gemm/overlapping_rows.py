"""Products of a stack of matrices, whose rows may overlap, with one matrix: for any sizes."""

from __future__ import annotations

import functools

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.jit.task import task_function
from ort_sdk_cpu.kernel.activation import IDENTITY, Activation
from ort_sdk_cpu.memory.workspace import Scratch
from ort_sdk_cpu.platform import libraries

from .plan import KINDS, MODULE, PRODUCTS_PER_THREAD, WORKING_MEMORY, GemmProblem, epilogue_words

__all__ = ["OverlappingRows", "OverlappingRowsGemm"]

_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class OverlappingRows:
    """How matrices lie: all numbers but the first two are of bytes."""

    count: int
    rows: int
    row_bytes: int
    """From row to row of an operand; less than a row where they overlap."""
    step_bytes: int
    """From matrix to matrix of it."""
    out_step_bytes: int
    """From matrix to matrix of the result."""


class OverlappingRowsGemm:
    """``activation(A B' + bias)`` for each matrix A of a stack. For any number of threads at once.

    Args:
        weight: B, (columns, inner), contiguous.
        scratch: working memory.
        activation: what follows.
    """

    def __init__(self, weight: HostArray, scratch: Scratch, *, activation: Activation = IDENTITY) -> None:
        self._weight, self._scratch = weight, scratch
        self._epilogue = epilogue_words(1.0, activation)

    def __call__(self, stack: OverlappingRows, a: HostArray, bias: HostArray | None, out: HostArray) -> None:
        """Write the products.

        Args:
            stack: how the matrices lie.
            a: an array that begins with the first operand.
            bias: (columns,), or None.
            out: one that begins with the first result, whose rows have no gaps between them.
        """
        columns, inner = self._weight.shape
        name, threads, rest, work_bytes = _planned(stack.count, stack.rows, inner, columns, libraries.thread_count())
        sizes = (stack.rows, columns, inner, stack.row_bytes, inner * _FLOAT_BYTES, columns * _FLOAT_BYTES)
        steps = (stack.step_bytes, 0, stack.out_step_bytes, 0, stack.count)
        work = self._scratch.room(WORKING_MEMORY, work_bytes)
        task_function(MODULE, name, KINDS)(threads, a, self._weight, out, bias, work, *sizes, *steps, *self._epilogue, *rest)


@functools.lru_cache(maxsize=1024)
def _planned(count: int, rows: int, inner: int, columns: int, most_threads: int) -> tuple[str, int, tuple[int, ...], int]:
    """(task, threads, its last arguments, bytes of working memory): parts are matrices, or of the rows where they are few."""
    sizes = GemmProblem(rows, inner, columns, trans_b=True)
    threads = max(1, min(most_threads, count * rows * inner * columns // PRODUCTS_PER_THREAD))
    row_parts = 1 if count >= threads else min(threads, rows)
    work = -(-sizes.work_bytes // 64) * 64
    return sizes.task, threads, (row_parts, 1, work, sizes.rows_at_once), work * threads
