"""GatherBlockQuantized: rows of a block-quantized table (an embedding), dequantized after they are gathered."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import (
    NOT_PACKED,
    Allocator,
    Array,
    Compute,
    HostArray,
    KernelInfo,
    NotPacked,
    OpKernel,
    PrePackedWeights,
    Tensor,
    TensorElementType,
)
from ort_sdk.opset.definition import operator
from ort_sdk.opset.tensor.common import normalize_axis

from .matmul_nbits_layout import DATA_FROM_INT8

__all__ = ["gather_block_quantized"]

FLOAT = TensorElementType.FLOAT
NIBBLES = frozenset({TensorElementType.INT4, TensorElementType.UINT4})


@operator("GatherBlockQuantized", domain="com.microsoft", any_type=True)
def gather_block_quantized(info: KernelInfo, xp: Any) -> Compute | OpKernel:
    """Gather along ``gather_axis`` of data quantized in blocks along ``quantize_axis``; an index out of range gives zeros.

    On the host only the gathered rows of a packed constant are unpacked.
    """
    compute = _gather(info, xp)
    return _PackedGather(info, compute) if xp.is_host and info.constants else compute


def _gather(info: KernelInfo, xp: Any) -> Compute:
    gather_axis, quantize_axis = info.attribute("gather_axis", 0), info.attribute("quantize_axis", 1)
    block_size = info.attribute("block_size", 128)
    is_packed = info.input_element_type(0) is TensorElementType.UINT8
    bits = info.attribute("bits", 4) if is_packed else 8
    default_zero = float(2 ** (bits - 1)) if is_packed else 0.0
    output_type = info.output_element_type(0) or info.input_element_type(2) or FLOAT

    def compute(data: Array, indices: Array, scales: Array, zero_points: Array | None = None) -> Array:
        rank, per_byte = data.ndim, 8 // bits
        from_axis, along = normalize_axis(info, gather_axis, rank), normalize_axis(info, quantize_axis, rank)
        size = data.shape[along] * (per_byte if along == rank - 1 else 1)
        block = block_size or size
        rows = xp.module.astype(indices, xp.int64)
        count = data.shape[from_axis]
        valid = (rows >= -count) & (rows < count)
        rows = xp.where(valid, xp.where(rows < 0, rows + count, rows), xp.zeros_like(rows))
        positions = rows // block if from_axis == along else rows
        if zero_points is not None and per_byte > 1:
            zero_points = xp.unpack_bits(zero_points, bits)[..., : scales.shape[-1]]

        def parameter(values: Array) -> Array:
            real = xp.astype(_take(xp, values, positions, from_axis), FLOAT)
            if from_axis == along:
                return real
            axis = along + (indices.ndim - 1 if along > from_axis else 0)
            return xp.repeat(real, min(block, size), axis=axis)[(*(slice(None),) * axis, slice(0, size), ...)]

        values = xp.astype(xp.unpack_bits(_take(xp, data, rows, from_axis), bits), FLOAT)
        offset = default_zero if zero_points is None else parameter(zero_points)
        real = (values - offset) * parameter(scales)
        shape = (1,) * from_axis + tuple(indices.shape) + (1,) * (rank - from_axis - 1)
        return xp.astype(xp.where(xp.reshape(valid, shape), real, xp.zeros_like(real)), output_type)

    return compute


def _take(xp: Any, values: Array, indices: Array, axis: int) -> Array:
    """``values`` at ``indices`` of any rank along an axis; an axis of size 1 stays so and broadcasts."""
    lead, trail = tuple(values.shape[:axis]), tuple(values.shape[axis + 1 :])
    flat = xp.reshape(indices, (-1,))
    if isinstance(values, _PackedTable):
        taken: Array = values.take(xp.zeros_like(flat) if values.shape[axis] == 1 else flat, axis)
        return taken.reshape(*lead, *indices.shape, *trail)
    if values.shape[axis] == 1:
        return xp.reshape(values, (*lead, *(1,) * indices.ndim, *trail))
    return xp.reshape(xp.take(values, flat, axis=axis), (*lead, *indices.shape, *trail))


class _PackedTable:
    """Integers in ONNX's packed form, of which some are taken at a time.

    Args:
        packed: the bytes, not copied.
        shape: dimensions in elements.
        bits: 4 or 8.
        is_signed: whether the bytes hold signed integers.
        is_raised: whether those are to come out as unsigned ones, half the range more each.
    """

    __slots__ = ("_bits", "_half", "_is_raised", "_packed", "shape")

    def __init__(self, packed: HostArray, shape: tuple[int, ...], bits: int, *, is_signed: bool, is_raised: bool) -> None:
        self._packed = packed
        self._bits = bits
        self._half = 1 << (bits - 1) if is_signed else 0
        self._is_raised = is_raised
        self.shape = shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def take(self, indices: HostArray, axis: int) -> HostArray:
        """Elements at indices along an axis, one a byte."""
        per_byte, last = 8 // self._bits, self.shape[-1]
        if axis < self.ndim - 1 and last % per_byte == 0:
            rows = self._packed.reshape(*self.shape[:-1], last // per_byte).take(indices, axis=axis)
            codes = rows if per_byte == 1 else np.stack([rows & np.uint8(15), rows >> np.uint8(4)], axis=-1)
            codes = codes.reshape(*rows.shape[:-1], last)
        else:
            codes = self._take_single(indices, axis)
        if not self._half:
            return codes
        raised = codes ^ np.uint8(self._half)
        return raised if self._is_raised else (raised - np.uint8(self._half)).view(np.int8)

    def _take_single(self, indices: HostArray, axis: int) -> HostArray:
        """The same where what is taken is not whole bytes in a row."""
        lead, trail = math.prod(self.shape[:axis]), math.prod(self.shape[axis + 1 :])
        first = np.arange(lead)[:, None, None] * self.shape[axis]
        positions = (first + indices[None, :, None]) * trail + np.arange(trail)
        per_byte = 8 // self._bits
        shifts = (positions % per_byte * self._bits).astype(np.uint8)
        codes: HostArray = (self._packed[positions // per_byte] >> shifts) & np.uint8((1 << self._bits) - 1)
        return codes.reshape(*self.shape[:axis], len(indices), *self.shape[axis + 1 :])


class _PackedGather(OpKernel):
    """Keeps constants that would be unpacked, or raised, as a whole to be read in their stored layout."""

    deterministic = True
    shape_inputs = ()

    def __init__(self, info: KernelInfo, gather: Callable[..., Any]) -> None:
        self._constants = dict(info.constants)
        self._gather = gather
        self._tables: dict[int, _PackedTable] = {}

    def prepack(self, tensor: Tensor, input_index: int, _allocator: Allocator | None) -> PrePackedWeights | NotPacked:
        """The bytes, as a view."""
        if input_index not in {0, 3} or not (tensor.element_type in NIBBLES or _is_raised(tensor)):
            return NOT_PACKED
        return PrePackedWeights((_source(tensor).packed(),))

    def use_prepacked(self, weights: PrePackedWeights, input_index: int) -> None:
        tensor = self._constants[input_index]
        is_raised = _is_raised(tensor)
        is_signed = is_raised or tensor.element_type is TensorElementType.INT4
        packed, shape = weights.buffers[0], tuple(tensor.shape)
        bits = tensor.element_type.bit_width
        self._tables[input_index] = _PackedTable(packed, shape, bits, is_signed=is_signed, is_raised=is_raised)

    def compute(self, data: Array | None, indices: Array, scales: Array, zero_points: Array | None = None) -> Array:
        table, zeros = self._tables.get(0, data), self._tables.get(3, zero_points)
        return self._gather(table, indices, scales, zeros)


def _source(tensor: Any) -> Tensor:
    """What holds the bytes of a constant."""
    source: Tensor = tensor.sources[0] if _is_raised(tensor) else tensor
    return source


def _is_raised(tensor: Any) -> bool:
    return getattr(tensor, "transformation", "").startswith(DATA_FROM_INT8)
