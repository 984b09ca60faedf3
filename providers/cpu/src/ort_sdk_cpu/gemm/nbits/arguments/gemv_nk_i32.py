"""Arguments of GEMV of MatMulNBits over an NK weight with activations as 32-bit fixed point, in four int8 limbs."""

from __future__ import annotations

from ort_sdk_cpu.jit.extents.declaration import Extents, accesses, reads
from ort_sdk_cpu.jit.extents.sizes import FLOAT

from .gemv_nk import GemvNK
from .matmul_nbits import STRIP_BYTES, declare_tasks

__all__ = ["LIMBS", "LINES", "MODULE", "GemvNKInt32"]

MODULE = "gemm.nbits.gemv_nk_i32"
LIMBS, LINES = 4, 6
"""Lines of a row of activations: those of its limbs, and two for where sums of products start."""


class GemvNKInt32(GemvNK):
    """``x`` is of ``quantize_limbs``, with ``x_stride`` bytes from line to line."""

    def activation_extents(self) -> Extents:
        """Limbs with their scales, and activations as they are."""
        yield self.per_block(self.x_sums, self.m, more=1)
        yield reads(self.activations, self.m * self.k * FLOAT)
        line = self.spans * STRIP_BYTES * self.planes
        row = max((LIMBS - 1) * self.x_stride + line, LIMBS * self.x_stride + self.spans * 2 * STRIP_BYTES)
        yield accesses(self.x, (self.m,), (LINES * self.x_stride,), row)
        yield self.per_block(self.x_scales, self.m)


declare_tasks(GemvNKInt32, MODULE, "gemv_nk_i32")
