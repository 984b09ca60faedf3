"""Functions the array API standard lacks, written with what it has.

The coefficients are minimax fits made for this module with 50-digit arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ort_sdk.api import Array

__all__ = ["erf", "erf_single"]

_SINGLE_LIMIT = 3.93
"""Where erf rounds to 1 in float32."""

_SINGLE_NUMERATOR = (1.12837914594, 0.190746350976, 0.0527847080506, 0.00377783641393, 0.000284741607035, 2.04190323462e-6)
_SINGLE_DENOMINATOR = (1.0, 0.502377281816, 0.114241469865, 0.0149939018221, 0.00116473253532, 3.79998685756e-5)

_NEAR_NUMERATOR = (
    1.12837916709551257,
    0.14350666413319467,
    0.0454836134430309874,
    0.0018774112614446142,
    0.000196884740493101026,
    7.77178348952653741e-8,
)
_NEAR_DENOMINATOR = (
    1.0,
    0.460512803070076207,
    0.0938130705901169385,
    0.010693079442720058,
    0.000692498232065063786,
    0.0000208102581870956569,
)
_FAR_NUMERATOR = (
    1.00000014853335337,
    1.68273945869289334,
    1.38714366968651181,
    0.69123373634469625,
    0.218223928684608816,
    0.0417210098163125734,
    0.00391925857989996511,
)
_FAR_DENOMINATOR = (
    1.0,
    2.81112008296582017,
    3.55914614358673138,
    2.64845356322327674,
    1.26216489607081417,
    0.390264508020854856,
    0.0739485920677593787,
    0.0069467044434466888,
)


def _polynomial(x: Array, coefficients: Sequence[float]) -> Array:
    """Horner's rule; operators on fresh temporaries, which NumPy then computes in place."""
    result = x * coefficients[-1] + coefficients[-2]
    for coefficient in coefficients[-3::-1]:
        result = result * x + coefficient
    return result


def _clamped(x: Array, low: float, high: float, xp: Any) -> Array:
    return xp.minimum(xp.maximum(x, xp.asarray(low, dtype=x.dtype)), xp.asarray(high, dtype=x.dtype))


def erf_single(x: Array, xp: Any) -> Array:
    """Error function of a float64 array to within 2e-8 of its value: enough for results rounded to float32."""
    z = _clamped(x, -_SINGLE_LIMIT, _SINGLE_LIMIT, xp)
    square = z * z
    return z * _polynomial(square, _SINGLE_NUMERATOR) / _polynomial(square, _SINGLE_DENOMINATOR)


def erf(x: Array, xp: Any) -> Array:
    """Error function of a float64 array, to a few units in the last place.

    x·P(x²)/Q(x²) up to 1, and 1 - exp(-x²)·R(x)/S(x) beyond.
    """
    magnitude = xp.abs(x)
    near = _clamped(x, -1.0, 1.0, xp)
    square = near * near
    near_value = near * _polynomial(square, _NEAR_NUMERATOR) / _polynomial(square, _NEAR_DENOMINATOR)
    far = _clamped(magnitude, 1.0, 6.0, xp)
    tail = xp.exp(-far * far) * _polynomial(far, _FAR_NUMERATOR) / _polynomial(far, _FAR_DENOMINATOR)
    far_value = xp.copysign(1.0 - tail, x)
    return xp.where(magnitude <= 1.0, near_value, far_value)
