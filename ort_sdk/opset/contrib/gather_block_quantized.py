"""GatherBlockQuantized: rows of a block-quantised table (an embedding), dequantised after they are gathered."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, KernelInfo, TensorElementType
from ort_sdk.opset.definition import operator

__all__ = ["gather_block_quantized"]

FLOAT = TensorElementType.FLOAT


@operator("GatherBlockQuantized", domain="com.microsoft", any_type=True)
def gather_block_quantized(info: KernelInfo, xp: Any) -> Compute:
    """Gather along ``gather_axis`` of data quantised in blocks along ``quantize_axis``; an index out of range gives zeros."""
    gather_axis, quantize_axis = info.attribute("gather_axis", 0), info.attribute("quantize_axis", 1)
    block_size = info.attribute("block_size", 128)
    is_packed = info.input_element_type(0) is TensorElementType.UINT8
    bits = info.attribute("bits", 4) if is_packed else 8
    default_zero = float(2 ** (bits - 1)) if is_packed else 0.0
    output_type = info.output_element_type(0) or info.input_element_type(2) or FLOAT

    def compute(data: Array, indices: Array, scales: Array, zero_points: Array | None = None) -> Array:
        rank, per_byte = data.ndim, 8 // bits
        from_axis, along = gather_axis % rank, quantize_axis % rank
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
            return xp.repeat(real, block, axis=axis)[(*(slice(None),) * axis, slice(0, size), ...)]

        values = xp.astype(xp.unpack_bits(_take(xp, data, rows, from_axis), bits), FLOAT)
        offset = default_zero if zero_points is None else parameter(zero_points)
        real = (values - offset) * parameter(scales)
        shape = (1,) * from_axis + tuple(indices.shape) + (1,) * (rank - from_axis - 1)
        return xp.astype(xp.where(xp.reshape(valid, shape), real, xp.zeros_like(real)), output_type)

    return compute


def _take(xp: Any, values: Array, indices: Array, axis: int) -> Array:
    """``values`` at ``indices`` of any rank along an axis; an axis of size 1 stays so and broadcasts."""
    lead, trail = tuple(values.shape[:axis]), tuple(values.shape[axis + 1 :])
    if values.shape[axis] == 1:
        return xp.reshape(values, (*lead, *(1,) * indices.ndim, *trail))
    return xp.reshape(xp.take(values, xp.reshape(indices, (-1,)), axis=axis), (*lead, *indices.shape, *trail))
