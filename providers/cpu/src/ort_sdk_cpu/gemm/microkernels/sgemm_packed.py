"""Micro-kernel of GEMM of float32 with both operands packed, as in BLIS.

A panel of B has ``NR_VECTORS`` vectors for each step along K, one step behind the other; a group of rows of A has one number of
each row for each step. So a tile reads two streams from their beginnings to their ends: caches see what comes next, rows need one
pointer together, and multiply-adds can take their numbers from memory.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from ort_sdk_cpu.simd.ir_builder import constant, emit_if, emit_loop, emit_prefetch, emit_switch
from ort_sdk_cpu.simd.memory import emit_load
from ort_sdk_cpu.simd.vector_types import VF32, operation

from .sgemm import HAS_BROADCAST_OPERAND, MR, NR_VECTORS, Element, emit_step, emit_target

__all__ = ["AHEAD_BYTES", "STEPS_AT_ONCE", "STEP_BYTES", "packed_tile"]

_FLOAT_BYTES, _LINE_BYTES = 4, 64
STEP_BYTES = NR_VECTORS * _LINE_BYTES
"""Of a panel, for each step along K."""
# Both streams need one addition to their pointers for so many steps.
STEPS_AT_ONCE = 4
"""Steps along K of an unrolled body."""
AHEAD_BYTES = STEPS_AT_ONCE * STEP_BYTES
"""Most that is prefetched with so many steps."""
# Fused multiply-adds take four cycles, and two begin in each.
_SUMS_AT_ONCE = 8
"""Vectors that are added to at the same time at least: a multiply-add takes as long as so many begin in."""
_ROWS_OF_READER = 3
"""Of so many rows, one's number is read by the instructions that multiply: that saves one that would read it before, but reads it
as many times as there are columns."""


class _Operands(NamedTuple):
    """LLVM values: addresses of a tile's operands, of what is prefetched into the second cache, and its stride."""

    rows: int
    panel: Any
    group: Any
    count: Any
    ahead: Any
    ahead_step: Any


def _step(builder: Any, rows: int, panel: Any, group: Any, step: int, sums: list[Any]) -> list[Any]:
    """Sums after one step."""
    start = step * STEP_BYTES
    places = [builder.add(panel, constant(start + column * _LINE_BYTES)) for column in range(NR_VECTORS)]
    vectors = [emit_load(builder, place, VF32) for place in places]
    offsets = [group_step * _FLOAT_BYTES for group_step in range(step * rows, (step + 1) * rows)]
    elements = [
        Element(group, offset, HAS_BROADCAST_OPERAND and row % _ROWS_OF_READER == 0) for row, offset in enumerate(offsets)
    ]
    return emit_step(builder, vectors, elements, sums)


def _prefetch(builder: Any, ahead: Any, ahead_step: Any) -> None:
    """Prefetch lines of what comes next: two, or as many as the steps' own."""
    lines = [builder.add(ahead, constant(line * _LINE_BYTES)) for line in range(AHEAD_BYTES // _LINE_BYTES)]
    # Two lines always; the branch is taken by tiles that have to prefetch more, where there are few.
    for line in lines[:2]:
        emit_prefetch(builder, line, into_l2=True)
    with builder.if_then(builder.icmp_signed(">", ahead_step, constant(2 * _LINE_BYTES))):
        for line in lines[2:]:
            emit_prefetch(builder, line, into_l2=True)


def _emit_sums(builder: Any, given: _Operands) -> list[Any]:
    """LLVM code of the tile's sums, row by row."""
    rows, size = given.rows, given.rows * NR_VECTORS
    # Few rows have too few sums to keep both units busy: steps take turns with several sets of them.
    parts = max(1, min(STEPS_AT_ONCE, _SUMS_AT_ONCE // size))

    def body(values: list[Any], steps: int) -> list[Any]:
        (panel, group, ahead), sums = values[:3], values[3:]
        if steps > 1:
            _prefetch(builder, ahead, given.ahead_step)
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
    # Sums of the steps in turns.
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
    """Add the product of a group of up to ``MR`` rows and a panel to a target, or write it there.

    Args:
        builder: of LLVM code.
        rows: of the group.
        panel: address of the panel's first step.
        group: address of the group's.
        count: steps.
        target: address of the first row's vectors, which follow each other.
        target_row: bytes from row to row.
        is_first: whether what is there does not count.
        ahead: address of what is prefetched into the second cache.
        ahead_step: bytes of it with each ``STEPS_AT_ONCE`` steps: a multiple of 64, up to ``AHEAD_BYTES``.
    """

    def emit(case: int) -> None:
        given = _Operands(case, panel, group, count, ahead, ahead_step)
        emit_target(builder, (case, NR_VECTORS), target, target_row, is_first, lambda: _emit_sums(builder, given))

    emit_switch(builder, rows, range(1, MR + 1), emit)
