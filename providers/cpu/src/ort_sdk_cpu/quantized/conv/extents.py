"""Convolutions of 8-bit data, by vectors and by the matrix unit."""

from __future__ import annotations

from collections.abc import Callable

from ort_sdk_cpu.jit.extents.declaration import At, Extent, Extents, declares, reaches, reads, works, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT

__all__: list[str] = []

_PANEL = 64
"""Columns of a panel, unless the name says otherwise."""
_BEHIND = 63
"""Bytes behind a frame that are written, too."""
_MATRIX_SPARE = 64 + 4 * _PANEL + 64 + 32 * (64 + 4 * _PANEL)
"""Working memory of a part for the matrix unit, behind its frame."""
_VECTOR_MODULE, _MATRIX_MODULE = "integer_convolution", "matrix_convolution"


class _Kind:
    """One of the tasks.

    Args:
        module: where it is.
        name: the task's.
        width: columns of its panels.
    """

    def __init__(self, module: str, name: str, width: int) -> None:
        self.is_on_matrix_unit, self.width = module == _MATRIX_MODULE, width
        self.is_float, self.has_units = name.startswith("float"), "unit" in name
        self.has_addend = name.startswith("quantized_sum")
        self.parameters = 4 if self.is_float else 3 if self.has_units else 2
        """Numbers that belong to a column."""


def _windows(
    kind: _Kind, at: tuple[int, ...], image: tuple[int, ...], window: tuple[int, ...], steps: tuple[int, ...]
) -> Extents:
    """All but working memory."""
    x, weights, out, columns, added = at
    samples, height, width, channels, rows, row_windows, outputs = image
    lines, line_bytes, fours, row_bytes = window
    stride, pitch, is_framed = steps
    panels, results = -(-outputs // kind.width), samples * rows * row_windows * outputs
    if is_framed:
        yield reads(x, samples * height * width * channels)
    else:
        each = (samples, rows, row_windows, lines)
        yield reaches(x, each, (height * pitch, stride * pitch, row_bytes, line_bytes), 4 * fours)
    yield reads(weights, panels * lines * fours * 4 * kind.width)
    yield writes(out, results * (FLOAT if kind.is_float else 1))
    yield reads(columns, panels * FLOAT * kind.width * kind.parameters)
    if kind.has_addend:
        yield reads(added, results)
    if kind.has_units:
        yield reads(added, lines * fours * 4 * (16 if kind.is_on_matrix_unit else 1))


def _work(kind: _Kind, at: int, frame: int, work_bytes: int, parts: int) -> Extent:
    spare = _MATRIX_SPARE if kind.is_on_matrix_unit else 0
    used = frame + spare
    # What the matrix unit needs is at the end of a part's working memory.
    return works(at, parts * max(work_bytes, used) if spare else (parts - 1) * work_bytes + used if used else 0)


def _convolution(module: str, name: str, width: int) -> None:
    kind = _Kind(module, name, width)

    @declares(module, name, words=28 + (4 if kind.is_float or kind.has_addend else 2))
    def extents(
        x: At,
        weights: At,
        out: At,
        columns: At,
        added: At,
        work: At,
        samples: int,
        height: int,
        width: int,
        channels: int,
        rows: int,
        row_windows: int,
        outputs: int,
        lines: int,
        line_bytes: int,
        fours: int,
        row_bytes: int,
        stride: int,
        top: int,
        left: int,
        reach: int,
        pitch: int,
        is_framed: int,
        fill: int,
        block: int,
        is_by_columns: int,
        work_bytes: int,
        *_: float,
        parts: int,
    ) -> Extents:
        image = (samples, height, width, channels, rows, row_windows, outputs)
        window, steps = (lines, line_bytes, fours, row_bytes), (stride, pitch, is_framed)
        yield from _windows(kind, (x, weights, out, columns, added), image, window, steps)
        frame = 0
        if is_framed:
            # A block may begin within a line.
            most = min(rows, (block + row_windows - 2) // row_windows + 1)
            frame = ((most - 1) * stride + reach) * pitch + _BEHIND
        yield _work(kind, work, frame, work_bytes, parts)

    if kind.is_float:
        _with_numbers(module, name, extents)


def _with_numbers(module: str, name: str, declared: Callable[..., Extents]) -> None:
    """Declare the same of a task that reads x's zero point and scale, too."""

    @declares(module, name, words=32)
    def of_floats(
        x: At,
        weights: At,
        out: At,
        columns: At,
        added: At,
        work: At,
        samples: int,
        height: int,
        width: int,
        channels: int,
        rows: int,
        row_windows: int,
        outputs: int,
        lines: int,
        line_bytes: int,
        fours: int,
        row_bytes: int,
        stride: int,
        top: int,
        left: int,
        reach: int,
        pitch: int,
        is_framed: int,
        fill: int,
        block: int,
        is_by_columns: int,
        work_bytes: int,
        flip: int,
        zero_point: At,
        scale: At,
        *_: float,
        parts: int,
    ) -> Extents:
        at, image = (x, weights, out, columns, added, work), (samples, height, width, channels, rows, row_windows, outputs)
        window, edges = (lines, line_bytes, fours, row_bytes), (stride, top, left, reach, pitch, is_framed, fill)
        yield from declared(*at, *image, *window, *edges, block, is_by_columns, work_bytes, parts=parts)
        yield reads(zero_point, 1)
        yield reads(scale, FLOAT)


for _module in (_VECTOR_MODULE, _MATRIX_MODULE):
    for _end in ("", "_of_int8"):
        for _name in ("quantized_convolution", "quantized_sum", "quantized_unit_convolution"):
            for _width in (_PANEL, 32, 16):
                _panels = "" if _width == _PANEL else f"_{_width}"
                _convolution(_module, f"{_name}{_panels}{_end}", _width)
        for _name in ("float_convolution", "float_unit_convolution"):
            _convolution(_module, f"{_name}{_end}", _PANEL)
