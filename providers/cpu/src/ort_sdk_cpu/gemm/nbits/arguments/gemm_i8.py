"""Arguments of GEMM of MatMulNBits with panels of uint8 and activations of int8."""

from __future__ import annotations

from ort_sdk_cpu.jit.extents.declaration import Extents, accesses
from ort_sdk_cpu.jit.extents.sizes import round_up

from .gemm import PANEL_VECTORS_BYTES, GemmPanels
from .matmul_nbits import STRIP_BYTES, declare_tasks, spans_of

__all__ = ["MODULE", "SLACK_BYTES", "GemmKNInt8", "GemmNKInt8"]

MODULE = "gemm.nbits.gemm_i8"
SLACK_BYTES = 64 * 128
"""Bytes behind a pair of a panel that may be written, too: whole vectors are."""


class GemmNKInt8(GemmPanels):
    """``x``, ``x_scales`` and ``x_sums`` are of ``quantize_blocks``, of rows of whole tiles."""

    tile_rows = 2

    @property
    def panel_bytes(self) -> int:
        """Codes of a chunk as bytes, four along K to a lane."""
        return round_up(self.chunk * self.lanes) * PANEL_VECTORS_BYTES * self.planes

    @property
    def x_planes(self) -> int:
        """Planes of activations: their order along K is that of codes in bytes."""
        return self.planes

    def activation_extents(self) -> Extents:
        """Blocks of int8, each with its scale and sum."""
        rows, planes = round_up(self.m, self.tile_rows), self.x_planes
        yield accesses(self.x, (rows,), (self.x_stride,), spans_of(self.k, self.block_size, planes) * STRIP_BYTES * planes)
        yield self.per_block(self.x_scales, rows)
        yield self.per_block(self.x_sums, rows)


class GemmKNInt8(GemmNKInt8):
    """The same; activations are in order along K."""

    is_kn = True

    @property
    def panel_bytes(self) -> int:
        """Codes of a chunk as bytes, four along K to a lane, and slack between pairs."""
        pair = self.chunk * self.block_size * PANEL_VECTORS_BYTES // 4
        return (self.pairs - 1) * (pair + SLACK_BYTES) + pair

    @property
    def x_planes(self) -> int:
        """One."""
        return 1


declare_tasks(GemmNKInt8, MODULE, "gemm_nk_i8")
declare_tasks(GemmKNInt8, MODULE, "gemm_kn_i8")
