"""Arguments of GEMV of MatMulNBits over a KN weight."""

from __future__ import annotations

from typing import ClassVar

from ort_sdk_cpu.jit.extents.declaration import Extents, accesses, reads, require_at_most, uses_workspace
from ort_sdk_cpu.jit.extents.sizes import FLOAT, VECTOR, round_up

from .matmul_nbits import STRIP_BYTES, WORKSPACE_START, MatMulNBits, declare_tasks

__all__ = ["MODULE", "GemvKN", "GemvKNFloat32", "GemvKNInt8"]

MODULE = "gemm.nbits.gemv_kn"
_STRIP_SUMS = 256
"""Bytes of float32 sums of a strip's columns, for each of its planes."""


class GemvKN(MatMulNBits):
    """Sums of rows of a KN weight of any width, each scaled by an activation. ``table`` has the values of codes as stored."""

    sums: ClassVar[int] = 0
    """For each column and row of activations: of all blocks, of one, and what was lost to rounding."""

    def activation_extents(self) -> Extents:
        """Activations, in all forms that are read."""
        raise NotImplementedError

    def extents(self) -> Extents:
        """What is read, written and used as workspace."""
        require_at_most("bytes less than those of a strip", STRIP_BYTES - self.codes_stride, 0)
        columns = max(self.codes_stride * self.planes, self.n)
        row = max(self.codes_stride, -(-self.n * self.bits // 8))
        yield accesses(self.codes, (self.k,), (self.codes_stride,), row)
        yield accesses(self.scales, (self.blocks,), (self.scales_stride,), columns * FLOAT)
        yield accesses(self.zero_points, (self.blocks,), (self.zero_points_stride,), row, may_be_none=True)
        yield reads(self.table, VECTOR)
        yield from self.results(self.k_parts, columns)
        strips = -(-(round_up(self.codes_stride, STRIP_BYTES) // STRIP_BYTES) // self.n_parts)
        used = WORKSPACE_START + self.sums * self.m * strips * _STRIP_SUMS * self.planes
        yield uses_workspace(self.workspace, (self.jobs - 1) * self.workspace_stride + used)
        yield from self.activation_extents()


class GemvKNFloat32(GemvKN):
    """``x`` is the activations."""

    sums = 3

    def activation_extents(self) -> Extents:
        """Activations as they are, and sums of blocks."""
        yield accesses(self.x, (self.m,), (self.x_stride,), self.k * FLOAT)
        yield self.per_block(self.x_sums, self.m, more=1)
        yield reads(self.activations, self.m * self.k * FLOAT)


class GemvKNInt8(GemvKN):
    """``x`` is of ``quantize_blocks``, with one plane."""

    sums = 2

    def activation_extents(self) -> Extents:
        """Blocks of int8, each with its scale and sum."""
        yield accesses(self.x, (self.m,), (self.x_stride,), round_up(self.k, 4))
        yield self.per_block(self.x_sums, self.m)
        yield self.per_block(self.x_scales, self.m)


declare_tasks(GemvKNFloat32, MODULE, "gemv_kn_f32")
declare_tasks(GemvKNInt8, MODULE, "gemv_kn_i8")
