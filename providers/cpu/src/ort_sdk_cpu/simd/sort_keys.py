"""What sorts numbers by integers: keys of heaps, and the first of some lanes."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from .vector_types import I32, call, operation

__all__ = ["lowest_bit", "order_of"]

_I64 = ir.IntType(64)


@operation(types.intp, types.intp)
def lowest_bit(builder: Any, bits: Any) -> Any:
    """Its position, of a number that is not 0."""
    return call(builder, "llvm.cttz.i64", _I64, bits, ir.Constant(ir.IntType(1), 1))


@operation(types.intp, types.float32)
def order_of(builder: Any, value: Any) -> Any:
    """An integer as large beside others as a number is beside numbers; NaN is below all, and zeros have no sign."""
    bits = builder.bitcast(builder.fadd(value, ir.Constant(value.type, 0.0)), I32)
    turned = builder.xor(bits, ir.Constant(I32, 0x7FFFFFFF))
    found = builder.select(builder.icmp_signed("<", bits, ir.Constant(I32, 0)), turned, bits)
    is_number = builder.fcmp_ordered("==", value, value)
    return builder.sext(builder.select(is_number, found, ir.Constant(I32, -0x80000000)), _I64)
