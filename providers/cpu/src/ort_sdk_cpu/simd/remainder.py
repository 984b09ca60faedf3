"""The rest of a row that does not fill a vector."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from .memory import splat
from .vector_types import F32, I32, LANES, VF32, VI32, call, f32x16, operation, pointer

__all__ = ["first_lanes", "load_f32_first_or", "load_f32_steps", "select_less"]


def _mask(builder: Any, count: Any) -> Any:
    lanes = ir.Constant(VI32, list(range(LANES)))
    return builder.icmp_signed("<", lanes, splat(builder, builder.trunc(count, I32)))


@operation(f32x16, types.intp, types.intp, f32x16)
def load_f32_first_or(builder: Any, address: Any, count: Any, other: Any) -> Any:
    """The first ``count`` of 16 float32, and another vector's lanes behind them."""
    source = pointer(builder, address, VF32)
    return call(builder, "llvm.masked.load.v16f32.p0", VF32, source, ir.Constant(I32, 1), _mask(builder, count), other)


@operation(f32x16, f32x16, types.intp)
def first_lanes(builder: Any, x: Any, count: Any) -> Any:
    """The first ``count`` lanes; zeros behind them."""
    return builder.select(_mask(builder, count), x, ir.Constant(VF32, None))


@operation(f32x16, f32x16, f32x16, f32x16, f32x16)
def select_less(builder: Any, x: Any, y: Any, found: Any, other: Any) -> Any:
    """Lanes of ``found`` where x < y, of ``other`` elsewhere and where one of them is NaN."""
    return builder.select(builder.fcmp_ordered("<", x, y), found, other)


@operation(f32x16, types.intp, types.intp, types.intp)
def load_f32_steps(builder: Any, address: Any, step: Any, count: Any) -> Any:
    """The first ``count`` of 16 float32 that lie ``step`` bytes apart; the last of them in the other lanes."""
    vector, one = ir.Constant(VF32, ir.Undefined), ir.Constant(count.type, 1)
    last = builder.sub(count, one)
    for lane in range(LANES):
        index = ir.Constant(count.type, lane)
        bounded = builder.select(builder.icmp_signed("<", index, last), index, last)
        value = builder.load(pointer(builder, builder.add(address, builder.mul(bounded, step)), F32))
        vector = builder.insert_element(vector, value, ir.Constant(I32, lane))
    return vector
