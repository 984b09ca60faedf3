"""Register tiles of convolutions on NHWC data, with bias and bounds: sums are written once, when they are done.

Weights are in panels of ``PANEL`` output channels, of which a tile computes one for some pixels. Code is generated for each
number of pixels and vectors: loops over accumulators cannot be written in numba's subset of Python, which keeps arrays of vectors
in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from ort_sdk_cpu.gemm.microkernels.sgemm import MR, NR_VECTORS, Operands, emit_sums
from ort_sdk_cpu.simd.ir_builder import advance, constant, emit_fma, emit_if, emit_loop, emit_switch, opaque
from ort_sdk_cpu.simd.memory import emit_load, emit_store, splat
from ort_sdk_cpu.simd.vector_types import F32, VF32, operation

__all__ = [
    "NEAR_STEPS",
    "NEAR_TAPS",
    "PANEL",
    "WINDOWS",
    "image_tile",
    "leading_pixel_tile",
    "near_tile",
    "pixel_tile",
    "window_tile",
]

PANEL = 16 * NR_VECTORS
"""Channels of a panel."""
# 32 vector registers with AVX-512: 16 accumulators of 8 windows and 2 vectors, 2 factors, and loads; 16 with AVX2, where a vector
# of 16 lanes is two registers: 8 accumulators, 2 factors, and loads.
WINDOWS = 8 if NR_VECTORS > 1 else 4
"""Most windows of a tile."""
_VECTOR_BYTES, _ADDRESS_BYTES = 64, 8
_COLUMNS_OF_POINTER = 3
"""Columns whose addresses x86 computes from one pointer: base, base + index, and base + 2 * index."""
_CASES, _KINDS = 4, 4
"""More than there are vectors in a panel; kinds of tiles whose windows share pixels."""


def _emit_cases(builder: Any, count: Any, vectors: Any, most: int, emit: Any) -> None:
    """``emit(count, vectors)`` for each number of pixels and vectors of a tile."""
    # A switch over all sizes: each has its accumulators in registers, without a mask for what is not there.
    cases = [_CASES * one + other for one in range(1, most + 1) for other in range(1, NR_VECTORS + 1)]
    case = builder.add(builder.mul(count, constant(_CASES)), vectors)
    emit_switch(builder, case, cases, lambda case: emit(*divmod(case, _CASES)))


def _emit_vectors(builder: Any, address: Any, count: int) -> list[Any]:
    return [emit_load(builder, builder.add(address, constant(vector * _VECTOR_BYTES)), VF32) for vector in range(count)]


def _emit_bounded(builder: Any, sums: Sequence[Any], vectors: int, bounds: Sequence[Any], target: Any, row: Any) -> None:
    """Write pixels, each number between the bounds; those that are none stay so."""
    low, high = (splat(builder, bound) for bound in bounds)
    for index, value in enumerate(sums):
        address = builder.add(advance(builder, target, index // vectors, row), constant(index % vectors * _VECTOR_BYTES))
        # Ordered comparisons are false for NaN, which so passes through, as through ONNX's Clip.
        raised = builder.select(builder.fcmp_ordered(">", low, value), low, value)
        emit_store(builder, address, builder.select(builder.fcmp_ordered("<", high, raised), high, raised))


class _Pixels(NamedTuple):
    """LLVM values of a tile of pixels, as for ``pixel_tile``."""

    weights: Any
    x: Any
    x_row: Any
    depth: Any
    bias: Any
    addend: Any
    addend_row: Any
    low: Any
    high: Any
    target: Any
    target_row: Any


def _emit_pixels(builder: Any, rows: int, vectors: int, given: _Pixels, **others: Any) -> None:
    """LLVM code of ``pixel_tile`` for some sizes; ``others`` are fields of ``Operands``."""

    def added(values: list[Any]) -> list[Any]:
        addresses = [advance(builder, given.addend, row, given.addend_row) for row in range(rows)]
        found = [value for address in addresses for value in _emit_vectors(builder, address, vectors)]
        return [builder.fadd(value, other) for value, other in zip(values, found, strict=True)]

    panel = (given.weights, constant(NR_VECTORS * _VECTOR_BYTES), constant(_VECTOR_BYTES))
    # Accumulators begin with the bias instead of zeros: an addition less for each.
    start = _emit_vectors(builder, given.bias, vectors) * rows
    sums = emit_sums(builder, Operands(rows, vectors, *panel, given.x, given.x_row, given.depth, **others), start)
    # Another chain's sums, or a residual: once for a tile, behind the loop.
    sums = emit_if(builder, builder.icmp_signed("!=", given.addend, constant(0)), sums, added)
    _emit_bounded(builder, sums, vectors, (given.low, given.high), given.target, given.target_row)


@operation(types.none, *[types.intp] * 9, *[types.float32] * 2, *[types.intp] * 4)
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
    line: Any,
    line_step: Any,
) -> None:
    """Write the bounded GEMM of pixels and a panel, plus bias and addend; prefetches what is read afterwards.

    Args:
        builder: of LLVM code.
        rows: pixels, up to ``MR``.
        vectors: how many of a panel are wanted.
        weights: address of a panel's weights for the first channel of x.
        x: address of the first pixel's channels, which are contiguous.
        x_row: bytes from pixel to pixel.
        depth: channels of x.
        bias: address of vectors.
        addend: address of the first pixel's vectors, 0 for none.
        addend_row: bytes from pixel to pixel.
        low: least of what is written.
        high: most of what is written.
        target: address of the first pixel's vectors.
        target_row: bytes from pixel to pixel.
        line: address of what is read afterwards.
        line_step: bytes of it that are prefetched with each two channels: 0, or a cache line's, or two lines'.
    """
    given = _Pixels(weights, x, x_row, depth, bias, addend, addend_row, low, high, target, target_row)
    ahead = {"line": line, "line_step": line_step}
    _emit_cases(builder, rows, vectors, MR, lambda rows, vectors: _emit_pixels(builder, rows, vectors, given, **ahead))


@operation(types.none, *[types.intp] * 9, *[types.float32] * 2, *[types.intp] * 8)
def leading_pixel_tile(
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
    soon: Any,
    written: Any,
    behind: Any,
    prefetch_shift: Any,
    line: Any,
    line_step: Any,
) -> None:
    """As ``pixel_tile``; prefetches what is added and written afterwards, too.

    Args:
        builder: of LLVM code.
        rows: as there; so are those up to ``target_row``.
        soon: address of what is added to the pixels behind these.
        written: where they are written.
        behind: bytes from pixel to pixel of both.
        prefetch_shift: those of ``depth >> prefetch_shift`` pixels are prefetched.
        line: as there; so are the bytes.
        line_step: bytes.
    """
    given = _Pixels(weights, x, x_row, depth, bias, addend, addend_row, low, high, target, target_row)
    ahead = {
        "source": soon,
        "source_step": behind,
        "prefetch_shift": prefetch_shift,
        "written": written,
        "line": line,
        "line_step": line_step,
    }
    _emit_cases(builder, rows, vectors, MR, lambda rows, vectors: _emit_pixels(builder, rows, vectors, given, **ahead))


_WINDOWS = operation(types.none, *[types.intp] * 10, *[types.float32] * 2, *[types.intp] * 2)


@_WINDOWS
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
    """Write bounded sums of windows side by side, with one filter per channel.

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
        walk = _Walk(count, vectors, lines, line_count, offset, step, taps, tap_step)
        sums = _emit_windows(builder, walk, weights, bias, lambda address: _emit_vectors(builder, address, vectors))
        _emit_bounded(builder, sums, vectors, (low, high), target, target_row)

    _emit_cases(builder, count, vectors, WINDOWS, emit)


@_WINDOWS
def image_tile(
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
    """As ``window_tile``, of lines of one channel, whose pixels are multiplied with all channels of the panel; up to ``MR``."""

    def emit(count: int, vectors: int) -> None:
        walk = _Walk(count, vectors, lines, line_count, offset, step, taps, tap_step)
        # An element of a single channel, broadcast to all channels of the panel.
        read = lambda address: [splat(builder, emit_load(builder, address, F32))] * vectors  # noqa: E731
        sums = _emit_windows(builder, walk, weights, bias, read)
        _emit_bounded(builder, sums, vectors, (low, high), target, target_row)

    _emit_cases(builder, count, vectors, MR, emit)


NEAR_TAPS, NEAR_STEPS = (3, 5), (1, 2)
"""Taps in a line, and pixels from window to window, of ``near_tile``."""


@operation(types.none, *[types.intp] * 9, *[types.float32] * 2, *[types.intp] * 2)
def near_tile(
    builder: Any,
    count: Any,
    vectors: Any,
    lines: Any,
    line_count: Any,
    offset: Any,
    step: Any,
    taps: Any,
    weights: Any,
    bias: Any,
    low: Any,
    high: Any,
    target: Any,
    target_row: Any,
) -> None:
    """As ``window_tile`` where taps are ``NEAR_TAPS`` pixels that follow each other, windows ``NEAR_STEPS`` pixels apart.

    Windows share pixels, each of which is read once. ``step`` counts pixels.
    """

    def emit(case: int) -> None:
        case, kind = divmod(case, _KINDS)
        count, vectors = divmod(case, _CASES)
        across, right = divmod(kind, len(NEAR_STEPS))
        near = _Near(count, vectors, NEAR_TAPS[across], NEAR_STEPS[right])
        sums = _emit_near(builder, near, lines, line_count, offset, weights, bias)
        _emit_bounded(builder, sums, vectors, (low, high), target, target_row)

    # One switch over pixels, vectors, taps and strides: all four are constants in the code of a case.
    is_wide = builder.zext(builder.icmp_signed("==", taps, constant(NEAR_TAPS[1])), taps.type)
    kind = builder.add(builder.mul(is_wide, constant(len(NEAR_STEPS))), builder.sub(step, constant(NEAR_STEPS[0])))
    case = builder.add(builder.mul(count, constant(_CASES)), vectors)
    sizes = [_CASES * one + other for one in range(1, WINDOWS + 1) for other in range(1, NR_VECTORS + 1)]
    cases = [_KINDS * size + kind for size in sizes for kind in range(_KINDS)]
    emit_switch(builder, builder.add(builder.mul(case, constant(_KINDS)), kind), cases, emit)


class _Near(NamedTuple):
    """Sizes of a tile of windows that share pixels."""

    windows: int
    vectors: int
    taps: int
    step: int


def _emit_near(builder: Any, near: _Near, lines: Any, line_count: Any, offset: Any, weights: Any, bias: Any) -> list[Any]:
    pixel, vectors = NR_VECTORS * _VECTOR_BYTES, near.vectors

    def line(index: Any, values: list[Any]) -> list[Any]:
        filters, *sums = values
        address = builder.add(lines, builder.mul(index, constant(_ADDRESS_BYTES)))
        location = builder.add(emit_load(builder, address, ir.IntType(64)), offset)
        taps = range(near.taps)
        # A row of the filter stays in registers for all windows of the tile.
        factors = [_emit_vectors(builder, builder.add(filters, constant(tap * pixel)), vectors) for tap in taps]
        # All is unrolled: each pixel is loaded once, and used by all windows that it is under; factors stay in registers.
        for column in range((near.windows - 1) * near.step + near.taps):
            values = _emit_vectors(builder, builder.add(location, constant(column * pixel)), vectors)
            for window in range(near.windows):
                tap = column - window * near.step
                if tap in taps:
                    for vector, value in enumerate(values):
                        at = window * vectors + vector
                        sums[at] = emit_fma(builder, value, factors[tap][vector], sums[at])
        return [builder.add(filters, constant(near.taps * pixel)), *sums]

    values = [weights, *_emit_vectors(builder, bias, vectors) * near.windows]
    # Windows may be wholly above or below the image: then the bias is all there is.
    has_lines = builder.icmp_signed(">", line_count, constant(0))
    return emit_if(builder, has_lines, values, lambda values: emit_loop(builder, values, line_count, line))[1:]


class _Walk(NamedTuple):
    """Over windows: sizes and LLVM values, as for ``window_tile``."""

    windows: int
    vectors: int
    lines: Any
    line_count: Any
    offset: Any
    step: Any
    taps: Any
    tap_step: Any


def _emit_windows(builder: Any, walk: _Walk, weights: Any, bias: Any, read: Callable[[Any], list[Any]]) -> list[Any]:
    """LLVM code of the sums; ``read(location)`` gives what is at a tap of a window, one value for each vector."""
    first = range(0, walk.windows, _COLUMNS_OF_POINTER)

    def tap(_index: Any, values: list[Any]) -> list[Any]:
        filters, *pointers = values[: 1 + len(first)]
        factors = _emit_vectors(builder, filters, walk.vectors)
        # Opaque to LLVM, which would keep a pointer for each window instead, and run out of registers.
        pointers = [opaque(builder, pointer) for pointer in pointers]
        found: list[Any] = []
        for column in range(walk.windows):
            location = advance(builder, pointers[column // _COLUMNS_OF_POINTER], column % _COLUMNS_OF_POINTER, walk.step)
            for value, factor in zip(read(location), factors, strict=True):
                found.append(emit_fma(builder, value, factor, values[1 + len(first) + len(found)]))
        # Filters are read from begin to end, whatever taps a line has.
        filters = builder.add(filters, constant(NR_VECTORS * _VECTOR_BYTES))
        return [filters, *(builder.add(pointer, walk.tap_step) for pointer in pointers), *found]

    def line(index: Any, values: list[Any]) -> list[Any]:
        address = builder.add(walk.lines, builder.mul(index, constant(_ADDRESS_BYTES)))
        location = builder.add(emit_load(builder, address, ir.IntType(64)), walk.offset)
        pointers = [advance(builder, location, column, walk.step) for column in first]
        filters, *others = emit_loop(builder, [values[0], *pointers, *values[1:]], walk.taps, tap)
        return [filters, *others[len(first) :]]

    values = [weights, *_emit_vectors(builder, bias, walk.vectors) * walk.windows]
    has_lines = builder.icmp_signed(">", walk.line_count, constant(0))
    return emit_if(builder, has_lines, values, lambda values: emit_loop(builder, values, walk.line_count, line))[1:]
