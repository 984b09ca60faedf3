"""What GEMM tasks of MatMulNBits touch, which unpack panels of the weight and multiply rows of activations with each."""

from __future__ import annotations

from typing import ClassVar

from ort_sdk_cpu.jit.extents.declaration import Extents, accesses, require_at_most, uses_workspace
from ort_sdk_cpu.jit.extents.sizes import FLOAT, VECTOR, round_up

from .matmul_nbits import STRIP_BYTES, WORKSPACE_START, MatMulNBits

__all__ = ["PANEL_VECTORS_BYTES", "GemmPanels"]

PANEL_VECTORS_BYTES = 2 * VECTOR
"""Of a panel, for each step along K: two vectors of 16 columns."""


class GemmPanels(MatMulNBits):
    """Workspace of a job: ``WORKSPACE_START`` bytes, sums of a group of strips, scales and zero points of a chunk, its panel."""

    is_kn: ClassVar[bool] = False
    tile_rows: ClassVar[int] = 0
    """Rows of the smallest register tile: sums have room for whole ones."""

    @property
    def pairs(self) -> int:
        """Pairs of vectors of columns in a strip."""
        return 2 * self.planes if self.is_kn else 1

    @property
    def panel_bytes(self) -> int:
        """Of a panel of a strip, and what is worked with behind it."""
        raise NotImplementedError

    def activation_extents(self) -> Extents:
        """Activations in the form that panels are multiplied with."""
        raise NotImplementedError

    def _weight_extents(self) -> Extents:
        if not self.is_kn:
            yield accesses(self.codes, (self.n,), (self.codes_stride,), self.blocks * self.lanes * 4)
            yield accesses(self.scales, (self.n,), (self.scales_stride,), self.blocks * FLOAT)
            yield from self.nk_zero_points()
            return
        row = -(-self.n * self.bits // 8)
        require_at_most("bytes less than those of a strip", STRIP_BYTES - row, 0)
        yield accesses(self.codes, (self.k,), (self.codes_stride,), row)
        yield accesses(self.scales, (self.blocks,), (self.scales_stride,), self.n * FLOAT)
        if self.zero_points_kind:
            yield accesses(self.zero_points, (self.blocks,), (self.zero_points_stride,), row)

    def extents(self) -> Extents:
        """What is read, written and used as workspace."""
        require_at_most("rows of sums", round_up(min(self.m, self.mc), self.tile_rows), self.mc)
        yield from self._weight_extents()
        yield from self.results(self.k_parts, self.n)
        yield from self.activation_extents()
        vectors = self.pairs * PANEL_VECTORS_BYTES
        used = WORKSPACE_START + self.group * self.mc * vectors + 2 * self.chunk * vectors + self.panel_bytes
        yield uses_workspace(self.workspace, (self.jobs - 1) * self.workspace_stride + used)
