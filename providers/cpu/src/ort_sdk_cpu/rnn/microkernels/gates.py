"""Products of vectors with panels of a matrix, for layers whose units need several sums each: 16 units are lanes.

A panel holds, for each step along K, one vector per sum. So it is read from its beginning to its end, once, which the caches are
best at, and no sums across lanes are needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set
from ort_sdk_cpu.simd.ir_builder import constant, emit_choice, emit_if, emit_loop, emit_multiply_add, moved
from ort_sdk_cpu.simd.memory import emit_load, emit_store, splat
from ort_sdk_cpu.simd.vector_types import F32, VF32, operation

__all__ = [
    "UNIT_ROWS",
    "UNROLLED",
    "Panel",
    "add_four_sums",
    "add_one_sum",
    "add_three_sums",
    "add_two_sums",
]

_HAS_MANY_REGISTERS = instruction_set() >= InstructionSet.AVX512
UNIT_ROWS = 4 if _HAS_MANY_REGISTERS else 1
"""Most vectors multiplied at a time."""
UNROLLED = 4
"""Steps of a turn of the loop."""
_FLOAT_BYTES, _VECTOR_BYTES = 4, 64


def _chains(vectors: int) -> int:
    """Sums kept for each one wanted where there is one vector: adding to one takes several cycles."""
    return max(2, UNROLLED // vectors) if _HAS_MANY_REGISTERS else max(1, 2 // vectors)


class Panel:
    """LLVM code of products with a panel.

    Args:
        vectors: sums of a unit.
        rows: vectors multiplied with it.
        x_row: bytes from one to the next.
    """

    has_single_steps = True
    """Whether their number may be any; else it is a multiple of ``UNROLLED``."""

    def __init__(self, vectors: int, rows: int, x_row: Any) -> None:
        self._vectors, self._rows, self._x_row = vectors, rows, x_row
        self.chains = _chains(vectors) if rows == 1 else 1

    def vectors_of(self, builder: Any, panel: Any, steps: int) -> Iterator[list[Any]]:
        """The vectors of each of some steps."""
        for step in range(steps):
            places = [self.offset(builder, panel, step * self._vectors + index) for index in range(self._vectors)]
            yield [emit_load(builder, place, VF32) for place in places]

    def behind(self, builder: Any, panel: Any, steps: int) -> Any:
        """Where the step behind some is."""
        return self.offset(builder, panel, steps * self._vectors)

    def scaled(self, _builder: Any, total: Any, _vector: int) -> Any:
        """A sum of products as a sum of products of what the panel stands for."""
        return total

    def turn(self, builder: Any, values: list[Any], steps: int) -> list[Any]:
        """Some steps: the next of ``[panel, x, *sums]``."""
        panel, x, *sums = values
        for step, vectors in enumerate(self.vectors_of(builder, panel, steps)):
            first = step % self.chains * self._rows * self._vectors
            for row in range(self._rows):
                place = moved(builder, builder.add(x, constant(step * _FLOAT_BYTES)), row, self._x_row)
                value = splat(builder, emit_load(builder, place, F32))
                for index, vector in enumerate(vectors, first + row * self._vectors):
                    sums[index] = emit_multiply_add(builder, value, vector, sums[index])
        return [self.behind(builder, panel, steps), builder.add(x, constant(steps * _FLOAT_BYTES)), *sums]

    def loop(self, builder: Any, values: list[Any], count: Any, steps: int) -> list[Any]:
        """``count`` turns, if any."""
        turns = lambda values: emit_loop(builder, values, count, lambda _index, values: self.turn(builder, values, steps))  # noqa: E731
        return emit_if(builder, builder.icmp_signed(">", count, constant(0)), values, turns)

    def add_products(self, builder: Any, panel: Any, x: Any, count: Any, target: Any) -> None:
        """Add the sums of ``count`` steps to those at a place."""
        values = [panel, x] + [ir.Constant(VF32, None)] * (self._rows * self._vectors * self.chains)
        values = self.loop(builder, values, builder.sdiv(count, constant(UNROLLED)), UNROLLED)
        if self.has_single_steps:
            values = self.loop(builder, values, builder.srem(count, constant(UNROLLED)), 1)
        self._add_to(builder, target, values[2:])

    def _add_to(self, builder: Any, target: Any, sums: list[Any]) -> None:
        """Add the sums to those at a place."""
        wanted = self._rows * self._vectors
        for index in range(wanted):
            total = sums[index]
            for chain in range(1, self.chains):
                total = builder.fadd(total, sums[chain * wanted + index])
            total, place = self.scaled(builder, total, index % self._vectors), self.offset(builder, target, index)
            emit_store(builder, place, builder.fadd(total, emit_load(builder, place, VF32)))

    @staticmethod
    def offset(builder: Any, address: Any, vectors: int) -> Any:
        """An address some vectors on."""
        return builder.add(address, constant(vectors * _VECTOR_BYTES))


def _sums(name: str, vectors: int) -> Any:
    def add_sums(builder: Any, rows: Any, panel: Any, x: Any, x_row: Any, count: Any, target: Any) -> None:
        add = lambda case: Panel(vectors, case, x_row).add_products(builder, panel, x, count, target)  # noqa: E731
        emit_choice(builder, rows, range(1, UNIT_ROWS + 1), add)

    add_sums.__name__ = name
    return operation(types.none, *[types.intp] * 6)(add_sums)


add_one_sum, add_two_sums, add_three_sums, add_four_sums = (
    _sums(f"add_{count}_sums", number) for number, count in enumerate(("one", "two", "three", "four"), 1)
)
"""``add(rows, panel, x, x_row, count, target)``: add, for up to ``UNIT_ROWS`` rows, a row times the panel to the row's sums.

A row is ``count`` float32, ``x_row`` bytes behind the one before; its sums are as many vectors as the name says.
"""
