"""MatMulNBits and MatMulBnb4: GEMM with a weight stored in 2, 4 or 8 bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, InvalidArgument, InvalidGraph, KernelInfo
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.definition import operator
from ort_sdk.opset.input_shapes import InputShapes

__all__ = ["BlockWeight", "dequantize_rows", "matmul_bnb4", "matmul_nbits"]

MICROSOFT = "com.microsoft"
BITS = (2, 4, 8)
BLOCK_SIZES = (16, 32, 64, 128, 256)
CHUNK_ELEMENTS = 1 << 18
"""Elements of a weight that are dequantized at a time: 1 MB, which stays in a processor's cache until it is multiplied. Eight
times as many, taken from the system and given back for each product, took twenty times as long on a machine short of memory."""

NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""Values of the 4-bit normal-float type (QLoRA, arXiv 2305.14314)."""
FP4_MAGNITUDES = (0.0, 0.0625 / 12, 8 / 12, 1.0, 4 / 12, 6 / 12, 2 / 12, 3 / 12)
"""Magnitudes of the 4-bit float type of the same source, by its low three bits; the high bit is the sign."""
FP4 = (*FP4_MAGNITUDES, *(-value for value in FP4_MAGNITUDES))


def _product_shapes(info: KernelInfo, shapes: InputShapes) -> None:
    """Rows of K elements, and a bias for each of N columns; what belongs to the weight is counted by ``BlockWeight``."""
    shapes.match(0, "A", (..., int(info.attribute("K"))))
    shapes.match(5, "bias", (int(info.attribute("N")),))


@operator("MatMulNBits", domain=MICROSOFT, shapes=_product_shapes)
def matmul_nbits(info: KernelInfo, xp: Any) -> Compute:
    """A @ dequantized(B)^T + bias for B (N, blocks, bytes), with a scale and a zero point per block of K.

    The weight is dequantized some rows at a time. ``accuracy_level`` allows less accuracy than this and is not used.
    """
    weight = BlockWeight.of(info)
    step = max(1, CHUNK_ELEMENTS // (weight.blocks * weight.block_size))

    def compute(
        a: Array,
        b: Array,
        scales: Array,
        zero_points: Array | None = None,
        g_idx: Array | None = None,
        bias: Array | None = None,
    ) -> Array:
        weight.check(a, b, scales)
        rows, row_scales = xp.reshape(b, (weight.size_n, weight.blocks, -1)), xp.reshape(scales, (weight.size_n, -1))
        zeros = None if zero_points is None else weight.unpacked_zero_points(xp, zero_points)
        matrix = _without_subnormals(xp, xp.reshape(a, (-1, weight.size_k)))
        parts = []
        for start in range(0, weight.size_n, step):
            chunk = slice(start, min(start + step, weight.size_n))
            chunk_zeros = None if zeros is None else zeros[chunk, :]
            values = dequantize_rows(xp, rows[chunk, ...], row_scales[chunk, :], chunk_zeros, weight.bits, g_idx)
            parts.append(xp.matmul(matrix, values[:, : weight.size_k].T))
        result = parts[0] if len(parts) == 1 else xp.concat(parts, axis=-1)
        result = xp.reshape(result, (*a.shape[:-1], weight.size_n))
        return result if bias is None else result + bias

    return compute


def _without_subnormals(xp: Any, matrix: Array) -> Array:
    """Activations whose subnormal numbers are 0: gates make some, which take processors thirty times as long to multiply."""
    least = xp.asarray(float(np.finfo(np.float32).tiny), dtype=matrix.dtype)
    return xp.where(xp.module.abs(matrix) < least, xp.asarray(0, dtype=matrix.dtype), matrix)


@dataclass(frozen=True, slots=True)
class BlockWeight:
    """Attributes of a MatMulNBits node: a weight of N rows of K elements in blocks along K."""

    describe: str
    size_k: int
    size_n: int
    bits: int
    block_size: int

    @classmethod
    def of(cls, info: KernelInfo) -> BlockWeight:
        """Read a node's attributes.

        Raises:
            InvalidGraph: one has a value the operator does not know.
            InvalidArgument: a constant g_idx names a block that is not there.
        """
        bits, block_size = info.attribute("bits", 4), info.attribute("block_size")
        if bits not in BITS:
            raise InvalidGraph(f"{info.describe()}: attribute 'bits' is {bits}; it must be one of {BITS}")
        if block_size not in BLOCK_SIZES:
            raise InvalidGraph(f"{info.describe()}: attribute 'block_size' is {block_size}; it must be one of {BLOCK_SIZES}")
        weight = cls(info.describe(), info.attribute("K"), info.attribute("N"), bits, block_size)
        g_idx = info.constant_input(4)
        if g_idx is not None and g_idx.size and not 0 <= g_idx.min() <= g_idx.max() < weight.blocks:
            raise InvalidArgument(
                f"{weight.describe}: g_idx reaches from {g_idx.min()} to {g_idx.max()}; it must be in [0, {weight.blocks})"
            )
        return weight

    @property
    def blocks(self) -> int:
        """Blocks in a row."""
        return -(-self.size_k // self.block_size)

    def check(self, a: Array, b: Array, scales: Array) -> None:
        """Refuse inputs that do not fit the attributes."""
        stored = self.size_n * self.blocks * self.block_size * self.bits // 8
        if a.shape[-1] != self.size_k or math.prod(b.shape) != stored or math.prod(scales.shape) != self.size_n * self.blocks:
            raise InvalidArgument(
                f"{self.describe}: A has shape {tuple(a.shape)}, B {tuple(b.shape)} and scales {tuple(scales.shape)}; with K ="
                f" {self.size_k}, N = {self.size_n}, {self.bits} bits and blocks of {self.block_size} they must be (...,"
                f" {self.size_k}), {stored} bytes and ({self.size_n}, {self.blocks})"
            )

    def check_zero_points(self, zero_points: Array) -> None:
        """Refuse zero points, bytes or floating-point numbers, that do not fit the attributes."""
        width = self._zero_point_width(zero_points)
        if math.prod(zero_points.shape) != self.size_n * width:
            raise InvalidArgument(
                f"{self.describe}: zero_points has shape {tuple(zero_points.shape)}; it must be ({self.size_n}, {width})"
            )

    def _zero_point_width(self, zero_points: Array) -> int:
        return -(-self.blocks * self.bits // 8) if str(zero_points.dtype).endswith("uint8") else self.blocks

    def unpacked_zero_points(self, xp: Any, zero_points: Array) -> Array:
        """(N, blocks) zero points, from packed bytes or floating-point numbers."""
        self.check_zero_points(zero_points)
        rows = xp.reshape(zero_points, (self.size_n, self._zero_point_width(zero_points)))
        return xp.unpack_bits(rows, self.bits)[:, : self.blocks] if zero_points.dtype == xp.uint8 else rows


def dequantize_rows(
    xp: Any, rows: Array, scales: Array, zero_points: Array | None, bits: int, g_idx: Array | None = None
) -> Array:
    """Rows of a block-quantized weight as floating-point numbers.

    Args:
        xp: array namespace.
        rows: (N, blocks, bytes) uint8, elements packed along the last axis, lowest bits first.
        scales: (N, blocks).
        zero_points: (N, blocks) of any type; None for half the range.
        bits: 2, 4 or 8.
        g_idx: (K,) block whose scale each element uses; None for its own.

    Returns:
        (N, blocks * elements per block) in the type of the scales.
    """
    values = xp.module.astype(xp.unpack_bits(rows, bits), scales.dtype)
    zeros = 2.0 ** (bits - 1) if zero_points is None else xp.module.astype(zero_points, scales.dtype)
    if g_idx is not None:
        flat = xp.reshape(values, (rows.shape[0], -1))[:, : g_idx.shape[0]]
        offset = zeros if zero_points is None else xp.take(zeros, g_idx, axis=1)
        return (flat - offset) * xp.take(scales, g_idx, axis=1)
    values -= zeros if zero_points is None else xp.expand_dims(zeros, axis=-1)
    values *= xp.expand_dims(scales, axis=-1)
    return xp.reshape(values, (rows.shape[0], -1))


@operator("MatMulBnb4", domain=MICROSOFT)
def matmul_bnb4(info: KernelInfo, xp: Any) -> Compute:
    """A @ B^T (A @ B if transB is 0) for a flattened 4-bit weight, high half of each byte first, scaled by block maxima."""
    size_k, size_n, block_size = info.attribute("K"), info.attribute("N"), info.attribute("block_size")
    table = np.asarray(FP4 if info.attribute("quant_type") == 0 else NF4, dtype=np.float32)
    transposed = bool(info.attribute("transB", 1))
    elements = size_k * size_n
    mask, shift = xp.asarray(15, dtype=xp.uint8), xp.asarray(4, dtype=xp.uint8)

    def compute(a: Array, b: Array, absmax: Array) -> Array:
        packed, maxima = xp.reshape(b, (-1,)), xp.reshape(absmax, (-1,))
        if packed.shape[0] * 2 < elements or maxima.shape[0] < -(-elements // block_size):
            raise InvalidArgument(
                f"{info.describe()}: B has {packed.shape[0]} bytes and absmax {maxima.shape[0]} numbers; K = {size_k}, N ="
                f" {size_n} and blocks of {block_size} need {-(-elements // 2)} and {-(-elements // block_size)}"
            )
        nibbles = xp.stack([xp.bitwise_right_shift(packed, shift), xp.bitwise_and(packed, mask)], axis=-1)
        codes = xp.module.astype(xp.reshape(nibbles, (-1,)), xp.int64)[:elements]
        values = xp.take(xp.module.astype(xp.from_host(table), a.dtype), codes)
        scales = xp.repeat(maxima, min(block_size, elements), axis=0)[:elements]
        weight = xp.reshape(values * scales, (size_n, size_k))
        return xp.matmul(a, weight.T if transposed else weight)

    return compute
