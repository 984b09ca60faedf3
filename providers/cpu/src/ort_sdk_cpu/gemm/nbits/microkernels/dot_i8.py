"""Spans of two rows of a weight [N, k_blocks, bytes] of packed integers, multiplied with some rows of int8 activations.

A span is 64 bytes: 16 lanes of 4 bytes, each of one block. The sums are vectors [rows of activations][2].
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from ort_sdk_cpu.simd.int8 import emit_dot_u8_i8
from ort_sdk_cpu.simd.ir_builder import emit_multiply_add
from ort_sdk_cpu.simd.memory import emit_load, emit_load_masked, emit_store
from ort_sdk_cpu.simd.shuffles import emit_lookup
from ort_sdk_cpu.simd.vector_types import F32, VF32, VI32, Vector, call, f32x16, i32x16, operation

from .unpack import unpacked

__all__ = ["SpanOperations", "span_operations"]

_ROWS = 2
"""Of the weight."""


class SpanOperations(NamedTuple):
    """Operations for codes of some bits and some rows of activations. In compiled code, each needs a global name."""

    zero: Any
    """``zero()``: sums."""
    take_offsets: Any
    """``take_offsets(sums, first, second, x_sums, stride, count)``: less zero points times scales, given for both rows, times
    the activations' sums."""
    add_span: Any
    """``add_span(sums, first, second, first_scales, second_scales, x, stride, index)``: add the products of the codes of both
    rows with activations of ``quantize_row_by_lanes``, each lane times its scale of these and the scale that its index names."""
    write: Any
    """``write(sums, out, stride, apart, first, second)``: the sums over the lanes, plus a number for each row, ``apart`` bytes
    from one to the other, ``stride`` bytes from row to row of activations."""


def span_operations(bits: int, rows: int) -> SpanOperations:
    """Operations for codes of 2, 4 or 8 bits."""
    spans = _Spans(bits, rows)
    sums, address, nothing = spans.sums, types.intp, types.none
    return SpanOperations(
        operation(sums)(spans.zero),
        operation(sums, sums, f32x16, f32x16, address, address, address)(spans.take_offsets),
        operation(sums, sums, i32x16, i32x16, f32x16, f32x16, address, address, i32x16)(spans.add_span),
        operation(nothing, sums, address, address, address, types.float32, types.float32)(spans.write),
    )


def _moved(builder: Any, address: Any, count: int, stride: Any) -> Any:
    step = ir.Constant(address.type, stride) if isinstance(stride, int) else stride
    return builder.add(address, builder.mul(step, ir.Constant(address.type, count)))


class _Spans:
    """LLVM code of the operations."""

    def __init__(self, bits: int, rows: int) -> None:
        self.bits, self.rows = bits, rows
        self.sums = Vector(f"f32x16[{rows}, {_ROWS}]", ir.ArrayType(VF32, rows * _ROWS))

    def zero(self, builder: Any) -> Any:
        return ir.Constant(self.sums.llvm, None)

    def take_offsets(self, builder: Any, sums: Any, first: Any, second: Any, x_sums: Any, stride: Any, count: Any) -> Any:
        # Sixteen blocks at once: offsets are a dot product of their own.
        taken = [builder.fneg(first), builder.fneg(second)]
        for row in range(self.rows):
            x_sum = emit_load_masked(builder, _moved(builder, x_sums, row, stride), count, VF32, "v16f32")
            for number, value in enumerate(taken):
                index = row * _ROWS + number
                total = emit_multiply_add(builder, value, x_sum, builder.extract_value(sums, index))
                sums = builder.insert_value(sums, total, index)
        return sums

    def add_span(
        self,
        builder: Any,
        sums: Any,
        first: Any,
        second: Any,
        first_scales: Any,
        second_scales: Any,
        x: Any,
        stride: Any,
        index: Any,
    ) -> Any:
        # Unpacked once for all rows of activations.
        codes = [unpacked(builder, value, self.bits) for value in (first, second)]
        scales = [emit_lookup(builder, table, index) for table in (first_scales, second_scales)]
        planes = 8 // self.bits
        for row in range(self.rows):
            line = _moved(builder, x, row, stride)
            values = [emit_load(builder, _moved(builder, line, plane, 64), VI32) for plane in range(planes)]
            x_scale = emit_load(builder, _moved(builder, line, planes, 64), VF32)
            for number in range(_ROWS):
                total = ir.Constant(VI32, None)
                for code, value in zip(codes[number], values, strict=True):
                    total = emit_dot_u8_i8(builder, total, code, value)
                # The weight's and the activations' scales of a lane in one multiplication.
                position, factor = row * _ROWS + number, builder.fmul(scales[number], x_scale)
                found = emit_multiply_add(builder, builder.sitofp(total, VF32), factor, builder.extract_value(sums, position))
                sums = builder.insert_value(sums, found, position)
        return sums

    def write(self, builder: Any, sums: Any, out: Any, stride: Any, apart: Any, first: Any, second: Any) -> None:
        zero = ir.Constant(F32, 0.0)
        for row in range(self.rows):
            for number, start in enumerate((first, second)):
                value = builder.extract_value(sums, row * _ROWS + number)
                # Reassociated: a tree of additions, in a fixed order.
                total = call(builder, "llvm.vector.reduce.fadd.v16f32", F32, zero, value, fastmath=("reassoc",))
                place = _moved(builder, _moved(builder, out, row, stride), number, apart)
                emit_store(builder, place, builder.fadd(total, start))
