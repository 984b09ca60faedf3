"""As ``gates``, with states of uint8 and panels of int8, for LSTM's four gates.

A panel holds, for each four elements of K, one vector per gate: lane ``l`` has four weights of unit ``l``, which a dot-product
instruction (VNNI) multiplies and adds at once.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.simd.int8 import emit_dot_u8_i8
from ort_sdk_cpu.simd.ir_builder import advance, constant, emit_loop, emit_switch
from ort_sdk_cpu.simd.memory import emit_load, emit_store, splat
from ort_sdk_cpu.simd.vector_types import I32, VF32, VI32, operation

from .gates import UNIT_ROWS

__all__ = ["add_four_scaled_sums"]

_SUMS = 4
_WORD_BYTES, _VECTOR_BYTES = 4, 64


def _at(builder: Any, address: Any, vector: int) -> Any:
    return builder.add(address, constant(vector * _VECTOR_BYTES))


def _sums(builder: Any, rows: int, panel: Any, x: Any, x_row: Any, k_groups: Any) -> list[Any]:
    """LLVM code of the sums of all samples, as int32."""

    def iterate(_index: Any, values: list[Any]) -> list[Any]:
        weights, address, *sums = values
        # Weights are loaded once for all samples.
        vectors = [emit_load(builder, _at(builder, weights, index), VI32) for index in range(_SUMS)]
        found: list[Any] = []
        for row in range(rows):
            value = splat(builder, emit_load(builder, advance(builder, address, row, x_row), I32))
            for vector in vectors:
                found.append(emit_dot_u8_i8(builder, sums[len(found)], value, vector))
        return [_at(builder, weights, _SUMS), builder.add(address, constant(_WORD_BYTES)), *found]

    return emit_loop(builder, [panel, x, *[ir.Constant(VI32, None)] * (rows * _SUMS)], k_groups, iterate)[2:]


@operation(types.none, *[types.intp] * 6, types.int32, types.float32, types.intp)
def add_four_scaled_sums(
    builder: Any, rows: Any, panel: Any, x: Any, x_row: Any, k_groups: Any, columns: Any, zero_point: Any, scale: Any, target: Any
) -> None:
    """Add, for up to ``UNIT_ROWS`` rows, a row less its zero point times the panel, scaled, to the row's sums.

    A row is ``k_groups`` times four uint8, ``x_row`` bytes after the one before; its sums are four vectors of float32.
    ``columns`` is the address of four vectors of the weights' own sums, int32, and of four of their scales, float32.
    """
    zeros, scales = splat(builder, zero_point), splat(builder, scale)

    def emit(case: int) -> None:
        for index, total in enumerate(_sums(builder, case, panel, x, x_row, k_groups)):
            column, address = index % _SUMS, _at(builder, target, index)
            # sum((x - z) w) = sum(x w) - z sum(w): the zero point needs no pass over the states.
            less = builder.mul(zeros, emit_load(builder, _at(builder, columns, column), VI32))
            factors = builder.fmul(scales, emit_load(builder, _at(builder, columns, _SUMS + column), VF32))
            scaled = builder.fmul(builder.sitofp(builder.sub(total, less), VF32), factors)
            emit_store(builder, address, builder.fadd(scaled, emit_load(builder, address, VF32)))

    emit_switch(builder, rows, range(1, UNIT_ROWS + 1), emit)
