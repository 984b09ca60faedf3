"""The error function in float32, and the Gaussian linear unit made of it.

erf(z) = tanh(z · p(z²)): NumPy's hyperbolic tangent is vectorised, and a polynomial of degree 6 keeps the relative error
below 1e-7, which a rational function needs twice the steps for. The coefficients are a minimax fit made for this module.
"""

from __future__ import annotations

import math

import numpy as np

from ort_sdk.api import HostArray

from .clip import clamp

__all__ = ["erf_float32", "gelu_float32"]

_LIMIT = np.float32(4.1)
"""Where erf has long rounded to 1, and so has the hyperbolic tangent of what it is given."""

_COEFFICIENTS = tuple(
    np.float32(coefficient)
    for coefficient in (1.12837927, 0.102769057, -1.91832051e-4, -6.1978382e-4, 8.76370838e-5, -5.66844492e-6, 1.41850862e-7)
)
"""Of p, lowest power first."""

_ROOT_HALF = np.float32(math.sqrt(0.5))
_ONE, _HALF = np.float32(1), np.float32(0.5)


def erf_float32(x: HostArray, out: HostArray) -> None:
    """Error function; ``x`` may be ``out``."""
    clamp(x, -_LIMIT, _LIMIT, out)
    square = np.asarray(out * out)
    slope = np.asarray(square * _COEFFICIENTS[-1])
    for coefficient in _COEFFICIENTS[-2:0:-1]:
        np.add(slope, coefficient, out=slope)
        np.multiply(slope, square, out=slope)
    np.add(slope, _COEFFICIENTS[0], out=slope)
    np.multiply(out, slope, out=out)
    np.tanh(out, out=out)


def gelu_float32(x: HostArray, out: HostArray) -> None:
    """X·Φ(x); ``x`` may be ``out``."""
    density = np.asarray(x * _ROOT_HALF)
    erf_float32(density, density)
    np.add(density, _ONE, out=density)
    np.multiply(density, x, out=density)
    np.multiply(density, _HALF, out=out)
