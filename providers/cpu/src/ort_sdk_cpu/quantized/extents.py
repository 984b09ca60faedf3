"""Quantization, and operators on bytes."""

from __future__ import annotations

from ort_sdk_cpu.jit.extents.declaration import At, Extents, declares, given, reaches, reads, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, VECTOR

__all__: list[str] = []

_BYTE, _WORD = 1, 2
_TABLE = 256


def _elements(name: str, read: int, written: int) -> None:
    @declares("quantized", name)
    def extents(x: At, out: At, count: int, *_: float) -> Extents:
        return reads(x, count * read), writes(out, count * written)


_elements("quantize", FLOAT, _BYTE)
_elements("quantize_words", FLOAT, _WORD)
_elements("dequantize", _BYTE, FLOAT)
_elements("dequantize_words", _WORD, FLOAT)


def _rows(name: str, read: int, written: int, zero: int) -> None:
    @declares("quantized", name)
    def extents(x: At, out: At, scales: At, zeros: At, before: int, size: int, behind: int, *_: float) -> Extents:
        count, along = before * size * behind, size if before * behind > 0 else 0
        yield reads(x, count * read)
        yield writes(out, count * written)
        yield reads(scales, along * FLOAT)
        yield given(zeros, along * zero)


_rows("quantize_rows", FLOAT, _BYTE, _BYTE)
_rows("quantize_word_rows", FLOAT, _WORD, _WORD)
_rows("dequantize_rows", _BYTE, FLOAT, _BYTE)
_rows("dequantize_word_rows", _WORD, FLOAT, _WORD)
_rows("dequantize_sum_rows", FLOAT, FLOAT, FLOAT)


@declares("quantized", "requantize_sums")
def _requantize_sums(sums: At, out: At, scales: At, bias: At, rows: int, columns: int, *_: float) -> Extents:
    yield reads(sums, rows * columns * FLOAT)
    yield writes(out, rows * columns)
    yield reads(scales, columns * FLOAT if rows > 0 else 0)
    yield given(bias, columns * FLOAT)


@declares("dynamic_quantization", "quantize_by_range")
def _quantize_by_range(x: At, out: At, scale: At, zero_point: At, count: int) -> Extents:
    return reads(x, count * FLOAT), writes(out, count), writes(scale, FLOAT), writes(zero_point, 1)


@declares("dynamic_quantization", "ranges_of_spans")
def _ranges_of_spans(x: At, ranges: At, count: int, spans: int) -> Extents:
    return reads(x, count * FLOAT), writes(ranges, spans * 2 * VECTOR)


@declares("dynamic_quantization", "quantize_by_ranges")
def _quantize_by_ranges(x: At, out: At, scale: At, zero_point: At, ranges: At, count: int, spans: int) -> Extents:
    yield from _quantize_by_range(x, out, scale, zero_point, count)
    yield reads(ranges, spans * 2 * VECTOR)


def _dimensions(rows: int, second: int, third: int, fourth: int, count: int) -> tuple[int, ...]:
    """Four of rows, and a row's elements."""
    inner = second * third * fourth
    return (-(-rows // inner) if inner else 0, second, third, fourth, count)


@declares("quantized_elementwise", "look_up")
def _look_up(
    x: At,
    out: At,
    table: At,
    rows: int,
    count: int,
    second: int,
    third: int,
    fourth: int,
    x_0: int,
    x_1: int,
    x_2: int,
    x_3: int,
    x_4: int,
    out_0: int,
    out_1: int,
    out_2: int,
    out_3: int,
    *_: int,
) -> Extents:
    sizes = _dimensions(rows, second, third, fourth, count)
    yield reaches(x, sizes, (x_0, x_1, x_2, x_3, 1), 1)
    yield reaches(out, sizes, (out_0, out_1, out_2, out_3, 1), 1, is_written=True)
    yield given(table, _TABLE)


@declares("quantized_elementwise", "combine")
def _combine(a: At, b: At, out: At, *numbers: int) -> Extents:
    rows, count, *dimensions = numbers[11:16]
    a_steps, b_steps, out_steps = numbers[16:21], numbers[21:26], numbers[26:30]
    sizes = _dimensions(rows, dimensions[0], dimensions[1], dimensions[2], count)
    for at, steps in ((a, a_steps), (b, b_steps)):
        yield reaches(at, sizes, (*steps[:4], 1 if steps[4] else 0), 1)
    yield reaches(out, sizes, (*out_steps, 1), 1, is_written=True)


@declares("quantized_elementwise", "mean_of_pixels")
def _mean_of_pixels(x: At, out: At, samples: int, channels: int, pixels: int, pixel: int, channel: int, *_: float) -> Extents:
    apart = (pixel, 1) if channel == 1 else (1, max(channel, pixels))
    yield reaches(x, (samples, pixels, channels), (channels * pixels, *apart), 1)
    yield writes(out, samples * channels)


@declares("quantized_elementwise", "mean_of_windows")
def _mean_of_windows(
    x: At,
    out: At,
    row_counts: At,
    column_counts: At,
    samples: int,
    height: int,
    width: int,
    channels: int,
    rows: int,
    columns: int,
    *_: float,
) -> Extents:
    yield reads(x, samples * height * width * channels)
    yield writes(out, samples * rows * columns * channels)
    yield reads(row_counts, rows * FLOAT)
    yield reads(column_counts, columns * FLOAT)


@declares("quantized_elementwise", "softmax_of_rows")
def _softmax_of_rows(x: At, out: At, rows: int, count: int, *_: float) -> Extents:
    return reads(x, rows * count), writes(out, rows * count)


@declares("quantized_elementwise", "softmax_of_columns")
def _softmax_of_columns(
    x: At,
    out: At,
    matrices: int,
    rows: int,
    flip: int,
    zero: float,
    scale: float,
    out_zero: float,
    out_scale: float,
    lowest: float,
    highest: float,
    columns: int,
) -> Extents:
    return reads(x, matrices * rows * columns), writes(out, matrices * rows * columns)
