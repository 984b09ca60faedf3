"""Arguments of GEMV of MatMulNBits over an NK weight with activations of float32."""

from __future__ import annotations

from ort_sdk_cpu.jit.extents.declaration import Extents, accesses, reads
from ort_sdk_cpu.jit.extents.sizes import FLOAT, VECTOR

from .gemv_nk import GemvNK
from .matmul_nbits import STRIP_BYTES, declare_tasks

__all__ = ["MODULE", "GemvNKFloat32"]

MODULE = "gemm.nbits.gemv_nk_f32"


class GemvNKFloat32(GemvNK):
    """``x`` is of ``deinterleave_f32``."""

    def activation_extents(self) -> Extents:
        """Activations in order of their position in 4 bytes, and as they are."""
        yield self.per_block(self.x_sums, self.m, more=1)
        yield reads(self.activations, self.m * self.k * FLOAT)
        yield reads(self.table, VECTOR)
        yield accesses(self.x, (self.m,), (self.x_stride,), self.spans * STRIP_BYTES * self.planes * FLOAT)


declare_tasks(GemvNKFloat32, MODULE, "gemv_nk_f32")
