"""Operators of the math family."""

from . import (
    arithmetic,
    bitwise,
    clip,
    comparison,
    cumulative,
    einsum,
    elementwise,
    fourier,
    matrix,
    mel,
    modulo,
    power,
    special_values,
    variadic,
    window,
)

__all__ = [
    "arithmetic",
    "bitwise",
    "clip",
    "comparison",
    "cumulative",
    "einsum",
    "elementwise",
    "fourier",
    "matrix",
    "mel",
    "modulo",
    "power",
    "special_values",
    "variadic",
    "window",
]
