"""Micro-kernel of recurrent layers: hidden states times a panel of recurrent weights, with all gates of 16 units.

A panel holds, for each element of the state (K), one vector of 16 units per gate. So it is read once, from its beginning to its
end, which the processor's prefetchers do best, and no sums across lanes are needed. It is a GEMV with one sample, and a GEMM's
tile with up to four, which share each load of weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set
from ort_sdk_cpu.simd.ir_builder import advance, constant, emit_fma, emit_if, emit_loop, emit_switch
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
# Registers bound the tile: samples times gates sums, a vector of weights and a broadcast element.
UNIT_ROWS = 4 if _HAS_MANY_REGISTERS else 1
"""Most samples of a tile: four of four gates are 16 of AVX-512's 32 registers; elsewhere one of four gates takes 8 of 16."""
UNROLLED = 4
"""Elements of K in an iteration of the loop."""
_FLOAT_BYTES, _VECTOR_BYTES = 4, 64


def _chains(vectors: int) -> int:
    """Independent sums for each one wanted, of a single sample.

    A chain of multiply-adds waits 4 cycles for each, and up to two can start in a cycle.
    """
    return max(2, UNROLLED // vectors) if _HAS_MANY_REGISTERS else max(1, 2 // vectors)


class Panel:
    """LLVM code of products with a panel.

    Args:
        vectors: gates, of which each is a vector per element of K.
        rows: samples.
        x_row: bytes from one sample to the next.
    """

    takes_any_k = True
    """Whether K may be any number; else it is a multiple of ``UNROLLED``."""

    def __init__(self, vectors: int, rows: int, x_row: Any) -> None:
        self._vectors, self._rows, self._x_row = vectors, rows, x_row
        # Several samples are independent sums already.
        self.chains = _chains(vectors) if rows == 1 else 1

    def vectors_of(self, builder: Any, panel: Any, count_k: int) -> Iterator[list[Any]]:
        """The vectors of each of some elements of K."""
        for k in range(count_k):
            addresses = [self.offset(builder, panel, k * self._vectors + index) for index in range(self._vectors)]
            yield [emit_load(builder, address, VF32) for address in addresses]

    def after(self, builder: Any, panel: Any, count_k: int) -> Any:
        """Address of the element of K after some."""
        return self.offset(builder, panel, count_k * self._vectors)

    def scaled(self, _builder: Any, total: Any, _vector: int) -> Any:
        """A sum of products with stored weights as one of products with weights."""
        return total

    def iterate(self, builder: Any, values: list[Any], count_k: int) -> list[Any]:
        """An iteration over some elements of K: from ``[panel, x, *sums]`` the next ones."""
        panel, x, *sums = values
        for k, vectors in enumerate(self.vectors_of(builder, panel, count_k)):
            # Chains take turns by elements of K, and are added up at the end.
            first = k % self.chains * self._rows * self._vectors
            for row in range(self._rows):
                address = advance(builder, builder.add(x, constant(k * _FLOAT_BYTES)), row, self._x_row)
                # The element is broadcast by the load: it takes no shuffle.
                value = splat(builder, emit_load(builder, address, F32))
                for index, vector in enumerate(vectors, first + row * self._vectors):
                    sums[index] = emit_fma(builder, value, vector, sums[index])
        return [self.after(builder, panel, count_k), builder.add(x, constant(count_k * _FLOAT_BYTES)), *sums]

    def loop(self, builder: Any, values: list[Any], count: Any, count_k: int) -> list[Any]:
        """``count`` iterations, if any."""
        body = lambda _index, values: self.iterate(builder, values, count_k)  # noqa: E731
        iterations = lambda values: emit_loop(builder, values, count, body)  # noqa: E731
        return emit_if(builder, builder.icmp_signed(">", count, constant(0)), values, iterations)

    def add_products(self, builder: Any, panel: Any, x: Any, count: Any, target: Any) -> None:
        """Add the sums over ``count`` elements of K to those at an address."""
        values = [panel, x] + [ir.Constant(VF32, None)] * (self._rows * self._vectors * self.chains)
        # Iterations of four elements, and single ones for the remainder.
        values = self.loop(builder, values, builder.sdiv(count, constant(UNROLLED)), UNROLLED)
        if self.takes_any_k:
            values = self.loop(builder, values, builder.srem(count, constant(UNROLLED)), 1)
        self._add_to(builder, target, values[2:])

    def _add_to(self, builder: Any, target: Any, sums: list[Any]) -> None:
        """Add up chains, and add the sums to those at an address."""
        wanted = self._rows * self._vectors
        for index in range(wanted):
            total = sums[index]
            for chain in range(1, self.chains):
                total = builder.fadd(total, sums[chain * wanted + index])
            total, address = self.scaled(builder, total, index % self._vectors), self.offset(builder, target, index)
            emit_store(builder, address, builder.fadd(total, emit_load(builder, address, VF32)))

    @staticmethod
    def offset(builder: Any, address: Any, vectors: int) -> Any:
        """An address so many vectors on."""
        return builder.add(address, constant(vectors * _VECTOR_BYTES))


def _sums(name: str, vectors: int) -> Any:
    def add_sums(builder: Any, rows: Any, panel: Any, x: Any, x_row: Any, count: Any, target: Any) -> None:
        add = lambda case: Panel(vectors, case, x_row).add_products(builder, panel, x, count, target)  # noqa: E731
        emit_switch(builder, rows, range(1, UNIT_ROWS + 1), add)

    add_sums.__name__ = name
    return operation(types.none, *[types.intp] * 6)(add_sums)


add_one_sum, add_two_sums, add_three_sums, add_four_sums = (
    _sums(f"add_{count}_sums", number) for number, count in enumerate(("one", "two", "three", "four"), 1)
)
"""``add(rows, panel, x, x_row, count, target)``: add, for up to ``UNIT_ROWS`` rows, a row times the panel to the row's sums.

A row is ``count`` float32, ``x_row`` bytes after the one before; its sums are as many vectors as the name says.
"""
