"""The rest of a row that does not fill a vector."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from .memory import splat
from .vector_types import I32, LANES, VF32, VI32, call, f32x16, operation, pointer

__all__ = ["first_lanes", "load_f32_first_or"]


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
