"""Products of rows of uint8 with panels of int8, for layers whose units need four sums each: 16 units are lanes.

A panel holds, for each step of four along K, one vector per sum: lane ``l`` has the four weights of unit ``l``.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.simd.int8_dot import emit_products
from ort_sdk_cpu.simd.ir_builder import constant, emit_choice, emit_loop, moved
from ort_sdk_cpu.simd.memory import emit_load, emit_store, splat
from ort_sdk_cpu.simd.vector_types import I32, VF32, VI32, operation

from .gates import UNIT_ROWS

__all__ = ["add_four_scaled_sums"]

_SUMS = 4
_WORD_BYTES, _VECTOR_BYTES = 4, 64


def _at(builder: Any, address: Any, vector: int) -> Any:
    return builder.add(address, constant(vector * _VECTOR_BYTES))


def _sums(builder: Any, rows: int, panel: Any, x: Any, x_row: Any, steps: Any) -> list[Any]:
    """LLVM code of the sums of all rows, as int32."""

    def step(_index: Any, values: list[Any]) -> list[Any]:
        weights, place, *sums = values
        vectors = [emit_load(builder, _at(builder, weights, index), VI32) for index in range(_SUMS)]
        found: list[Any] = []
        for row in range(rows):
            value = splat(builder, emit_load(builder, moved(builder, place, row, x_row), I32))
            for vector in vectors:
                found.append(emit_products(builder, sums[len(found)], value, vector))
        return [_at(builder, weights, _SUMS), builder.add(place, constant(_WORD_BYTES)), *found]

    return emit_loop(builder, [panel, x, *[ir.Constant(VI32, None)] * (rows * _SUMS)], steps, step)[2:]


@operation(types.none, *[types.intp] * 6, types.int32, types.float32, types.intp)
def add_four_scaled_sums(
    builder: Any, rows: Any, panel: Any, x: Any, x_row: Any, steps: Any, columns: Any, zero_point: Any, scale: Any, target: Any
) -> None:
    """Add, for up to ``UNIT_ROWS`` rows, a row less its zero point times the panel, scaled, to the row's sums.

    A row is ``steps`` times four uint8, ``x_row`` bytes behind the one before; its sums are four vectors of float32. ``columns``
    is the address of four vectors of the weights' own sums, int32, and of four of their scales, float32.
    """
    zeros, scales = splat(builder, zero_point), splat(builder, scale)

    def emit(case: int) -> None:
        for index, total in enumerate(_sums(builder, case, panel, x, x_row, steps)):
            column, place = index % _SUMS, _at(builder, target, index)
            less = builder.mul(zeros, emit_load(builder, _at(builder, columns, column), VI32))
            factors = builder.fmul(scales, emit_load(builder, _at(builder, columns, _SUMS + column), VF32))
            scaled = builder.fmul(builder.sitofp(builder.sub(total, less), VF32), factors)
            emit_store(builder, place, builder.fadd(scaled, emit_load(builder, place, VF32)))

    emit_choice(builder, rows, range(1, UNIT_ROWS + 1), emit)
