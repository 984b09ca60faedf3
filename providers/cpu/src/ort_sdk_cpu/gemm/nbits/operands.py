"""The constant operands of a MatMulNBits node, and how they are read in place."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, Tensor, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.contrib.matmul_nbits import BlockWeight
from ort_sdk.opset.contrib.matmul_nbits_layout import (
    SCALES_FROM_DEQUANTIZE_LINEAR,
    WEIGHT_FROM_DEQUANTIZE_LINEAR,
    ZERO_POINTS_FROM_DEQUANTIZE_LINEAR,
)

from .arguments.matmul_nbits import STRIP_BYTES

__all__ = [
    "BIAS",
    "GROUP_INDEX",
    "SCALES",
    "WEIGHT",
    "ZERO_POINTS",
    "KNSources",
    "NBitsOperands",
    "is_signed",
    "kn_operands",
    "kn_sources",
    "nk_operands",
    "sign_bits",
]

WEIGHT, SCALES, ZERO_POINTS, GROUP_INDEX, BIAS = range(1, 6)
"""Inputs of the operator."""

_SIGNED = frozenset({TensorElementType.INT2, TensorElementType.INT4, TensorElementType.INT8})


@dataclass(frozen=True, slots=True)
class NBitsOperands:
    """A weight, its scales and zero points, in one of two layouts."""

    is_kn: bool
    """Whether the weight is DequantizeLinear's [K, N], not MatMulNBits' [N, k_blocks, bytes]."""
    codes: HostArray
    codes_stride: int
    """Bytes from row to row."""
    scales: HostArray
    """Bytes or float32 numbers, which need not be aligned."""
    scales_stride: int
    """Bytes from block to block of K, of a weight [K, N]; from row to row of one [N, ...]."""
    float16_scales: HostArray | None
    """The same scales as ``pack_float16_scales`` gives them, if there are such."""
    zero_points: HostArray | None
    zero_points_kind: int
    """0: none, 1: packed integers, 2: float32."""
    zero_points_stride: int
    """Bytes from block to block of K, of a weight [K, N]; from row to row of one [N, ...]."""
    default_zero_point: int
    """Zero point of all, if there is none for each."""
    sign_flip: int
    """Bits of four bytes of a weight [K, N] and of zero points that are to be flipped."""


def nk_operands(
    weight: BlockWeight, codes: HostArray, scales: HostArray, zero_points: HostArray | None, float16_scales: HostArray | None
) -> NBitsOperands:
    """NBitsOperands as the operator defines them, as arrays of their types, or of bytes with packed zero points."""
    is_float = zero_points is not None and zero_points.dtype != np.uint8
    width = weight.blocks * 4 if is_float else -(-weight.blocks * weight.bits // 8)
    return NBitsOperands(
        is_kn=False,
        codes=codes,
        codes_stride=weight.blocks * weight.block_size * weight.bits // 8,
        scales=scales,
        scales_stride=weight.blocks * 4,
        float16_scales=float16_scales,
        zero_points=zero_points,
        zero_points_kind=0 if zero_points is None else 1 + is_float,
        zero_points_stride=width,
        default_zero_point=1 << (weight.bits - 1),
        sign_flip=0,
    )


KNSources = tuple[Tensor, Tensor, "Tensor | None"]
"""A DequantizeLinear node's weight [K, N], scales, and zero points if there are any."""


def kn_sources(weight: BlockWeight, info: KernelInfo) -> KNSources | None:
    """Constants of a DequantizeLinear node that the host would derive the node's from.

    Returns:
        None if the node's operands are its own, or DequantizeLinear's cannot be read in place.
    """
    codes = _source(info, WEIGHT, WEIGHT_FROM_DEQUANTIZE_LINEAR)
    if codes is None:
        return None
    scales = _source(info, SCALES, SCALES_FROM_DEQUANTIZE_LINEAR)
    zero_points = _source(info, ZERO_POINTS, ZERO_POINTS_FROM_DEQUANTIZE_LINEAR)
    if scales is None or (zero_points is None and info.has_input(ZERO_POINTS)):
        return None
    row_bits = weight.size_n * weight.bits
    if row_bits % 8 or row_bits < STRIP_BYTES * 8 or scales.element_type is not TensorElementType.FLOAT:
        return None
    return codes, scales, zero_points


def kn_operands(weight: BlockWeight, sources: KNSources) -> NBitsOperands:
    """NBitsOperands of a DequantizeLinear node, as views."""
    codes, scales, zero_points = sources
    row_bytes = weight.size_n * weight.bits // 8
    is_shifted = is_signed(codes.element_type)
    half = 1 << (weight.bits - 1)
    default, kind = half, 0
    if zero_points is not None:
        kind = 1 if zero_points.shape else 0
        default = half if kind else int(zero_points.numpy()[()]) + (half if is_shifted else 0)
    return NBitsOperands(
        is_kn=True,
        codes=codes.packed(),
        codes_stride=row_bytes,
        scales=scales.packed() if scales.shape else np.full(weight.size_n, scales.numpy(), dtype=np.float32),
        scales_stride=weight.size_n * 4 if len(scales.shape) == 2 else 0,
        float16_scales=None,
        zero_points=zero_points.packed() if kind and zero_points is not None else None,
        zero_points_kind=kind,
        zero_points_stride=row_bytes if zero_points is not None and len(zero_points.shape) == 2 else 0,
        default_zero_point=default,
        sign_flip=sign_bits(weight.bits) if is_shifted else 0,
    )


def is_signed(element_type: TensorElementType) -> bool:
    """Whether codes of a type are signed: their sign bits are flipped, so that they are raised by half their range."""
    return element_type in _SIGNED


def sign_bits(bits: int) -> int:
    """Those of the codes in four bytes, as int32."""
    byte = sum(1 << (shift + bits - 1) for shift in range(0, 8, bits))
    return int.from_bytes(bytes([byte] * 4), "little", signed=True)


def _source(info: KernelInfo, index: int, transformation: str) -> Tensor | None:
    """What a constant input is derived from, if by this transformation."""
    tensor: Any = info.constants.get(index)
    if not getattr(tensor, "transformation", "").startswith(transformation):
        return None
    source: Tensor = tensor.sources[0]
    return source
