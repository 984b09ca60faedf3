"""Arguments of GEMM of float32: C = f(alpha * A B + beta * D) for a batch of matrices, of which B is read in place."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extent, Extents, accesses, uses_workspace
from ort_sdk_cpu.jit.extents.sizes import FLOAT, LANES, VECTOR, round_up

from .blocking import (
    A_COPY_ROW_BYTES,
    NC_PANELS,
    NC_TRANSPOSED,
    PANEL_BYTES,
    SPLIT_K_KC,
    TRANSPOSE_BYTES,
    WIDEN_BYTES,
    mr,
    nr,
    unpacked_rows,
)

__all__ = ["MODULE", "Gemm", "GemmKN", "GemmKNFloat16", "GemmNK", "GemmNKFloat16", "GemmSizes", "GemvNK", "SplitK"]

MODULE = "gemm.sgemm"
_FLOAT16 = 2


class GemmSizes:
    """What workspace depends on: M, N, K, and MC, the rows multiplied at a time."""

    __slots__ = ("k", "m", "mc", "n")

    def __init__(self, m: int, n: int, k: int, mc: int) -> None:
        self.m, self.n, self.k, self.mc = m, n, k, mc


class Gemm(TaskArguments):
    """Arguments of all GEMM tasks. Leading dimensions (``ld*``) and batch strides (``*_stride``) are in bytes."""

    a: Pointer
    """float32 (batch, M, K)."""
    b: Pointer
    """(batch, K, N) or (batch, N, K), float32 or float16, at any address; or panels."""
    c: Pointer
    """float32 (batch, M, N)."""
    d: Pointer
    """float32 (M, N), or (N) if ``ldd`` is 0; address 0 for none."""
    workspace: Pointer
    m: int
    n: int
    k: int
    lda: int
    ldb: int
    """From row to row of B, or from panel to panel."""
    ldc: int
    a_stride: int
    b_stride: int
    c_stride: int
    ldd: int
    batch: int
    activation: int
    """``ActivationKind``."""
    alpha: float
    beta: float
    slope: float
    """First parameter of the activation."""
    m_parts: int
    """Parts of each matrix's rows; with ``n_parts`` of its columns they are the jobs that threads share."""
    n_parts: int
    workspace_stride: int
    """Bytes of workspace from thread to thread."""
    mc: int
    """Rows of A multiplied at a time."""

    @staticmethod
    def workspace_of(_sizes: GemmSizes) -> int:
        """Bytes of workspace that one thread uses."""
        raise NotImplementedError

    def b_extent(self) -> Extent:
        """What is read of B."""
        raise NotImplementedError

    def extents(self, *, threads: int) -> Extents:
        """What is read, written and used as workspace."""
        yield accesses(self.a, (self.batch, self.m, self.k), (self.a_stride, self.lda, FLOAT), FLOAT)
        yield self.b_extent()
        yield accesses(self.c, (self.batch, self.m, self.n), (self.c_stride, self.ldc, FLOAT), FLOAT, is_written=True)
        yield accesses(self.d, (self.m, self.n), (self.ldd, FLOAT), FLOAT, may_be_none=True)
        used = self.workspace_of(GemmSizes(self.m, self.n, self.k, self.mc))
        if used and self.m * self.n * self.k * self.batch:
            yield uses_workspace(self.workspace, (threads - 1) * self.workspace_stride + used)

    def _matrix(self, rows: int, columns: int, itemsize: int) -> Extent:
        return accesses(self.b, (self.batch, rows, columns), (self.b_stride, self.ldb, itemsize), itemsize)


class GemmKN(Gemm, module=MODULE, tasks=("gemm_kn", "gemv_kn")):
    """B is float32 (K, N)."""

    @staticmethod
    def workspace_of(sizes: GemmSizes) -> int:
        """Panels of B, results of the last columns, which fill no panel, and rows of A."""
        panels = 1 if sizes.mc <= unpacked_rows() else NC_PANELS
        return panels * PANEL_BYTES + round_up(sizes.mc, nr()) * (nr() * FLOAT + A_COPY_ROW_BYTES)

    def b_extent(self) -> Extent:
        """What is read of B."""
        return self._matrix(self.k, self.n, FLOAT)


class SplitK(GemmKN, module=MODULE, tasks=("split_k",)):
    """B is float32 (K, N), of which each thread reads some rows; one matrix."""

    @staticmethod
    def workspace_of(sizes: GemmSizes) -> int:
        """Partial sums of all results, and a panel of the last columns."""
        return (sizes.m * (round_up(sizes.n, nr()) + LANES) + SPLIT_K_KC * nr()) * FLOAT


class GemmNK(Gemm, module=MODULE, tasks=("gemm_nk",)):
    """B is float32 (N, K)."""

    @staticmethod
    def workspace_of(sizes: GemmSizes) -> int:
        """Panels of A, transposed results, and rows of B."""
        rows = round_up(sizes.mc, nr())
        results = NC_TRANSPOSED * (rows * FLOAT + VECTOR)
        return TRANSPOSE_BYTES + mr() * A_COPY_ROW_BYTES + results + rows * sizes.k * FLOAT

    def b_extent(self) -> Extent:
        """What is read of B."""
        return self._matrix(self.n, self.k, FLOAT)


class GemvNK(GemmNK, module=MODULE, tasks=("gemv_nk",)):
    """The same; A has few rows."""

    @staticmethod
    def workspace_of(_sizes: GemmSizes) -> int:
        """None."""
        return 0


class GemmKNFloat16(Gemm, module=MODULE, tasks=("gemm_kn_f16",)):
    """B is float16 (K, N)."""

    @staticmethod
    def workspace_of(sizes: GemmSizes) -> int:
        """A panel of float32, results of the last columns, and rows of A."""
        return WIDEN_BYTES + PANEL_BYTES + round_up(sizes.mc, nr()) * (nr() * FLOAT + A_COPY_ROW_BYTES)

    def b_extent(self) -> Extent:
        """What is read of B."""
        return self._matrix(self.k, self.n, _FLOAT16)


class GemmNKFloat16(GemmKNFloat16, module=MODULE, tasks=("gemm_nk_f16",)):
    """B is float16 (N, K)."""

    def b_extent(self) -> Extent:
        """What is read of B."""
        return self._matrix(self.n, self.k, _FLOAT16)
