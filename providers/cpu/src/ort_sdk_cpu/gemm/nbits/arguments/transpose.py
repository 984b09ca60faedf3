"""Arguments of the tasks that bring DequantizeLinear's weight and scales [K, N] into MatMulNBits' layout [N, ...]."""

from __future__ import annotations

from typing import ClassVar

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, require_at_most, uses_workspace, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT

from .matmul_nbits import BITS, STRIP_BYTES

__all__ = ["MODULE", "WORKSPACE_BYTES", "TransposeCodes", "TransposeScales"]

MODULE = "gemm.nbits.transpose"
WORKSPACE_BYTES = 16 << 10
"""Of a thread of ``transpose_codes``."""
_MERGED_BYTES = 4 << 10
"""Those that are used for each code of a byte."""


class TransposeCodes(TaskArguments):
    """Codes; strides are in bytes."""

    source: Pointer
    """(K, stride)."""
    target: Pointer
    """(N, width)."""
    rows: int
    """K."""
    stride: int
    """From row to row of the source, at least 64."""
    width: int
    """From row to row of the target, a multiple of 4."""
    sign_flip: int
    """Bits of four bytes to flip."""
    workspace: Pointer
    """``WORKSPACE_BYTES`` of each thread."""

    bits: ClassVar[int] = 0

    def extents(self, *, threads: int) -> Extents:
        """What is read, written and used as workspace."""
        require_at_most("bytes less than those of a strip", STRIP_BYTES - self.stride, 0)
        planes = 8 // self.bits
        yield reads(self.source, self.rows * self.stride)
        yield writes(self.target, self.stride * planes * self.width)
        yield uses_workspace(self.workspace, (threads - 1) * WORKSPACE_BYTES + planes * _MERGED_BYTES)


for _bits in BITS:
    type(f"_TransposeCodes{_bits}", (TransposeCodes,), {"bits": _bits}, module=MODULE, tasks=(f"transpose_codes_{_bits}",))


class TransposeScales(TaskArguments, module=MODULE, tasks=("transpose_scales",)):
    """float32 scales."""

    source: Pointer
    """(rows, columns)."""
    target: Pointer
    """(columns, rows)."""
    rows: int
    columns: int

    def extents(self) -> Extents:
        """What is read and written."""
        nbytes = self.rows * self.columns * FLOAT
        return reads(self.source, nbytes), writes(self.target, nbytes)
