"""Arguments that all GEMM and GEMV tasks of MatMulNBits share, and what all of them touch.

A weight is MatMulNBits' [N, k_blocks, bytes], *NK*, or DequantizeLinear's [K, N], *KN*. Codes of blocks are whole in rows of an
NK weight, and end with K in a KN weight, whose rows are whole bytes, 64 at least.
"""

from __future__ import annotations

from typing import ClassVar

from ort_sdk_cpu.jit.arguments import NullablePointer, Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extent, Extents, accesses, reads_if_given, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, round_up

__all__ = [
    "BITS",
    "FLOAT16_SCALES_START",
    "FLOAT_ZERO_POINTS",
    "STRIP_BYTES",
    "WORKSPACE_START",
    "MatMulNBits",
    "declare_tasks",
    "spans_of",
]

BITS = (2, 4, 8)
STRIP_BYTES = 64
"""Bytes of a row of a KN weight that are read at a time; those of a row of an NK weight are a *span*."""
WORKSPACE_START = 4096
"""Bytes of a job's workspace, in front of its sums, for what is transposed or interleaved."""
FLOAT16_SCALES_START = 64
"""Bytes before the first of the numbers of ``float16_scales``."""
FLOAT_ZERO_POINTS = 2
"""``zero_points_kind`` of those that need not be whole numbers."""


def spans_of(k: int, block_size: int, planes: int) -> int:
    """How many pieces of 64 bytes of codes, ``planes`` to a byte, cover whole blocks."""
    return -(-round_up(k, block_size) // (STRIP_BYTES * planes))


class MatMulNBits(TaskArguments):
    """Strides are in bytes."""

    codes: Pointer
    """The weight, at any address."""
    codes_stride: int
    """From row to row."""
    scales: Pointer
    """float32, (N, blocks) or (blocks, N)."""
    scales_stride: int
    """From row to row of an NK weight, from block to block of a KN weight."""
    zero_points: Pointer
    """As ``zero_points_kind`` says; address 0 for none."""
    zero_points_stride: int
    """As of scales."""
    bias: Pointer
    """float32 (N), or address 0."""
    out: Pointer
    """float32 (M, N)."""
    m: int
    n: int
    k: int
    block_size: int
    """Elements along K with one scale."""
    default_zero_point: int
    """Of all elements, if there is none for each block."""
    sign_flip: int
    """Bits to flip in each 4 bytes of a KN weight and its zero points: the sign bits of signed codes, else 0."""
    x: Pointer
    """Activations in the form that the task reads; see ``compiled/activations.py``."""
    x_scales: Pointer
    """float32 (M, blocks)."""
    x_sums: Pointer
    """float32 (M, blocks), of some forms (M, blocks + 1): sums of the activations of each block, and of all."""
    x_stride: int
    """From row to row of ``x``, or from tile to tile."""
    block_stride: int
    """From row to row of ``x_scales`` and ``x_sums``."""
    table: Pointer
    """float32 (16): values of the codes of an element and bits above it, from half their range."""
    workspace: Pointer
    workspace_stride: int
    """From job to job."""
    k_parts: int
    """Parts of K, with ``n_parts`` of the columns: as many jobs as threads share."""
    n_parts: int
    partials: Pointer
    """float32 (k_parts - 1, M, N): results of all parts of K but the first, which is ``out``."""
    zero_points_kind: int
    """0: none for each block; 1: packed as codes are; 2: float32."""
    chunk: int
    """Blocks to a panel."""
    mc: int
    """Rows of activations that a panel is used for."""
    group: int
    """Strips whose panels take turns."""
    lane_blocks: Pointer
    """int32: the block that each 4-byte lane of 16 blocks of a row of an NK weight belongs to."""
    activations: Pointer
    """float32 (M, K): what ``x`` was made of."""
    float16_scales: NullablePointer
    """The same scales: a float32 factor and, ``FLOAT16_SCALES_START`` bytes on, float16; address 0 for none."""

    bits: ClassVar[int] = 0
    """Of a code."""

    @property
    def planes(self) -> int:
        """Codes of a byte."""
        return 8 // self.bits

    @property
    def blocks(self) -> int:
        """Blocks along K."""
        return -(-self.k // self.block_size)

    @property
    def lanes(self) -> int:
        """4-byte lanes of a block of a row."""
        return self.block_size * self.bits // 32

    @property
    def spans(self) -> int:
        """Pieces of 64 bytes of a row."""
        return spans_of(self.k, self.block_size, self.planes)

    @property
    def jobs(self) -> int:
        """Pieces of the work."""
        return self.k_parts * self.n_parts

    def per_block(self, at: int, rows: int, *, more: int = 0) -> Extent:
        """float32 numbers of the blocks of each row of activations, and some behind them."""
        return accesses(at, (rows,), (self.block_stride,), (self.blocks + more) * FLOAT)

    def nk_zero_points(self) -> Extents:
        """Zero points of an NK weight."""
        if self.zero_points_kind:
            is_float = self.zero_points_kind == FLOAT_ZERO_POINTS
            row = self.blocks * FLOAT if is_float else -(-self.blocks * self.bits // 8)
            yield accesses(self.zero_points, (self.n,), (self.zero_points_stride,), row)

    def results(self, k_parts: int, last: int) -> Extents:
        """The result, of whose last row so many columns are written, those of parts of K, and the bias."""
        nbytes = ((self.m - 1) * self.n + last) * FLOAT
        yield reads_if_given(self.bias, last * FLOAT)
        yield writes(self.out, nbytes)
        if k_parts > 1:
            yield writes(self.partials, (k_parts - 2) * self.m * self.n * FLOAT + nbytes)


def declare_tasks(arguments: type[MatMulNBits], module: str, name: str) -> None:
    """Declare the tasks of a name, one for each number of bits."""
    for bits in BITS:
        type(f"{arguments.__name__}{bits}", (arguments,), {"bits": bits}, module=module, tasks=(f"{name}_{bits}",))
