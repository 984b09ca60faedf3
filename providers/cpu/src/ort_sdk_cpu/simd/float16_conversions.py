"""LLVM code of conversions between float16 and float32: single instructions, or arithmetic on bits where there are none.

Without the instructions LLVM calls a function of the compiler's runtime library for each lane, which no process is sure to have.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ort_sdk_cpu.platform.cpu_features import has_float16_conversions

from .vector_types import LANES, VF32, VI32

__all__ = ["VF16", "VI16", "emit_narrow", "emit_widen"]

VF16, VI16 = ir.VectorType(ir.HalfType(), LANES), ir.VectorType(ir.IntType(16), LANES)

_MANTISSA_STEP = 13
"""Bits of a float32's mantissa below those of a float16's."""
_INFINITY_16, _QUIET_16, _MAGNITUDE_16 = 0x7C00, 0x7E00, 0x7FFF
_INFINITY_32 = 0x7F800000
_SMALLEST_NORMAL, _TOO_LARGE = 113 << 23, 143 << 23
"""Bits of float32 numbers: 2 ** -14, below which a float16 has fewer digits, and 2 ** 16, which none reaches."""
_REBIAS = 2.0**112
"""Ratio of two numbers with the same bits in exponent and mantissa, one float32 and one float16 of as many bits."""
_HALF = 126 << 23
"""Bits of 0.5: its last digit, added to a number below ``_SMALLEST_NORMAL``, is that of a float16 there."""


def _constant(value: int) -> Any:
    return ir.Constant(VI32, [value & 0xFFFFFFFF] * LANES)


def emit_widen(builder: Any, words: Any) -> Any:
    """LLVM code of the float32 of 16 float16, which are exact.

    Args:
        builder: of LLVM code.
        words: the float16, as integers of 16 bits.
    """
    if has_float16_conversions():
        return builder.fpext(builder.bitcast(words, VF16), VF32)
    wide = builder.zext(words, VI32)
    magnitude = builder.and_(wide, _constant(_MAGNITUDE_16))
    shifted = builder.shl(magnitude, _constant(_MANTISSA_STEP))
    # A product, not a sum of exponents: it makes normal numbers of those that are not.
    number = builder.bitcast(builder.fmul(builder.bitcast(shifted, VF32), ir.Constant(VF32, [_REBIAS] * LANES)), VI32)
    is_special = builder.icmp_unsigned(">=", magnitude, _constant(_INFINITY_16))
    found = builder.select(is_special, builder.or_(shifted, _constant(_INFINITY_32)), number)
    sign = builder.shl(builder.and_(wide, _constant(0x8000)), _constant(16))
    return builder.bitcast(builder.or_(found, sign), VF32)


def emit_narrow(builder: Any, value: Any) -> Any:
    """LLVM code of the float16 of 16 float32, rounded to nearest, ties to even, as integers of 16 bits."""
    if has_float16_conversions():
        return builder.bitcast(builder.fptrunc(value, VF16), VI16)
    bits = builder.bitcast(value, VI32)
    magnitude = builder.and_(bits, _constant(0x7FFFFFFF))
    is_small = builder.icmp_unsigned("<", magnitude, _constant(_SMALLEST_NORMAL))
    is_large = builder.icmp_unsigned(">=", magnitude, _constant(_TOO_LARGE))
    found = builder.select(is_small, _small(builder, magnitude), _rounded(builder, magnitude))
    found = builder.select(is_large, _large(builder, magnitude), found)
    sign = builder.lshr(builder.and_(bits, _constant(0x80000000)), _constant(16))
    return builder.trunc(builder.or_(found, sign), VI16)


def _small(builder: Any, magnitude: Any) -> Any:
    """Of numbers with fewer digits: an addition rounds to the digits that are left."""
    total = builder.fadd(builder.bitcast(magnitude, VF32), builder.bitcast(_constant(_HALF), VF32))
    return builder.sub(builder.bitcast(total, VI32), _constant(_HALF))


def _rounded(builder: Any, magnitude: Any) -> Any:
    is_odd = builder.and_(builder.lshr(magnitude, _constant(_MANTISSA_STEP)), _constant(1))
    # Less than half of a digit, so that a tie is rounded up if the digit before is odd; a carry goes on into the exponent.
    moved = builder.add(magnitude, _constant((-112 << 23) + (1 << (_MANTISSA_STEP - 1)) - 1))
    return builder.lshr(builder.add(moved, is_odd), _constant(_MANTISSA_STEP))


def _large(builder: Any, magnitude: Any) -> Any:
    """Infinity, or NaN with what fits of its payload."""
    payload = builder.and_(builder.lshr(magnitude, _constant(_MANTISSA_STEP)), _constant(0x3FF))
    is_nan = builder.icmp_unsigned(">", magnitude, _constant(_INFINITY_32))
    return builder.select(is_nan, builder.or_(payload, _constant(_QUIET_16)), _constant(_INFINITY_16))
