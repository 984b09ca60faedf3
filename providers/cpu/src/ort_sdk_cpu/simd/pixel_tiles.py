"""Tiles of convolutions on channels-last data, with bias and bounds, kept in registers until they are written.

Weights lie in panels of ``PANEL`` output channels, of which a tile computes one for some pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types

from .emission import constant, emit_choice, emit_if, emit_loop, emit_multiply_add, moved, opaque
from .float_tiles import COLUMNS, ROWS, Operands, emit_sums
from .memory import emit_load, emit_store, splat
from .vector_types import VF32, operation

__all__ = ["PANEL", "WINDOWS", "pixel_tile", "window_tile"]

PANEL = 16 * COLUMNS
"""Channels of a panel."""
WINDOWS = 8 if COLUMNS > 1 else 4
"""Most windows of a tile: so many sums fit into the registers."""
_VECTOR_BYTES, _ADDRESS_BYTES = 64, 8
_COLUMNS_OF_POINTER = 3
"""Columns whose addresses an instruction computes from one pointer."""
_CASES = 4
"""More than there are vectors in a panel."""


def _emit_cases(builder: Any, count: Any, vectors: Any, most: int, emit: Any) -> None:
    """``emit(count, vectors)`` for each number of pixels and vectors of a tile."""
    cases = [_CASES * one + other for one in range(1, most + 1) for other in range(1, COLUMNS + 1)]
    case = builder.add(builder.mul(count, constant(_CASES)), vectors)
    emit_choice(builder, case, cases, lambda case: emit(*divmod(case, _CASES)))


def _emit_vectors(builder: Any, address: Any, count: int) -> list[Any]:
    return [emit_load(builder, builder.add(address, constant(place * _VECTOR_BYTES)), VF32) for place in range(count)]


def _emit_bounded(builder: Any, sums: Sequence[Any], vectors: int, bounds: Sequence[Any], target: Any, row: Any) -> None:
    """Write pixels, each number between the bounds; those that are none stay so."""
    low, high = (splat(builder, bound) for bound in bounds)
    for index, value in enumerate(sums):
        place = builder.add(moved(builder, target, index // vectors, row), constant(index % vectors * _VECTOR_BYTES))
        raised = builder.select(builder.fcmp_ordered(">", low, value), low, value)
        emit_store(builder, place, builder.select(builder.fcmp_ordered("<", high, raised), high, raised))


@operation(types.none, *[types.intp] * 9, *[types.float32] * 2, *[types.intp] * 2)
def pixel_tile(
    builder: Any,
    rows: Any,
    vectors: Any,
    weights: Any,
    x: Any,
    x_row: Any,
    depth: Any,
    bias: Any,
    addend: Any,
    addend_row: Any,
    low: Any,
    high: Any,
    target: Any,
    target_row: Any,
) -> None:
    """Write bounded sums of products of pixels with a panel, bias and addend.

    Args:
        builder: of LLVM code.
        rows: pixels, up to ``ROWS``.
        vectors: how many of a panel are wanted.
        weights: address of a panel's weights for the first channel of x.
        x: address of the first pixel's numbers, which follow each other.
        x_row: bytes from pixel to pixel.
        depth: channels of x.
        bias: address of vectors.
        addend: address of the first pixel's vectors, 0 for none.
        addend_row: bytes from pixel to pixel.
        low: least of what is written.
        high: most of what is written.
        target: address of the first pixel's vectors.
        target_row: bytes from pixel to pixel.
    """

    def emit(rows: int, vectors: int) -> None:
        def added(values: list[Any]) -> list[Any]:
            places = [moved(builder, addend, row, addend_row) for row in range(rows)]
            others = [value for place in places for value in _emit_vectors(builder, place, vectors)]
            return [builder.fadd(value, other) for value, other in zip(values, others, strict=True)]

        panel = (weights, constant(COLUMNS * _VECTOR_BYTES), constant(_VECTOR_BYTES))
        start = _emit_vectors(builder, bias, vectors) * rows
        start = emit_if(builder, builder.icmp_signed("!=", addend, constant(0)), start, added)
        sums = emit_sums(builder, Operands(rows, vectors, *panel, x, x_row, depth), start)
        _emit_bounded(builder, sums, vectors, (low, high), target, target_row)

    _emit_cases(builder, rows, vectors, ROWS, emit)


@operation(types.none, *[types.intp] * 10, *[types.float32] * 2, *[types.intp] * 2)
def window_tile(
    builder: Any,
    count: Any,
    vectors: Any,
    lines: Any,
    line_count: Any,
    offset: Any,
    step: Any,
    taps: Any,
    tap_step: Any,
    weights: Any,
    bias: Any,
    low: Any,
    high: Any,
    target: Any,
    target_row: Any,
) -> None:
    """Write bounded sums of windows that lie beside each other, with one filter per channel.

    Args:
        builder: of LLVM code.
        count: windows, up to ``WINDOWS``.
        vectors: how many of a panel are wanted.
        lines: address of the addresses of lines under the windows.
        line_count: how many.
        offset: bytes from a line's address to the first window.
        step: bytes from window to window.
        taps: of a window in a line.
        tap_step: bytes from tap to tap.
        weights: address of a panel for the first tap, the other taps behind it.
        bias: address of vectors.
        low: least of what is written.
        high: most of what is written.
        target: address of the first window's vectors.
        target_row: bytes from window to window.
    """

    def emit(count: int, vectors: int) -> None:
        first = range(0, count, _COLUMNS_OF_POINTER)

        def tap(_index: Any, values: list[Any]) -> list[Any]:
            filters, *pointers = values[: 1 + len(first)]
            factors = _emit_vectors(builder, filters, vectors)
            pointers = [opaque(builder, pointer) for pointer in pointers]
            found: list[Any] = []
            for column in range(count):
                place = moved(builder, pointers[column // _COLUMNS_OF_POINTER], column % _COLUMNS_OF_POINTER, step)
                for value, factor in zip(_emit_vectors(builder, place, vectors), factors, strict=True):
                    found.append(emit_multiply_add(builder, value, factor, values[1 + len(first) + len(found)]))
            filters = builder.add(filters, constant(COLUMNS * _VECTOR_BYTES))
            return [filters, *(builder.add(pointer, tap_step) for pointer in pointers), *found]

        def line(index: Any, values: list[Any]) -> list[Any]:
            address = builder.add(lines, builder.mul(index, constant(_ADDRESS_BYTES)))
            place = builder.add(emit_load(builder, address, ir.IntType(64)), offset)
            pointers = [moved(builder, place, column, step) for column in first]
            filters, *others = emit_loop(builder, [values[0], *pointers, *values[1:]], taps, tap)
            return [filters, *others[len(first) :]]

        values = [weights, *_emit_vectors(builder, bias, vectors) * count]
        has_lines = builder.icmp_signed(">", line_count, constant(0))
        _, *sums = emit_if(builder, has_lines, values, lambda values: emit_loop(builder, values, line_count, line))
        _emit_bounded(builder, sums, vectors, (low, high), target, target_row)

    _emit_cases(builder, count, vectors, WINDOWS, emit)
