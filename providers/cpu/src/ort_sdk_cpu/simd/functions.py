"""Functions of float32 vectors, within two units in the last place but where they say otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit import inner

from .arithmetic import (
    add,
    divide,
    fused_multiply_add,
    maximum,
    minimum,
    multiply,
    round_to_even,
    scale_by_power_of_two,
    splat_f32,
    subtract,
)
from .rests import select_less

__all__ = ["erf", "exp", "exp_of_negative", "fast_gelu", "gelu", "sigmoid", "silu", "tanh"]

_F = np.float32
_LOG2_E = _F(1.44269504)
_MINUS_LN2_HIGH = _F(-0.693359375)
_MINUS_LN2_LOW = _F(2.12194440e-4)
_ZERO, _HALF, _ONE, _TWO = _F(0), _F(0.5), _F(1), _F(2)

_E2, _E3, _E4, _E5, _E6, _E7 = (_F(1 / divisor) for divisor in (2, 6, 24, 120, 720, 5040))
"""Of the exponential's series, enough for arguments up to ln(2) / 2."""

_LOWEST = _F(-87.3)
"""Below it the exponential is no normal number."""
_EXP_LIMIT = _F(104)

_ERF_LIMIT = _F(4.1)
_S0, _S1, _S2, _S3 = _F(1.12837927), _F(0.102769057), _F(-1.91832051e-4), _F(-6.1978382e-4)
_S4, _S5, _S6 = _F(8.76370838e-5), _F(-5.66844492e-6), _F(1.41850862e-7)
"""erf(z) = tanh(z * p(z * z)): p's coefficients, lowest power first, a minimax fit up to the limit, where erf rounds to 1."""

_ROOT_HALF = _F(0.70710678)
_GELU_SLOPE = _F(2 * 0.79788456)
_GELU_CUBIC = _F(2 * 0.79788456 * 0.044715)


@inner
def _reduced(x: Any) -> Any:
    """(whole k, r) with x = k ln 2 + r."""
    k = round_to_even(multiply(x, splat_f32(_LOG2_E)))
    r = fused_multiply_add(k, splat_f32(_MINUS_LN2_HIGH), x)
    return k, fused_multiply_add(k, splat_f32(_MINUS_LN2_LOW), r)


@inner
def _expm1_small(r: Any) -> Any:
    """exp(r) - 1 for small r."""
    p = fused_multiply_add(splat_f32(_E7), r, splat_f32(_E6))
    p = fused_multiply_add(p, r, splat_f32(_E5))
    p = fused_multiply_add(p, r, splat_f32(_E4))
    p = fused_multiply_add(p, r, splat_f32(_E3))
    p = fused_multiply_add(p, r, splat_f32(_E2))
    return fused_multiply_add(multiply(p, r), r, r)


@inner
def exp_of_negative(x: Any) -> Any:
    """exp(x) for x up to 0; 0 where it would be below 1e-38."""
    k, r = _reduced(maximum(splat_f32(_LOWEST), x))
    power = scale_by_power_of_two(splat_f32(_ONE), k)
    return select_less(x, splat_f32(_LOWEST), splat_f32(_ZERO), fused_multiply_add(_expm1_small(r), power, power))


@inner
def exp(x: Any) -> Any:
    """Exponential: infinite above 88.7, denormal numbers and 0 below -87.3; NaN stays."""
    k, r = _reduced(minimum(splat_f32(_EXP_LIMIT), maximum(splat_f32(-_EXP_LIMIT), x)))
    half = round_to_even(multiply(k, splat_f32(_HALF)))
    first = scale_by_power_of_two(splat_f32(_ONE), half)
    second = scale_by_power_of_two(splat_f32(_ONE), subtract(k, half))
    return multiply(fused_multiply_add(_expm1_small(r), first, first), second)


@inner
def _expm1_clamped(x: Any) -> Any:
    """exp(x) - 1 for x from -40 to 40, and its values there beyond."""
    k, r = _reduced(minimum(splat_f32(_F(40)), maximum(splat_f32(_F(-40)), x)))
    power = scale_by_power_of_two(splat_f32(_ONE), k)
    return fused_multiply_add(_expm1_small(r), power, subtract(power, splat_f32(_ONE)))


@inner
def tanh(x: Any) -> Any:
    """Hyperbolic tangent."""
    e = _expm1_clamped(add(x, x))
    return divide(e, add(e, splat_f32(_TWO)))


@inner
def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return divide(splat_f32(_ONE), add(splat_f32(_ONE), exp(subtract(splat_f32(_ZERO), x))))


@inner
def silu(x: Any, slope: float) -> Any:
    """X / (1 + exp(-slope * x))."""
    return divide(x, add(splat_f32(_ONE), exp(multiply(x, splat_f32(-slope)))))


@inner
def erf(x: Any) -> Any:
    """Error function."""
    z = minimum(splat_f32(_ERF_LIMIT), maximum(splat_f32(-_ERF_LIMIT), x))
    square = multiply(z, z)
    p = fused_multiply_add(splat_f32(_S6), square, splat_f32(_S5))
    p = fused_multiply_add(p, square, splat_f32(_S4))
    p = fused_multiply_add(p, square, splat_f32(_S3))
    p = fused_multiply_add(p, square, splat_f32(_S2))
    p = fused_multiply_add(p, square, splat_f32(_S1))
    p = fused_multiply_add(p, square, splat_f32(_S0))
    return tanh(multiply(z, p))


@inner
def gelu(x: Any) -> Any:
    """X * (1 + erf(x / sqrt 2)) / 2."""
    half = multiply(x, splat_f32(_HALF))
    return fused_multiply_add(half, erf(multiply(x, splat_f32(_ROOT_HALF))), half)


@inner
def fast_gelu(x: Any) -> Any:
    """Gelu approximated with tanh, as x / (1 + exp(-2 u)): nothing cancels where x is negative."""
    slope = fused_multiply_add(multiply(x, x), splat_f32(_GELU_CUBIC), splat_f32(_GELU_SLOPE))
    return divide(x, add(splat_f32(_ONE), exp(multiply(subtract(splat_f32(_ZERO), x), slope))))
