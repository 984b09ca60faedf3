"""Products of vectors with panels of whole numbers of 24 bits, as ``unit_sums``: a quarter less comes from the caches.

Of each four vectors of a panel there are three: the upper 24 bits of their lanes are those of the first three, and their lowest
bytes are the fourth, the highest byte first. So the first three are read with 32 bits, of which the lowest mean little.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.simd.ir_builder import emit_choice
from ort_sdk_cpu.simd.memory import emit_load
from ort_sdk_cpu.simd.vector_types import LANES, VF32, VI32, operation

from .gates import UNIT_ROWS, Panel

__all__ = ["add_four_narrow_sums", "add_one_narrow_sum", "add_three_narrow_sums", "add_two_narrow_sums"]

_UNPACKED, _PACKED = 4, 3
"""Vectors of a group, and those that they are made of."""


class _NarrowPanel(Panel):
    """LLVM code of products with such a panel.

    Args:
        vectors, rows, x_row: as of ``Panel``.
        scales: address of the vectors to multiply the sums by.
    """

    has_single_steps = False

    def __init__(self, vectors: int, rows: int, x_row: Any, scales: Any) -> None:
        super().__init__(vectors, rows, x_row)
        self._scales = scales

    def vectors_of(self, builder: Any, panel: Any, steps: int) -> Iterator[list[Any]]:
        ready: list[Any] = []
        group = 0
        for _ in range(steps):
            while len(ready) < self._vectors:
                ready += self._group(builder, self.offset(builder, panel, group * _PACKED))
                group += 1
            yield ready[: self._vectors]
            ready = ready[self._vectors :]

    def behind(self, builder: Any, panel: Any, steps: int) -> Any:
        return self.offset(builder, panel, steps * self._vectors // _UNPACKED * _PACKED)

    def scaled(self, builder: Any, total: Any, vector: int) -> Any:
        return builder.fmul(total, emit_load(builder, self.offset(builder, self._scales, vector), VF32))

    @staticmethod
    def _group(builder: Any, place: Any) -> list[Any]:
        packed = [emit_load(builder, Panel.offset(builder, place, index), VI32) for index in range(_PACKED)]
        last = ir.Constant(VI32, None)
        for index, value in enumerate(packed):
            shift, mask = 24 - 8 * index, 0xFF << (24 - 8 * index)
            moved = builder.shl(value, ir.Constant(VI32, [shift] * LANES))
            last = builder.or_(last, builder.and_(moved, ir.Constant(VI32, [mask] * LANES)))
        return [builder.sitofp(value, VF32) for value in (*packed, last)]


def _sums(name: str, vectors: int) -> Any:
    def add_sums(builder: Any, rows: Any, panel: Any, scales: Any, x: Any, x_row: Any, count: Any, target: Any) -> None:
        add = lambda case: _NarrowPanel(vectors, case, x_row, scales).add_products(builder, panel, x, count, target)  # noqa: E731
        emit_choice(builder, rows, range(1, UNIT_ROWS + 1), add)

    add_sums.__name__ = name
    return operation(types.none, *[types.intp] * 7)(add_sums)


add_one_narrow_sum = _sums("add_one_narrow_sum", 1)
add_two_narrow_sums, add_three_narrow_sums, add_four_narrow_sums = (
    _sums(f"add_{count}_narrow_sums", number) for number, count in enumerate(("two", "three", "four"), 2)
)
"""``add(rows, panel, scales, x, x_row, count, target)``: as ``unit_sums.add_*``, for multiples of ``UNROLLED`` steps; the sums
of products with whole numbers are multiplied by the vectors at ``scales`` before they are added.
"""
