"""GEMMs of a batch of matrices A, whose rows may overlap, with one B (N, K): for any sizes."""

from __future__ import annotations

import functools

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.jit.task import task_function
from ort_sdk_cpu.kernel.activation import IDENTITY, Activation
from ort_sdk_cpu.memory.workspace import Workspace
from ort_sdk_cpu.platform import libraries

from .arguments.sgemm import Gemm
from .plan import WORKSPACE, Partition, epilogue_words, partition_gemm
from .select import GemmProblem, threads_for_batch

__all__ = ["OverlappingRows", "OverlappingRowsGemm"]

_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class OverlappingRows:
    """A batch of matrices: all numbers but the first two are in bytes."""

    count: int
    rows: int
    row_bytes: int
    """From row to row of an operand; less than a row where they overlap."""
    step_bytes: int
    """From matrix to matrix of it."""
    out_step_bytes: int
    """From matrix to matrix of the result."""


class OverlappingRowsGemm:
    """``activation(A B' + bias)`` for each matrix A of a batch. For any number of threads at once.

    Args:
        weight: B, contiguous.
        workspace: the workspace.
        activation: what follows.
    """

    def __init__(self, weight: HostArray, workspace: Workspace, *, activation: Activation = IDENTITY) -> None:
        self._weight, self._workspace = weight, workspace
        self._epilogue = epilogue_words(1.0, activation)

    def __call__(self, batch: OverlappingRows, a: HostArray, bias: HostArray | None, out: HostArray) -> None:
        """Write the results.

        Args:
            batch: the matrices A.
            a: an array that begins with the first operand.
            bias: (columns,), or None.
            out: one that begins with the first result, whose rows have no gaps between them.
        """
        n, k = self._weight.shape
        parts = _planned(GemmProblem(batch.rows, k, n, trans_b=True), batch.count, libraries.thread_count())
        sizes = (batch.rows, n, k, batch.row_bytes, k * _FLOAT_BYTES, n * _FLOAT_BYTES)
        strides = (batch.step_bytes, 0, batch.out_step_bytes, 0, batch.count)
        workspace = self._workspace.buffer(WORKSPACE, parts.workspace_bytes)
        words = (a, self._weight, out, bias, workspace, *sizes, *strides, *self._epilogue, *parts.words)
        task_function(parts.task.module, parts.task.name)(parts.threads, Gemm.of_words(words))


@functools.lru_cache(maxsize=1024)
def _planned(problem: GemmProblem, count: int, most_threads: int) -> Partition:
    """Threads share the batch, or the rows of each matrix where there are few of them."""
    threads = threads_for_batch(problem, count, most_threads)
    m_parts = 1 if count >= threads else min(threads, problem.m)
    return partition_gemm(problem, threads, count=count, parts=(m_parts, 1))
