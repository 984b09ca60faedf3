"""What GEMV tasks of MatMulNBits over an NK weight touch, whatever form activations are in."""

from __future__ import annotations

from ort_sdk_cpu.jit.extents.declaration import Extents, reads
from ort_sdk_cpu.jit.extents.sizes import VECTOR

from .matmul_nbits import MatMulNBits

__all__ = ["GemvNK"]


class GemvNK(MatMulNBits):
    """Dot products of few rows of activations with rows of an NK weight."""

    def scales_extents(self) -> Extents:
        """Scales that are read."""
        yield reads(self.scales, self.n * self.blocks * 4)

    def activation_extents(self) -> Extents:
        """Activations, in all forms that are read."""
        raise NotImplementedError

    def extents(self) -> Extents:
        """What is read and written."""
        yield reads(self.codes, self.n * self.blocks * self.lanes * 4)
        yield from self.scales_extents()
        yield from self.nk_zero_points()
        yield reads(self.lane_blocks, min(self.lanes, self.spans) * VECTOR)
        yield from self.results(1, self.n)
        yield from self.activation_extents()
