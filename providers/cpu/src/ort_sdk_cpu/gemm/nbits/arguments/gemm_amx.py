"""Arguments of GEMM of MatMulNBits on the processor's matrix unit (AMX), with panels of bfloat16."""

from __future__ import annotations

from typing import ClassVar

from ort_sdk_cpu.jit.extents.declaration import Extents, accesses

from .gemm import GemmPanels
from .matmul_nbits import declare_tasks

__all__ = ["MODULE", "GemmKNBfloat16", "GemmKNBfloat16x3", "GemmNKBfloat16", "GemmNKBfloat16x3"]

MODULE = "gemm.nbits.gemm_amx"
_TILE_ROWS, _TILE_STEPS, _TILE_BYTES, _STAGE_BYTES = 16, 32, 1024, 4096


class GemmNKBfloat16(GemmPanels):
    """``x`` is of ``round_bf16``: tiles of 16 rows and 32 steps along K, ``x_stride`` bytes from 16 rows to the next."""

    tile_rows = _TILE_ROWS
    terms: ClassVar[int] = 1
    """bfloat16 of an activation."""

    @property
    def panel_bytes(self) -> int:
        """Two tiles for each 32 steps of a chunk."""
        return self.pairs * (self.chunk * (self.block_size // _TILE_STEPS)) * 2 * _TILE_BYTES

    def activation_extents(self) -> Extents:
        """Tiles."""
        tiles = self.blocks * (self.block_size // _TILE_STEPS) * self.terms
        yield accesses(self.x, (-(-self.m // _TILE_ROWS),), (self.x_stride,), tiles * _TILE_BYTES)


class GemmKNBfloat16(GemmNKBfloat16):
    """The same."""

    is_kn = True


class GemmNKBfloat16x3(GemmNKBfloat16):
    """``x`` is of ``split_bf16``: three bfloat16 of each activation. Sums of a block are staged behind the panel."""

    terms = 3

    @property
    def panel_bytes(self) -> int:
        """Tiles, and sums of a block."""
        return super().panel_bytes + _STAGE_BYTES


class GemmKNBfloat16x3(GemmNKBfloat16x3):
    """The same."""

    is_kn = True


declare_tasks(GemmNKBfloat16, MODULE, "gemm_nk_bf16")
declare_tasks(GemmKNBfloat16, MODULE, "gemm_kn_bf16")
declare_tasks(GemmNKBfloat16x3, MODULE, "gemm_nk_bf16x3")
declare_tasks(GemmKNBfloat16x3, MODULE, "gemm_kn_bf16x3")
