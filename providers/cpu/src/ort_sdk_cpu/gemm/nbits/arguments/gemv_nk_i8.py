"""Arguments of GEMV of MatMulNBits over an NK weight with activations of int8."""

from __future__ import annotations

from ort_sdk_cpu.jit.extents.declaration import Extents, accesses, reads
from ort_sdk_cpu.jit.extents.sizes import FLOAT, VECTOR

from .gemv_nk import GemvNK
from .matmul_nbits import FLOAT16_SCALES_START, STRIP_BYTES, declare_tasks

__all__ = ["MODULE", "GemvNKInt8"]

MODULE = "gemm.nbits.gemv_nk_i8"
_FLOAT16 = 2


class GemvNKInt8(GemvNK):
    """``x`` is of ``quantize_lanes``."""

    def scales_extents(self) -> Extents:
        """Scales of float16, if there are any."""
        count = self.n * self.blocks
        if self.float16_scales.is_given:
            yield reads(self.float16_scales, FLOAT16_SCALES_START + count * _FLOAT16)
        else:
            yield reads(self.scales, count * FLOAT)

    def activation_extents(self) -> Extents:
        """Lanes of int8, each with its scale, and sums of blocks."""
        row = self.spans * STRIP_BYTES * self.planes + self.spans * VECTOR
        yield accesses(self.x, (self.m,), (self.x_stride,), row)
        yield self.per_block(self.x_sums, self.m)


declare_tasks(GemvNKInt8, MODULE, "gemv_nk_i8")
