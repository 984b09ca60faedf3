"""Panels of recurrent weights, 16 units each: of float32, or of whole numbers of 24 bits behind the vectors that scale them."""

from __future__ import annotations

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.rnn.microkernels.gates import add_four_sums, add_one_sum, add_three_sums, add_two_sums
from ort_sdk_cpu.rnn.microkernels.gates_int24 import (
    add_four_narrow_sums,
    add_one_narrow_sum,
    add_three_narrow_sums,
    add_two_narrow_sums,
)

__all__ = ["add_narrow_products", "add_products", "narrow_panel", "wide_panel"]

_SUMMED = 64
"""Products that are added up before their sum is added: fewer numbers are added one after the other, and less is rounded off."""


@inner
def wide_panel(panels: int, count: int, size: int, unit: int) -> int:
    """Address of the panel of float32 for ``count`` gates and ``size`` states that a unit is the first of."""
    return panels + unit * count * size * 4


@inner
def narrow_panel(panels: int, count: int, size: int, unit: int) -> int:
    """The same of whole numbers."""
    return panels + unit // 16 * count * (64 + size * 48)


@inner
def add_products(count: int, rows: int, panel: int, x: int, size: int, target: int) -> None:
    """Add the products of some states with a panel of ``count`` gates to their sums."""
    for start in range(0, size, _SUMMED):
        place, value, steps = panel + start * count * 64, x + start * 4, min(_SUMMED, size - start)
        if count == 4:
            add_four_sums(rows, place, value, size * 4, steps, target)
        elif count == 3:
            add_three_sums(rows, place, value, size * 4, steps, target)
        elif count == 2:
            add_two_sums(rows, place, value, size * 4, steps, target)
        else:
            add_one_sum(rows, place, value, size * 4, steps, target)


@inner
def add_narrow_products(count: int, rows: int, panel: int, x: int, size: int, target: int) -> None:
    """The same of a panel of whole numbers; ``size`` is a multiple of four."""
    for start in range(0, size, _SUMMED):
        place, value, steps = panel + count * (64 + start * 48), x + start * 4, min(_SUMMED, size - start)
        if count == 4:
            add_four_narrow_sums(rows, place, panel, value, size * 4, steps, target)
        elif count == 3:
            add_three_narrow_sums(rows, place, panel, value, size * 4, steps, target)
        elif count == 2:
            add_two_narrow_sums(rows, place, panel, value, size * 4, steps, target)
        else:
            add_one_narrow_sum(rows, place, panel, value, size * 4, steps, target)
