"""Lane-wise arithmetic, comparisons, bit operations, conversions and reductions of vectors."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from .ir_builder import emit_multiply_add
from .memory import emit_lane_mask, splat
from .vector_types import F32, I32, LANES, VF32, VI32, call, f32x16, i32x16, lanewise, operation

__all__ = [
    "absolute",
    "add",
    "any_different",
    "bit_and",
    "bit_xor",
    "divide",
    "floor_power_of_two",
    "fused_multiply_add",
    "mask_lanes",
    "maximum",
    "maximum_i32",
    "maximum_or_nan",
    "minimum",
    "multiply",
    "reduce_add",
    "reduce_add_i32",
    "reduce_max",
    "reduce_max_bits",
    "round_to_even",
    "scale_by_power_of_two",
    "select_less",
    "shift_left",
    "shift_right",
    "shift_right_signed",
    "splat_f32",
    "splat_i32",
    "square_root",
    "subtract",
    "to_f32",
    "to_i32",
    "zero_f32",
    "zero_i32",
]


@operation(f32x16)
def zero_f32(builder: Any) -> Any:  # noqa: ARG001 - every operation gets it
    """Sixteen zeros."""
    return ir.Constant(VF32, None)


@operation(i32x16)
def zero_i32(builder: Any) -> Any:  # noqa: ARG001
    """Sixteen zeros."""
    return ir.Constant(VI32, None)


@operation(f32x16, types.float32)
def splat_f32(builder: Any, scalar: Any) -> Any:
    """A number in every lane."""
    return splat(builder, scalar)


@operation(i32x16, types.int32)
def splat_i32(builder: Any, scalar: Any) -> Any:
    """A number in every lane."""
    return splat(builder, scalar)


@lanewise(2)
def add(builder: Any, x: Any, y: Any) -> Any:
    """X + y."""
    return builder.fadd(x, y) if x.type == VF32 else builder.add(x, y)


@lanewise(2)
def subtract(builder: Any, x: Any, y: Any) -> Any:
    """X - y."""
    return builder.fsub(x, y) if x.type == VF32 else builder.sub(x, y)


@lanewise(2)
def multiply(builder: Any, x: Any, y: Any) -> Any:
    """X * y."""
    return builder.fmul(x, y) if x.type == VF32 else builder.mul(x, y)


@operation(f32x16, f32x16, f32x16)
def divide(builder: Any, x: Any, y: Any) -> Any:
    """X / y."""
    return builder.fdiv(x, y)


@operation(f32x16, f32x16, f32x16, f32x16)
def fused_multiply_add(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """X * y + z, rounded once."""
    return emit_multiply_add(builder, x, y, z)


@operation(f32x16, f32x16, f32x16)
def maximum(builder: Any, x: Any, y: Any) -> Any:
    """The larger; y where one of them is NaN."""
    return builder.select(builder.fcmp_ordered(">", x, y), x, y)


@operation(f32x16, f32x16, f32x16)
def maximum_or_nan(builder: Any, x: Any, y: Any) -> Any:
    """The larger; NaN where one of them is NaN."""
    return builder.select(builder.fcmp_unordered(">", x, y), builder.select(builder.fcmp_unordered("uno", y, y), y, x), y)


@operation(i32x16, i32x16, i32x16)
def maximum_i32(builder: Any, x: Any, y: Any) -> Any:
    """The larger of signed integers."""
    return builder.select(builder.icmp_signed(">", x, y), x, y)


@operation(f32x16, f32x16, f32x16)
def minimum(builder: Any, x: Any, y: Any) -> Any:
    """The smaller; y where one of them is NaN."""
    return builder.select(builder.fcmp_ordered("<", x, y), x, y)


@operation(f32x16, f32x16)
def absolute(builder: Any, x: Any) -> Any:
    """X without its sign."""
    return call(builder, "llvm.fabs.v16f32", VF32, x)


@operation(f32x16, f32x16)
def square_root(builder: Any, x: Any) -> Any:
    """Square roots; NaN of numbers below zero."""
    return call(builder, "llvm.sqrt.v16f32", VF32, x)


@operation(f32x16, f32x16)
def round_to_even(builder: Any, x: Any) -> Any:
    """The nearest integer; the even one of two that are equally near."""
    return call(builder, "llvm.rint.v16f32", VF32, x)


@operation(types.float32, types.float32)
def floor_power_of_two(builder: Any, x: Any) -> Any:
    """The largest power of two that is not above a positive x: 0 for denormal numbers, infinity for infinity and NaN."""
    return builder.bitcast(builder.and_(builder.bitcast(x, I32), ir.Constant(I32, 0x7F800000)), F32)


@operation(f32x16, f32x16, f32x16)
def scale_by_power_of_two(builder: Any, x: Any, exponent: Any) -> Any:
    """X * 2**exponent for integral exponents; x and the result must be normal numbers."""
    shifted = builder.shl(builder.fptosi(exponent, VI32), ir.Constant(VI32, [23] * LANES))
    return builder.bitcast(builder.add(builder.bitcast(x, VI32), shifted), VF32)


@operation(f32x16, f32x16, types.intp)
def mask_lanes(builder: Any, x: Any, count: Any) -> Any:
    """The first ``count`` lanes; zeros in the others."""
    return builder.select(emit_lane_mask(builder, count), x, ir.Constant(VF32, None))


@operation(f32x16, f32x16, f32x16, f32x16, f32x16)
def select_less(builder: Any, x: Any, y: Any, found: Any, other: Any) -> Any:
    """Lanes of ``found`` where x < y, of ``other`` elsewhere and where one of them is NaN."""
    return builder.select(builder.fcmp_ordered("<", x, y), found, other)


@operation(i32x16, i32x16, i32x16)
def bit_and(builder: Any, x: Any, y: Any) -> Any:
    """X & y."""
    return builder.and_(x, y)


@operation(i32x16, i32x16, i32x16)
def bit_xor(builder: Any, x: Any, y: Any) -> Any:
    """X ^ y."""
    return builder.xor(x, y)


@operation(types.intp, i32x16, i32x16)
def any_different(builder: Any, x: Any, y: Any) -> Any:
    """1 if any lanes of x and y differ, else 0."""
    bits = builder.bitcast(builder.icmp_unsigned("!=", x, y), ir.IntType(LANES))
    return builder.zext(builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0)), ir.IntType(64))


@operation(i32x16, i32x16, types.int32)
def shift_left(builder: Any, x: Any, count: Any) -> Any:
    """X << count, count below 32."""
    return builder.shl(x, splat(builder, count))


@operation(i32x16, i32x16, types.int32)
def shift_right(builder: Any, x: Any, count: Any) -> Any:
    """X >> count, count below 32, zero-extended."""
    return builder.lshr(x, splat(builder, count))


@operation(i32x16, i32x16, types.int32)
def shift_right_signed(builder: Any, x: Any, count: Any) -> Any:
    """X >> count, count below 32, sign-extended."""
    return builder.ashr(x, splat(builder, count))


@operation(f32x16, i32x16)
def to_f32(builder: Any, x: Any) -> Any:
    """Signed integers converted to float32."""
    return builder.sitofp(x, VF32)


@operation(i32x16, f32x16)
def to_i32(builder: Any, x: Any) -> Any:
    """Float32 within int32's range converted to integers, rounded towards zero."""
    return builder.fptosi(x, VI32)


@operation(types.float32, f32x16)
def reduce_add(builder: Any, x: Any) -> Any:
    """Sum of the lanes, in any order."""
    return call(builder, "llvm.vector.reduce.fadd.v16f32", F32, ir.Constant(F32, 0.0), x, fastmath=("reassoc",))


@operation(types.int32, i32x16)
def reduce_add_i32(builder: Any, x: Any) -> Any:
    """Sum of the lanes."""
    return call(builder, "llvm.vector.reduce.add.v16i32", I32, x)


@operation(types.float32, f32x16)
def reduce_max(builder: Any, x: Any) -> Any:
    """Largest lane; no lane may be NaN."""
    return call(builder, "llvm.vector.reduce.fmax.v16f32", F32, x, fastmath=("nnan",))


@operation(types.float32, i32x16)
def reduce_max_bits(builder: Any, x: Any) -> Any:
    """The largest of 16 non-negative float32, passed as their bit patterns; infinity or NaN if one of them is."""
    return builder.bitcast(call(builder, "llvm.vector.reduce.smax.v16i32", I32, x), F32)
