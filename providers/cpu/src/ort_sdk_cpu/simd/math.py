"""Elementary functions of float32 vectors, with errors up to 2 ulp."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit.numba_frontend import inline

from .arithmetic import (
    absolute,
    add,
    divide,
    fused_multiply_add,
    maximum,
    minimum,
    multiply,
    round_to_even,
    scale_by_power_of_two,
    select_less,
    splat_f32,
    subtract,
)

__all__ = ["erf", "exp", "exp_nonpositive", "expm1_nonpositive", "fast_gelu", "gelu", "sigmoid", "silu", "tanh"]

_F = np.float32
_LOG2_E = _F(1.44269504)
_MINUS_LN2_HIGH = _F(-0.693359375)
_MINUS_LN2_LOW = _F(2.12194440e-4)
"""-ln(2) as a sum, so that k ln(2) is subtracted without rounding (Cody and Waite, 1980; constants of Cephes)."""
_ZERO, _HALF, _ONE, _TWO = _F(0), _F(0.5), _F(1), _F(2)

_E2, _E3, _E4, _E5, _E6, _E7 = (_F(1 / divisor) for divisor in (2, 6, 24, 120, 720, 5040))
"""Coefficients of the exponential's Taylor series, which suffice for arguments up to ln(2) / 2."""

_LOWEST = _F(-87.3)
"""Least argument whose exponential is a normal number."""
_EXP_LIMIT = _F(104)
"""Arguments beyond it have an exponential of infinity or 0."""

_P1, _P2, _P3, _P4, _P5 = (_F(number) for number in (0.693147004, 0.240222424, 0.0555073358, 0.00967151299, 0.00132647227))
"""Coefficients of 2**r for r from -1/2 to 1/2: a minimax polynomial, as those below."""

_NEAR = _F(1)
"""Below it erf(x) = x + x * n(x * x), from it on erf(x) = 1 - 2**t(x): n and t are polynomials."""
_N0, _N1, _N2, _N3 = _F(0.128379166), _F(-0.37612626), _F(0.112835854), _F(-0.0268538147)
_N4, _N5, _N6 = _F(0.0051883324), _F(-0.000801023096), _F(7.85397424e-05)
_FAR = _F(4)
"""From about here on erf rounds to 1, and t(x) is not fitted."""
_T0, _T1, _T2, _T3 = _F(-0.000822893926), _F(-1.62466562), _F(-0.923010588), _F(-0.146635696)
_T4, _T5, _T6 = _F(0.0304602869), _F(-0.00398270134), _F(0.000240469366)

_G1, _G2, _G3, _G4 = _F(-1.15110588), _F(-0.45920074), _F(-0.052519884), _F(0.00709253084)
_G5, _G6, _G7 = _F(-0.000146876657), _F(-0.000193651576), _F(4.6604684e-05)
_G8, _G9 = _F(-4.94849019e-06), _F(2.10082291e-07)
"""The upper tail of the normal distribution is 2**(g(x) - 1) for x up to 5.5; at 10 it is negligible beside x."""
_GELU_LIMIT = _F(10)

_GELU_SLOPE = _F(2 * 0.79788456)
_GELU_CUBIC = _F(2 * 0.79788456 * 0.044715)


@inline
def _reduced(x: Any) -> Any:
    """Argument reduction: (k, r) with x = k ln 2 + r, k an integer."""
    k = round_to_even(multiply(x, splat_f32(_LOG2_E)))
    r = fused_multiply_add(k, splat_f32(_MINUS_LN2_HIGH), x)
    return k, fused_multiply_add(k, splat_f32(_MINUS_LN2_LOW), r)


@inline
def _expm1_small(r: Any) -> Any:
    """exp(r) - 1 for small r."""
    p = fused_multiply_add(splat_f32(_E7), r, splat_f32(_E6))
    p = fused_multiply_add(p, r, splat_f32(_E5))
    p = fused_multiply_add(p, r, splat_f32(_E4))
    p = fused_multiply_add(p, r, splat_f32(_E3))
    p = fused_multiply_add(p, r, splat_f32(_E2))
    return fused_multiply_add(multiply(p, r), r, r)


@inline
def exp_nonpositive(x: Any) -> Any:
    """exp(x) for x up to 0; 0 where it would be below 1e-38."""
    k, r = _reduced(maximum(splat_f32(_LOWEST), x))
    power = scale_by_power_of_two(splat_f32(_ONE), k)
    return select_less(x, splat_f32(_LOWEST), splat_f32(_ZERO), fused_multiply_add(_expm1_small(r), power, power))


@inline
def exp(x: Any) -> Any:
    """Exponential: infinite above 88.7, denormal numbers and 0 below -87.3; NaN stays."""
    k, r = _reduced(minimum(splat_f32(_EXP_LIMIT), maximum(splat_f32(-_EXP_LIMIT), x)))
    # Scaled in two steps: 2**k itself overflows, or is denormal, at the ends of the range.
    half = round_to_even(multiply(k, splat_f32(_HALF)))
    first = scale_by_power_of_two(splat_f32(_ONE), half)
    second = scale_by_power_of_two(splat_f32(_ONE), subtract(k, half))
    return multiply(fused_multiply_add(_expm1_small(r), first, first), second)


@inline
def _expm1_clamped(x: Any) -> Any:
    """exp(x) - 1 for x from -40 to 40; arguments beyond are clamped."""
    k, r = _reduced(minimum(splat_f32(_F(40)), maximum(splat_f32(_F(-40)), x)))
    power = scale_by_power_of_two(splat_f32(_ONE), k)
    return fused_multiply_add(_expm1_small(r), power, subtract(power, splat_f32(_ONE)))


@inline
def expm1_nonpositive(x: Any) -> Any:
    """exp(x) - 1 for x up to 0."""
    return _expm1_clamped(x)


@inline
def tanh(x: Any) -> Any:
    """Hyperbolic tangent."""
    e = _expm1_clamped(add(x, x))
    return divide(e, add(e, splat_f32(_TWO)))


@inline
def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return divide(splat_f32(_ONE), add(splat_f32(_ONE), exp(subtract(splat_f32(_ZERO), x))))


@inline
def silu(x: Any, slope: float) -> Any:
    """X / (1 + exp(-slope * x))."""
    return divide(x, add(splat_f32(_ONE), exp(multiply(x, splat_f32(-slope)))))


@inline
def _power_of_two(x: Any) -> Any:
    """2**x for x from -126 to 0."""
    k = round_to_even(x)
    r = subtract(x, k)
    p = fused_multiply_add(splat_f32(_P5), r, splat_f32(_P4))
    p = fused_multiply_add(p, r, splat_f32(_P3))
    p = fused_multiply_add(p, r, splat_f32(_P2))
    p = fused_multiply_add(p, r, splat_f32(_P1))
    return scale_by_power_of_two(fused_multiply_add(p, r, splat_f32(_ONE)), k)


@inline
def _erf_near(x: Any) -> Any:
    square = multiply(x, x)
    p = fused_multiply_add(splat_f32(_N6), square, splat_f32(_N5))
    p = fused_multiply_add(p, square, splat_f32(_N4))
    p = fused_multiply_add(p, square, splat_f32(_N3))
    p = fused_multiply_add(p, square, splat_f32(_N2))
    p = fused_multiply_add(p, square, splat_f32(_N1))
    p = fused_multiply_add(p, square, splat_f32(_N0))
    return fused_multiply_add(p, x, x)


@inline
def erf(x: Any) -> Any:
    """Error function."""
    size = minimum(splat_f32(_FAR), absolute(x))
    p = fused_multiply_add(splat_f32(_T6), size, splat_f32(_T5))
    p = fused_multiply_add(p, size, splat_f32(_T4))
    p = fused_multiply_add(p, size, splat_f32(_T3))
    p = fused_multiply_add(p, size, splat_f32(_T2))
    p = fused_multiply_add(p, size, splat_f32(_T1))
    tail = _power_of_two(fused_multiply_add(p, size, splat_f32(_T0)))
    one = splat_f32(_ONE)
    far = select_less(x, splat_f32(_ZERO), subtract(tail, one), subtract(one, tail))
    return select_less(size, splat_f32(_NEAR), _erf_near(x), far)


@inline
def gelu(x: Any) -> Any:
    """X * (1 + erf(x / sqrt 2)) / 2, as max(x, 0) - abs(x) * (upper tail of the normal distribution), without cancellation.

    max(x, 0) is computed as (abs(x) + x) / 2, so that minus infinity gives NaN as in the definition.
    """
    magnitude, half = absolute(x), splat_f32(_HALF)
    size = minimum(splat_f32(_GELU_LIMIT), magnitude)
    p = fused_multiply_add(splat_f32(_G9), size, splat_f32(_G8))
    p = fused_multiply_add(p, size, splat_f32(_G7))
    p = fused_multiply_add(p, size, splat_f32(_G6))
    p = fused_multiply_add(p, size, splat_f32(_G5))
    p = fused_multiply_add(p, size, splat_f32(_G4))
    p = fused_multiply_add(p, size, splat_f32(_G3))
    p = fused_multiply_add(p, size, splat_f32(_G2))
    p = fused_multiply_add(p, size, splat_f32(_G1))
    tail = _power_of_two(fused_multiply_add(p, size, splat_f32(-_ONE)))
    return subtract(fused_multiply_add(magnitude, half, multiply(x, half)), multiply(size, tail))


@inline
def fast_gelu(x: Any) -> Any:
    """Gelu approximated with tanh, as x / (1 + exp(-2 u)), without cancellation for negative x."""
    slope = fused_multiply_add(multiply(x, x), splat_f32(_GELU_CUBIC), splat_f32(_GELU_SLOPE))
    return divide(x, add(splat_f32(_ONE), exp(multiply(subtract(splat_f32(_ZERO), x), slope))))
