"""Arguments of GEMM of float32 whose B was packed into panels, and of the packing."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extent, Extents, accesses, uses_workspace
from ort_sdk_cpu.jit.extents.sizes import FLOAT, LANES, VECTOR, panel_bytes, panel_count, round_up

from .blocking import KC, TRANSPOSE_BYTES, mr, nr
from .sgemm import Gemm, GemmSizes

__all__ = ["MODULE", "GemmPacked", "PackKN", "PackNK"]

MODULE = "gemm.sgemm_packed"


class GemmPacked(Gemm, module=MODULE, tasks=("gemm_packed",)):
    """B is panels (N / NR, K, NR) of float32, ``ldb`` bytes each; columns behind the last one are zeros."""

    @staticmethod
    def workspace_of(sizes: GemmSizes) -> int:
        """Results of the last columns, and A packed: KC columns of all rows, or all columns of one register tile."""
        rows = round_up(sizes.mc, nr())
        floats = max(rows * (nr() + KC), min(rows, mr()) * (nr() + sizes.k))
        # A transpose writes 16 lanes of each step of a tile, of which fewer may be rows.
        return TRANSPOSE_BYTES + floats * FLOAT + VECTOR

    def b_extent(self) -> Extent:
        """What is read of B."""
        return accesses(self.b, (self.batch, panel_count(self.n)), (self.b_stride, self.ldb), self.k * panel_bytes())


class _Pack(TaskArguments):
    b: Pointer
    """float32 (K, N), or (N, K), at any address."""
    panels: Pointer
    """float32 (N / NR, K, NR)."""
    k: int
    n: int
    ldb: int
    """Bytes from row to row of B."""
    panel_stride: int
    """Bytes from panel to panel."""
    workspace: Pointer


class PackKN(_Pack, module=MODULE, tasks=("pack_kn",)):
    """Packs B (K, N); uses no workspace."""

    def extents(self) -> Extents:
        """What is read and written."""
        yield accesses(self.b, (self.k, self.n), (self.ldb, FLOAT), FLOAT)
        yield accesses(self.panels, (panel_count(self.n),), (self.panel_stride,), self.k * panel_bytes(), is_written=True)


class PackNK(_Pack, module=MODULE, tasks=("pack_nk",)):
    """Packs the transpose of B (N, K); columns behind the last one are left as they are."""

    def extents(self, *, threads: int) -> Extents:
        """What is read, written and used as workspace, ``TRANSPOSE_BYTES`` of each thread."""
        last = (round_up(self.n) - LANES) % nr() * FLOAT + VECTOR
        strides = (self.panel_stride, panel_bytes())
        yield accesses(self.b, (self.n, self.k), (self.ldb, FLOAT), FLOAT)
        yield accesses(self.panels, (panel_count(self.n), self.k), strides, last, is_written=True)
        yield uses_workspace(self.workspace, threads * TRANSPOSE_BYTES)
