"""Arguments of GEMM of MatMulNBits with panels of float32."""

from __future__ import annotations

from ort_sdk_cpu.jit.extents.declaration import Extents, accesses, reads
from ort_sdk_cpu.jit.extents.sizes import FLOAT, VECTOR

from .gemm import PANEL_VECTORS_BYTES, GemmPanels
from .matmul_nbits import declare_tasks

__all__ = ["MODULE", "PACKED_ROWS", "GemmKNFloat32", "GemmNKFloat32"]

MODULE = "gemm.nbits.gemm_f32"
PACKED_ROWS = 12
"""Rows of activations of a tile of ``x``."""


class GemmNKFloat32(GemmPanels):
    """``x`` is of ``pack_rows_f32``: tiles [K, 12], ``x_stride`` bytes each."""

    tile_rows = 4

    @property
    def panel_bytes(self) -> int:
        """float32 of a chunk."""
        return self.pairs * self.chunk * self.block_size * PANEL_VECTORS_BYTES

    def activation_extents(self) -> Extents:
        """Packed rows."""
        yield reads(self.table, VECTOR)
        yield accesses(self.x, (-(-self.m // PACKED_ROWS),), (self.x_stride,), self.k * PACKED_ROWS * FLOAT)


class GemmKNFloat32(GemmNKFloat32):
    """The same."""

    is_kn = True


declare_tasks(GemmNKFloat32, MODULE, "gemm_nk_f32")
declare_tasks(GemmKNFloat32, MODULE, "gemm_kn_f32")
