"""GEMMs too small for NumPy to be much slower, by the tasks that programs use: results are the same with and without one."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.kernel.activation import Activation
from ort_sdk_cpu.kernel.bindable import DirectBindableKernel
from ort_sdk_cpu.kernel.task_writer import MIN_ELEMENTS, is_worth_a_task
from ort_sdk_cpu.kernel.writer import MakeWriter
from ort_sdk_cpu.memory.workspace import Workspace

from .constant_b import RowGemm
from .plan import GemmFunction, epilogue_words, task_of
from .select import SHORTEST_DOT, BLayout, GemmAlgorithm, GemmProblem

__all__ = ["SmallGemm", "SmallGemmKernel"]


class SmallGemm:
    """``activation(alpha * A B + C)`` of float32, where its task is at hand. For any number of threads at once.

    Args:
        workspace: the workspace.
        transposed: whether B is (N, K).
        alpha: factor of the product.
        activation: what follows.
    """

    def __init__(self, workspace: Workspace, *, transposed: bool, alpha: float, activation: Activation) -> None:
        self._transposed, self._epilogue = transposed, epilogue_words(alpha, activation)
        self._function = functools.cache(
            lambda k, n, trans_b: GemmFunction(BLayout(k, n, trans_b), workspace, alpha=alpha, activation=activation)
        )
        self.algorithm: GemmAlgorithm | None = None
        """Of the last call."""

    def row_gemm(self, weight: HostArray, bias: HostArray | None, beta: float = 0.0) -> RowGemm | None:
        """The GEMM with constants as a task of any number of rows; None where they are not contiguous, or no row.

        Args:
            weight: the second operand.
            bias: added to each row.
            beta: factor of rows that are added, without an activation.
        """
        n, k = weight.shape if self._transposed else weight.shape[::-1]
        is_row = bias is None or bias.shape in {(n,), (1, n)}
        is_fit = weight.dtype == np.float32 and weight.flags.c_contiguous and is_row
        if not is_fit or (self._transposed and k < SHORTEST_DOT) or (beta and self._epilogue[0]):
            return None
        vector = None if bias is None else np.ascontiguousarray(bias.reshape(-1))
        return RowGemm(BLayout(k, n, self._transposed), weight, vector, self._epilogue, beta)

    def __call__(self, a: HostArray, b: HostArray, c: HostArray | None = None) -> Any:
        """The result in a new array; ``NotImplemented`` for a larger one, for batches, and for C that is no row."""
        if b.ndim != 2 or a.ndim < 2:
            return NotImplemented
        n, k = b.shape if self._transposed else (b.shape[1], b.shape[0])
        *outer, depth = a.shape
        rows = math.prod(outer)
        work = rows * n * k
        if depth != k or not 0 < work < MIN_ELEMENTS or not (c is None or c.shape in {(n,), (1, n)}):
            return NotImplemented
        is_copied = self._transposed and k < SHORTEST_DOT
        trans_b = self._transposed and not is_copied
        if not _is_at_hand(rows, k, n, trans_b):
            return NotImplemented
        out = np.empty((*outer, n), np.float32)
        right = np.ascontiguousarray(b.T if is_copied else b)
        bias = None if c is None else np.ascontiguousarray(c)
        function = self._function(k, n, trans_b)
        function(rows, np.ascontiguousarray(a), right, bias, out)
        self.algorithm = function.algorithm
        return out


class SmallGemmKernel(DirectBindableKernel):
    """A kernel whose small GEMMs are tasks in any run.

    Args:
        kernel: what is known of the node.
        make_writer: makes the writers of programs.
        gemm: the small ones.
    """

    def __init__(self, kernel: Any, make_writer: MakeWriter, gemm: SmallGemm) -> None:
        super().__init__(kernel, make_writer, gemm)
        self._gemm, self._programs = gemm, make_writer

    @property
    def algorithm(self) -> str | None:
        """Of the last small GEMM, or of the last program that was bound."""
        found = self._gemm.algorithm
        return getattr(self._programs, "algorithm", None) if found is None else found.value


# By numbers: to make a problem and select its algorithm takes as long as a small GEMM.
@functools.lru_cache(maxsize=1024)
def _is_at_hand(m: int, k: int, n: int, trans_b: bool) -> bool:
    task = task_of(GemmProblem(m, k, n, trans_b))
    return is_worth_a_task(1, task.module, task.name)
