"""As ``gates``, with panels of 24-bit fixed-point weights: a quarter less comes from the caches.

Four vectors of weights are stored as three: the upper 24 bits of their lanes are the first three vectors' weights, and their
lowest bytes are the fourth's, the highest byte first. The first three are used with all 32 bits, since packing rounds with the
lowest byte in mind: unpacking takes three shifts, masks and ors for four vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.simd.ir_builder import emit_switch
from ort_sdk_cpu.simd.memory import emit_load
from ort_sdk_cpu.simd.vector_types import LANES, VF32, VI32, operation

from .gates import UNIT_ROWS, Panel

__all__ = ["add_four_int24_sums", "add_one_int24_sum", "add_three_int24_sums", "add_two_int24_sums"]

_UNPACKED, _PACKED = 4, 3
"""Vectors of weights of a group, and vectors that store them."""


class _Int24Panel(Panel):
    """LLVM code of products with such a panel.

    Args:
        vectors, rows, x_row: as of ``Panel``.
        scales: address of the vectors that the sums are multiplied by.
    """

    takes_any_k = False

    def __init__(self, vectors: int, rows: int, x_row: Any, scales: Any) -> None:
        super().__init__(vectors, rows, x_row)
        self._scales = scales

    def vectors_of(self, builder: Any, panel: Any, count_k: int) -> Iterator[list[Any]]:
        ready: list[Any] = []
        group = 0
        # Vectors of an element of K are not those of a group: groups are unpacked when the next vectors are needed.
        for _ in range(count_k):
            while len(ready) < self._vectors:
                ready += self._group(builder, self.offset(builder, panel, group * _PACKED))
                group += 1
            yield ready[: self._vectors]
            ready = ready[self._vectors :]

    def after(self, builder: Any, panel: Any, count_k: int) -> Any:
        return self.offset(builder, panel, count_k * self._vectors // _UNPACKED * _PACKED)

    def scaled(self, builder: Any, total: Any, vector: int) -> Any:
        # The scale of a unit and gate is the same for all of K, so sums are scaled, not weights.
        return builder.fmul(total, emit_load(builder, self.offset(builder, self._scales, vector), VF32))

    @staticmethod
    def _group(builder: Any, address: Any) -> list[Any]:
        packed = [emit_load(builder, Panel.offset(builder, address, index), VI32) for index in range(_PACKED)]
        last = ir.Constant(VI32, None)
        for index, value in enumerate(packed):
            shift, mask = 24 - 8 * index, 0xFF << (24 - 8 * index)
            moved = builder.shl(value, ir.Constant(VI32, [shift] * LANES))
            last = builder.or_(last, builder.and_(moved, ir.Constant(VI32, [mask] * LANES)))
        # As integers of 32 bits: a scale has the factor 2**-31 in it.
        return [builder.sitofp(value, VF32) for value in (*packed, last)]


def _sums(name: str, vectors: int) -> Any:
    def add_sums(builder: Any, rows: Any, panel: Any, scales: Any, x: Any, x_row: Any, count: Any, target: Any) -> None:
        add = lambda case: _Int24Panel(vectors, case, x_row, scales).add_products(builder, panel, x, count, target)  # noqa: E731
        emit_switch(builder, rows, range(1, UNIT_ROWS + 1), add)

    add_sums.__name__ = name
    return operation(types.none, *[types.intp] * 7)(add_sums)


add_one_int24_sum = _sums("add_one_int24_sum", 1)
add_two_int24_sums, add_three_int24_sums, add_four_int24_sums = (
    _sums(f"add_{count}_int24_sums", number) for number, count in enumerate(("two", "three", "four"), 2)
)
"""``add(rows, panel, scales, x, x_row, count, target)``: as ``gates.add_*``, for K that is a multiple of ``UNROLLED``; sums of
products with fixed-point weights are multiplied by the vectors at ``scales`` before they are added.
"""
