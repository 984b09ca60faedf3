"""Tiles of a float32 product both of whose operands were laid out for it.

The second operand is in panels of ``COLUMNS`` vectors for each step along K, one step behind the other. Of the first one, a group
has one number of each row for each step. So a tile reads two pieces of memory from their beginnings to their ends: the caches see
what comes next, the rows need one pointer together, and instructions that multiply can read their numbers themselves.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from ort_sdk_cpu.simd.ir_builder import constant, emit_choice, emit_if, emit_loop, emit_prefetch
from ort_sdk_cpu.simd.memory import emit_load
from ort_sdk_cpu.simd.vector_types import VF32, operation

from .sgemm import COLUMNS, MULTIPLIES_MEMORY, ROWS, Number, emit_step, emit_target

__all__ = ["AHEAD_BYTES", "STEPS_AT_ONCE", "STEP_BYTES", "packed_tile"]

_FLOAT_BYTES, _LINE_BYTES = 4, 64
STEP_BYTES = COLUMNS * _LINE_BYTES
"""Of a panel, for each step along K."""
STEPS_AT_ONCE = 4
"""Between which nothing is counted."""
AHEAD_BYTES = STEPS_AT_ONCE * STEP_BYTES
"""Most that is asked for with so many steps."""
_SUMS_AT_ONCE = 8
"""Vectors that are added to at the same time at least: an addition takes as long as so many begin in."""
_ROWS_OF_READER = 3
"""Of so many rows, one's number is read by the instructions that multiply: that saves one that would read it before, but reads it
as many times as there are columns."""


class _Operands(NamedTuple):
    """LLVM values: addresses of a tile's operands, of what is brought into the second cache, and how far that goes on."""

    rows: int
    panel: Any
    group: Any
    count: Any
    ahead: Any
    ahead_step: Any


def _step(builder: Any, rows: int, panel: Any, group: Any, step: int, sums: list[Any]) -> list[Any]:
    """Sums after one step."""
    start = step * STEP_BYTES
    places = [builder.add(panel, constant(start + column * _LINE_BYTES)) for column in range(COLUMNS)]
    vectors = [emit_load(builder, place, VF32) for place in places]
    numbers = [
        Number(group, (step * rows + row) * _FLOAT_BYTES, MULTIPLIES_MEMORY and row % _ROWS_OF_READER == 0) for row in range(rows)
    ]
    return emit_step(builder, vectors, numbers, sums)


def _bring(builder: Any, ahead: Any, ahead_step: Any) -> None:
    """Ask for lines of what comes next: two, or as many as the steps' own."""
    lines = [builder.add(ahead, constant(line * _LINE_BYTES)) for line in range(AHEAD_BYTES // _LINE_BYTES)]
    for line in lines[:2]:
        emit_prefetch(builder, line, is_second=True)
    with builder.if_then(builder.icmp_signed(">", ahead_step, constant(2 * _LINE_BYTES))):
        for line in lines[2:]:
            emit_prefetch(builder, line, is_second=True)


def _emit_sums(builder: Any, given: _Operands) -> list[Any]:
    """LLVM code of the tile's sums, row by row."""
    rows, size = given.rows, given.rows * COLUMNS
    parts = max(1, min(STEPS_AT_ONCE, _SUMS_AT_ONCE // size))

    def body(values: list[Any], steps: int) -> list[Any]:
        (panel, group, ahead), sums = values[:3], values[3:]
        if steps > 1:
            _bring(builder, ahead, given.ahead_step)
            ahead = builder.add(ahead, given.ahead_step)
        for step in range(steps):
            start = step % parts * size
            sums[start : start + size] = _step(builder, rows, panel, group, step, sums[start : start + size])
        moved = builder.add(panel, constant(steps * STEP_BYTES)), builder.add(group, constant(steps * rows * _FLOAT_BYTES))
        return [*moved, ahead, *sums]

    values = [given.panel, given.group, given.ahead, *[ir.Constant(VF32, None)] * (size * parts)]
    some, rest = builder.lshr(given.count, constant(2)), builder.and_(given.count, constant(STEPS_AT_ONCE - 1))
    for count, steps in ((some, STEPS_AT_ONCE), (rest, 1)):
        loop = lambda values, count=count, steps=steps: emit_loop(  # noqa: E731
            builder, values, count, lambda _, values: body(values, steps)
        )
        values = emit_if(builder, builder.icmp_signed(">", count, constant(0)), values, loop)
    sums = values[3:]
    return [functools.reduce(builder.fadd, sums[index::size]) for index in range(size)]


@operation(types.none, *[types.intp] * 9)
def packed_tile(
    builder: Any,
    rows: Any,
    panel: Any,
    group: Any,
    count: Any,
    target: Any,
    target_row: Any,
    is_first: Any,
    ahead: Any,
    ahead_step: Any,
) -> None:
    """Add the product of a group of up to ``ROWS`` rows and a panel to a target, or write it there.

    Args:
        builder: of LLVM code.
        rows: of the group.
        panel: address of the panel's first step.
        group: address of the group's.
        count: steps.
        target: address of the first row's vectors, which follow each other.
        target_row: bytes from row to row.
        is_first: whether what is there does not count.
        ahead: address of what is brought into the second cache.
        ahead_step: bytes of it with each ``STEPS_AT_ONCE`` steps: a multiple of 64, up to ``AHEAD_BYTES``.
    """

    def emit(case: int) -> None:
        given = _Operands(case, panel, group, count, ahead, ahead_step)
        emit_target(builder, (case, COLUMNS), target, target_row, is_first, lambda: _emit_sums(builder, given))

    emit_choice(builder, rows, range(1, ROWS + 1), emit)
