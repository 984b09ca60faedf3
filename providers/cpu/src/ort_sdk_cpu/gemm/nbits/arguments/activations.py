"""Arguments of the tasks that bring activations of MatMulNBits into the forms that GEMMs and GEMVs read."""

from __future__ import annotations

from typing import ClassVar

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, accesses, reads, require_at_most, uses_workspace, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, VECTOR, round_up

from .gemv_nk_i32 import LIMBS, LINES
from .matmul_nbits import BITS, STRIP_BYTES, WORKSPACE_START, spans_of

__all__ = ["DEINTERLEAVE_BYTES", "MODULE", "Activations", "AddPartials"]

MODULE = "gemm.nbits.activations"
DEINTERLEAVE_BYTES = 3072
"""Workspace that ``deinterleave_f32`` uses of a thread's ``WORKSPACE_START`` bytes."""
_TILE_ROWS, _TILE_STEPS, _TILE_BYTES = 16, 32, 1024


class Activations(TaskArguments):
    """Rows of float32, and what is made of them; strides are in bytes."""

    x: Pointer
    """float32 (rows, K)."""
    rows: int
    k: int
    block_size: int
    """Elements along K with one scale of the weight."""
    planes: int
    """Codes of a byte of the weight, by whose positions activations are put in order; rows of a tile."""
    target: Pointer
    """What is made."""
    scales: Pointer
    """float32 (rows, blocks)."""
    sums: Pointer
    """float32 (rows, blocks), or (rows, blocks + 1) with the sum of the row."""
    x_stride: int
    """From row to row of ``target``, or from line to line, or from tile to tile."""
    block_stride: int
    """From row to row of scales and sums."""

    @property
    def blocks(self) -> int:
        """Blocks along K."""
        return -(-self.k // self.block_size)

    def order(self) -> int:
        """Planes by whose positions elements are put in order."""
        return self.planes

    @property
    def spans(self) -> int:
        """Pieces of 64 bytes of codes."""
        return spans_of(self.k, self.block_size, self.order())

    @property
    def padded(self) -> int:
        """Elements of a row in whole spans."""
        return self.spans * STRIP_BYTES * self.order()

    def made(self, row_bytes: int, scales: int, sums: int, row_stride: int | None = None) -> Extents:
        """Bytes of each row, scales and sums that are written."""
        rows, stride = self.rows, self.x_stride if row_stride is None else row_stride
        yield reads(self.x, rows * self.k * FLOAT)
        yield accesses(self.target, (rows if row_bytes else 0,), (stride,), row_bytes, is_written=True)
        yield accesses(self.scales, (rows if scales else 0,), (self.block_stride,), scales * FLOAT, is_written=True)
        yield accesses(self.sums, (rows if sums else 0,), (self.block_stride,), sums * FLOAT, is_written=True)


class _QuantizeBlocks(Activations, module=MODULE, tasks=("quantize_blocks",)):
    def extents(self) -> Extents:
        """Rows of int8, scales and sums."""
        return self.made(self.padded, self.blocks, self.blocks)


class _QuantizeLimbs(Activations, module=MODULE, tasks=("quantize_limbs",)):
    def extents(self) -> Extents:
        """Six lines of each row, scales and sums."""
        row = max((LIMBS - 1) * self.x_stride + self.padded, LIMBS * self.x_stride + self.spans * 2 * STRIP_BYTES)
        return self.made(row, self.blocks, self.blocks + 1, LINES * self.x_stride)


class _DeinterleaveFloat32(Activations, module=MODULE, tasks=("deinterleave_f32",)):
    def extents(self, *, threads: int) -> Extents:
        """Rows of float32 and sums; in place of scales there is workspace, ``WORKSPACE_START`` bytes of each thread."""
        yield from self.made(self.padded * FLOAT, 0, self.blocks + 1)
        yield uses_workspace(self.scales, (threads - 1) * WORKSPACE_START + DEINTERLEAVE_BYTES)


class _BlockSums(Activations, module=MODULE, tasks=("block_sums",)):
    def extents(self) -> Extents:
        """Sums."""
        return self.made(0, 0, self.blocks + 1)


class _QuantizeLanes(Activations):
    bits: ClassVar[int] = 0

    def order(self) -> int:
        """Codes of a byte."""
        return 8 // self.bits

    def extents(self) -> Extents:
        """Spans of int8, each with the scales of its lanes, and sums."""
        return self.made(self.spans * VECTOR + self.padded + VECTOR - 16 // self.order(), 0, self.blocks)


class _Bfloat16Tiles(Activations):
    terms: ClassVar[int] = 1

    def extents(self) -> Extents:
        """Tiles of 16 rows and 32 steps along K, of each term."""
        steps = -(-round_up(self.k, self.block_size) // _TILE_STEPS)
        sizes = (-(-self.rows // _TILE_ROWS), min(self.rows, _TILE_ROWS), steps * self.terms)
        yield reads(self.x, self.rows * self.k * FLOAT)
        yield accesses(self.target, sizes, (self.x_stride, VECTOR, _TILE_BYTES), VECTOR, is_written=True)


class _SplitBfloat16(_Bfloat16Tiles):
    terms = 3


class _PackRows(Activations, module=MODULE, tasks=("pack_rows_f32",)):
    def extents(self) -> Extents:
        """Tiles [K, planes], and workspace behind each."""
        require_at_most("rows of a tile", self.planes, _TILE_ROWS)
        each = self.k * self.planes * FLOAT + VECTOR + _TILE_BYTES
        yield reads(self.x, self.rows * self.k * FLOAT)
        yield accesses(self.target, (-(-self.rows // self.planes),), (self.x_stride,), each, is_written=True)


for _bits in BITS:
    type(f"_QuantizeLanes{_bits}", (_QuantizeLanes,), {"bits": _bits}, module=MODULE, tasks=(f"quantize_lanes_{_bits}",))
    # Here the number is that of steps along K between those of a pair.
    type(f"_SplitBfloat16{_bits}", (_SplitBfloat16,), {}, module=MODULE, tasks=(f"split_bf16_{_bits}",))
    type(f"_RoundBfloat16{_bits}", (_Bfloat16Tiles,), {}, module=MODULE, tasks=(f"round_bf16_{_bits}",))


class AddPartials(TaskArguments, module=MODULE, tasks=("add_partials",)):
    """Adds arrays of float32 to another."""

    target: Pointer
    """float32 (size)."""
    size: int
    source: Pointer
    """float32 (count, size)."""
    count: int

    def extents(self) -> Extents:
        """What is read and written."""
        return writes(self.target, self.size * FLOAT), reads(self.source, self.count * self.size * FLOAT)
