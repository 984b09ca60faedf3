"""Panels of recurrent weights, 16 hidden units each: of float32, or of 24-bit fixed point after the vectors that scale them."""

from __future__ import annotations

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.rnn.microkernels.gates import add_four_sums, add_one_sum, add_three_sums, add_two_sums
from ort_sdk_cpu.rnn.microkernels.gates_int24 import (
    add_four_int24_sums,
    add_one_int24_sum,
    add_three_int24_sums,
    add_two_int24_sums,
)

__all__ = ["add_int24_products", "add_products", "int24_panel", "wide_panel"]

_SUMMED = 64
"""Products whose sum is added as one: the rounding error of a sum grows with its longest chain of additions (Higham 1993)."""


@inline
def wide_panel(panels: int, count: int, size: int, unit: int) -> int:
    """Address of the panel of float32, for ``count`` gates and ``size`` states, whose first unit this is."""
    return panels + unit * count * size * 4


@inline
def int24_panel(panels: int, count: int, size: int, unit: int) -> int:
    """The same of fixed-point weights."""
    return panels + unit // 16 * count * (64 + size * 48)


@inline
def add_products(count: int, rows: int, panel: int, x: int, size: int, target: int) -> None:
    """Add the products of some states with a panel of ``count`` gates to their sums."""
    # Sums of 64 products in registers, added to the sums in memory: see ``_SUMMED``.
    for start in range(0, size, _SUMMED):
        weights, value, k = panel + start * count * 64, x + start * 4, min(_SUMMED, size - start)
        # The number of gates is constant where this is inlined: one call is left.
        if count == 4:
            add_four_sums(rows, weights, value, size * 4, k, target)
        elif count == 3:
            add_three_sums(rows, weights, value, size * 4, k, target)
        elif count == 2:
            add_two_sums(rows, weights, value, size * 4, k, target)
        else:
            add_one_sum(rows, weights, value, size * 4, k, target)


@inline
def add_int24_products(count: int, rows: int, panel: int, x: int, size: int, target: int) -> None:
    """The same of a panel of fixed-point weights; ``size`` is a multiple of four."""
    for start in range(0, size, _SUMMED):
        weights, value, k = panel + count * (64 + start * 48), x + start * 4, min(_SUMMED, size - start)
        if count == 4:
            add_four_int24_sums(rows, weights, panel, value, size * 4, k, target)
        elif count == 3:
            add_three_int24_sums(rows, weights, panel, value, size * 4, k, target)
        elif count == 2:
            add_two_int24_sums(rows, weights, panel, value, size * 4, k, target)
        else:
            add_one_int24_sum(rows, weights, panel, value, size * 4, k, target)
