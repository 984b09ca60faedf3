"""Convolutions of float32."""

from __future__ import annotations

from typing import NamedTuple

from ort_sdk_cpu.jit.extents.declaration import (
    At,
    Extent,
    Extents,
    MayBeAt,
    at_most,
    declares,
    given,
    reaches,
    reads,
    works,
    writes,
)
from ort_sdk_cpu.jit.extents.sizes import FLOAT, LANES, VECTOR, float_tile, panel_bytes, panels_of, whole

__all__: list[str] = []

_POSITIONS, _TAPS = 16, 9
_PIXELS = 8
_LINES = 64
"""Most lines under a row of windows of which working memory has the addresses."""
_CLAIMS = 8


def _results(bias: int, addend: int, out: int, last: int, pixels: int, outputs: int) -> Extents:
    """What is written, and what is added before and after the activation, which lies alike."""
    nbytes = pixels * outputs * FLOAT
    yield given(bias, outputs * FLOAT if pixels > 0 else 0)
    yield given(addend, nbytes)
    yield given(last, nbytes)
    yield writes(out, nbytes)


def _work(at: int, parts: int, part_bytes: int, used: int) -> Extent:
    """Working memory, of which each part has some and uses some."""
    return works(at, (parts - 1) * part_bytes + used)


@declares("convolution", "windows")
def _windows(
    x: At,
    weights: At,
    bias: At,
    added: At,
    out: At,
    work: At,
    height: int,
    width: int,
    kernel_height: int,
    kernel_width: int,
    rows: int,
    columns: int,
    stride_down: int,
    stride_right: int,
    dilation_down: int,
    dilation_right: int,
    top: int,
    left: int,
    activation: int,
    first: float,
    samples: int,
    channels: int,
    outputs: int,
    groups: int,
    *_: float,
    parts: int,
) -> Extents:
    positions, depth = rows * columns, channels // groups * kernel_height * kernel_width
    written = samples * outputs * positions * FLOAT
    yield reads(x, samples * channels * height * width * FLOAT)
    yield reads(weights, outputs * depth * FLOAT)
    yield given(bias, outputs * FLOAT)
    yield given(added, written)
    yield writes(out, written)
    yield works(work, parts * positions * depth * FLOAT)


@declares("depthwise", "depthwise")
def _depthwise(
    x: At,
    filters: At,
    bias: At,
    out: At,
    samples: int,
    channels: int,
    height: int,
    width: int,
    kernel_height: int,
    kernel_width: int,
    rows: int,
    columns: int,
    *_: float,
) -> Extents:
    pixel = channels * FLOAT
    yield reads(x, samples * height * width * pixel)
    yield reads(filters, kernel_height * kernel_width * pixel)
    yield given(bias, pixel)
    yield writes(out, samples * rows * columns * pixel)


@declares("few_outputs", "few_outputs")
def _few_outputs(
    x: At,
    weights: At,
    bias: At,
    addend: At,
    out: At,
    nothing: int,
    samples: int,
    height: int,
    width: int,
    channels: int,
    outputs: int,
    rows: int,
    columns: int,
    taps_down: int,
    taps_right: int,
    step_down: int,
    step_right: int,
    top: int,
    left: int,
    nothing_more: int,
    activation: int,
    first: float,
    second: float,
    last: At,
    *_: float,
) -> Extents:
    yield reads(x, samples * height * width * channels * FLOAT)
    yield reads(weights, outputs * taps_down * taps_right * channels * FLOAT)
    yield from _results(bias, addend, out, last, samples * rows * columns, outputs)


@declares("stem", "stem", words=27 + _CLAIMS)
def _stem(
    x: At,
    weights: At,
    bias: At,
    addend: At,
    out: At,
    work: At,
    samples: int,
    height: int,
    width: int,
    channels: int,
    outputs: int,
    rows: int,
    columns: int,
    taps_down: int,
    taps_right: int,
    step_down: int,
    step_right: int,
    top: int,
    left: int,
    work_bytes: int,
    activation: int,
    first: float,
    second: float,
    last: At,
    *_: float,
    parts: int,
) -> Extents:
    at_most("columns less than eight of an output", _PIXELS - columns, 0)
    length = whole((columns - 1) * step_right + taps_right)
    yield reads(x, samples * height * width * channels * FLOAT)
    yield reads(weights, channels * taps_down * taps_right * whole(outputs) * FLOAT)
    yield _work(work, parts, work_bytes, channels * taps_down * length * FLOAT)
    yield from _results(bias, addend, out, last, samples * rows * columns, outputs)


@declares("pointwise", "pointwise", words=27)
def _pointwise(
    x: At,
    weights: At,
    bias: At,
    addend: At,
    out: At,
    work: At,
    pixels: int,
    channels: int,
    blocks: int,
    groups: int,
    outputs: int,
    claims_0: int,
    claims_1: int,
    claims_2: int,
    claims_3: int,
    claims_4: int,
    claims_5: int,
    claims_6: int,
    claims_7: int,
    work_bytes: int,
    activation: int,
    first: float,
    second: float,
    last: At,
    *_: float,
    parts: int,
) -> Extents:
    yield reads(x, pixels * channels * FLOAT)
    yield reads(weights, panels_of(outputs) * channels * panel_bytes())
    yield _work(work, parts, work_bytes, (1 + panels_of(outputs) + float_tile()[0]) * panel_bytes())
    yield from _results(bias, addend, out, last, pixels, outputs)


@declares("winograd", "winograd", words=27 + _CLAIMS)
def _winograd(
    x: At,
    weights: At,
    bias: At,
    addend: At,
    out: At,
    work: At,
    samples: int,
    height: int,
    width: int,
    channels: int,
    outputs: int,
    rows: int,
    columns: int,
    top: int,
    left: int,
    tile_rows: int,
    tile_columns: int,
    blocks: int,
    channel_parts: int,
    work_bytes: int,
    activation: int,
    first: float,
    second: float,
    last: At,
    *_: float,
    parts: int,
) -> Extents:
    at_most("rows of tiles", tile_rows, (rows + 1) // 2)
    at_most("columns of tiles", tile_columns, (columns + 1) // 2)
    at_once = -(-samples * tile_rows * tile_columns // blocks)
    row = whole(channels) * FLOAT + VECTOR
    sums = at_once * (_POSITIONS * panel_bytes() + VECTOR)
    yield reads(x, samples * height * width * channels * FLOAT)
    yield reads(weights, panels_of(outputs) * _POSITIONS * channels * panel_bytes())
    yield _work(work, parts, work_bytes, _POSITIONS * (at_once * row + VECTOR) + sums)
    yield from _results(bias, addend, out, last, samples * rows * columns, outputs)


@declares("winograd", "winograd_weights")
def _winograd_weights(weights: At, target: At, work: At, outputs: int, channels: int, *, parts: int) -> Extents:
    yield reads(weights, outputs * channels * _TAPS * FLOAT)
    yield writes(target, panels_of(outputs) * _POSITIONS * channels * panel_bytes())
    yield works(work, parts * _TAPS * LANES * VECTOR)


class _Filters(NamedTuple):
    """What ``separable`` and ``separable_volume`` have in common."""

    channels: int
    outputs: int
    columns: int
    filtered: int
    strip: int
    image: int
    """Numbers of the lines of an image in working memory."""
    lines: int
    line: int
    reach: int
    """Pixels of a line that are used."""
    has_results: bool

    def work(self) -> int:
        """Bytes of working memory that a part uses."""
        vectors = 1 + panels_of(self.outputs) + float_tile()[0] + 2 * panels_of(self.filtered)
        results = self.strip * self.columns * (panels_of(self.filtered) * panel_bytes() + VECTOR) if self.has_results else 0
        lines = (self.lines - 1) * self.line + max(self.line, self.reach)
        return vectors * panel_bytes() + _LINES * 8 + self.image * FLOAT + results + lines * panel_bytes()


def _weights_of(weights: int, line_bias: int, filters: int, window_bias: int, sizes: _Filters, taps: int) -> Extents:
    yield given(weights, panels_of(sizes.outputs) * sizes.filtered * panel_bytes())
    yield given(line_bias, sizes.filtered * FLOAT)
    yield reads(filters, panels_of(sizes.filtered) * taps * panel_bytes())
    yield given(window_bias, sizes.filtered * FLOAT)


@declares("separable", "separable", words=52 + _CLAIMS)
def _separable(
    x: At,
    weights: MayBeAt,
    bias: At,
    addend: At,
    out: At,
    work: At,
    samples: int,
    height: int,
    width: int,
    channels: int,
    outputs: int,
    rows: int,
    columns: int,
    taps_down: int,
    taps_right: int,
    step_down: int,
    step_right: int,
    top: int,
    left: int,
    work_bytes: int,
    activation: int,
    first: float,
    second: float,
    last: At,
    is_scaled: int,
    factor: float,
    shift: float,
    line_weights: MayBeAt,
    line_bias: At,
    filters: At,
    window_bias: At,
    filtered: int,
    dilation_down: int,
    dilation_right: int,
    strip: int,
    is_by_channels: int,
    line_activation: int,
    line_first: float,
    line_second: float,
    window_activation: int,
    window_first: float,
    window_second: float,
    line: int,
    image_taps_down: int,
    image_taps_right: int,
    image_step_down: int,
    image_step_right: int,
    image_top: int,
    image_left: int,
    image_height: int,
    image_width: int,
    length: int,
    *_: int,
    parts: int,
) -> Extents:
    slots = (strip - 1) * step_down + (taps_down - 1) * dilation_down + 1
    reach = max((columns - 1) * step_right + (taps_right - 1) * dilation_right + 1, left + width)
    image = channels * image_taps_down * length
    count = slots * (1 if is_by_channels else panels_of(filtered))
    sizes = _Filters(channels, outputs, columns, filtered, strip, image, count, line, reach, weights.is_given)
    at_most("lines under a row of windows", max(taps_down, channels * image_taps_down), _LINES)
    depth = channels * (image_taps_down * image_taps_right or 1)
    if image_taps_down:
        at_most("numbers of a line", (width - 1) * image_step_right + image_taps_right, length)
        yield reads(x, samples * channels * image_height * image_width * FLOAT)
    else:
        yield reads(x, samples * height * width * channels * FLOAT)
    if image_taps_down or line_weights.is_given:
        yield reads(line_weights, panels_of(filtered) * depth * panel_bytes())
    if not weights.is_given:
        at_most("channels of filters", filtered, outputs)
    yield from _weights_of(weights, line_bias, filters, window_bias, sizes, taps_down * taps_right)
    yield _work(work, parts, work_bytes, sizes.work())
    yield from _results(bias, addend, out, last, samples * rows * columns, outputs)


@declares("volumes", "separable_volume")
def _separable_volume(
    x: At,
    weights: MayBeAt,
    bias: At,
    addend: At,
    out: At,
    work: At,
    samples: int,
    height: int,
    width: int,
    channels: int,
    outputs: int,
    rows: int,
    columns: int,
    taps_down: int,
    taps_right: int,
    step_down: int,
    step_right: int,
    top: int,
    left: int,
    work_bytes: int,
    activation: int,
    first: float,
    second: float,
    last: At,
    is_scaled: int,
    factor: float,
    shift: float,
    line_weights: At,
    line_bias: At,
    filters: At,
    window_bias: At,
    filtered: int,
    dilation_down: int,
    dilation_right: int,
    strip: int,
    is_by_channels: int,
    line_activation: int,
    line_first: float,
    line_second: float,
    window_activation: int,
    window_first: float,
    window_second: float,
    line: int,
    image_taps_down: int,
    image_taps_right: int,
    image_step_down: int,
    image_step_right: int,
    image_top: int,
    image_left: int,
    image_height: int,
    image_width: int,
    length: int,
    depth: int,
    out_depth: int,
    taps: int,
    *_: int,
    parts: int,
) -> Extents:
    count = 1 + taps * ((taps_down - 1) * dilation_down + 1)
    reach = max((columns - 1) * step_right + (taps_right - 1) * dilation_right + 1, left + width)
    image = channels * image_taps_down * length
    sizes = _Filters(channels, outputs, columns, filtered, strip, image, count, line, reach, weights.is_given)
    at_most("lines under a row of windows", taps * taps_down, _LINES)
    at_most("channels of filters", filtered, outputs)
    yield reads(x, samples * depth * height * width * channels * FLOAT)
    yield from _weights_of(weights, line_bias, filters, window_bias, sizes, taps * taps_down * taps_right)
    yield _work(work, parts, work_bytes, sizes.work())
    yield from _results(bias, addend, out, last, samples * out_depth * rows * columns, outputs)


@declares("spread_windows", "spread_windows")
def _spread_windows(
    x: At,
    weights: At,
    bias: At,
    out: At,
    work: At,
    samples: int,
    channels: int,
    outputs: int,
    height: int,
    width: int,
    taps_down: int,
    taps_right: int,
    step_down: int,
    step_right: int,
    top: int,
    left: int,
    rows: int,
    columns: int,
    x_sample: int,
    x_channel: int,
    x_row: int,
    x_pixel: int,
    pitch: int,
    kept: int,
    blocks: int,
    chunks: int,
    chunk: int,
    work_bytes: int,
    *_: int,
    parts: int,
) -> Extents:
    taps = outputs * taps_down * taps_right
    panel = whole(channels) * 2 * VECTOR
    apart = step_right * whole(min(chunk, -(-columns // step_right))) * FLOAT
    yield reaches(x, (samples, channels, height, width), (x_sample, x_channel, x_row, x_pixel), FLOAT)
    yield reads(weights, channels * taps * FLOAT)
    yield given(bias, outputs * FLOAT)
    yield writes(out, samples * outputs * rows * columns * FLOAT)
    yield _work(work, parts, work_bytes, panel + LANES * VECTOR + kept * taps * pitch + apart)


@declares("small_convolution", "small_convolution")
def _small_convolution(x: At, weights: At, bias: At, out: At, work: At, *numbers: int, parts: int) -> Extents:
    samples, channels, outputs, groups = numbers[:4]
    size, span, kernel, results, strides, dilations = (numbers[start : start + 3] for start in (4, 13, 16, 19, 22, 25))
    *steps, offset = numbers[28:33]
    taps = kernel[0] * kernel[1] * kernel[2]
    count = channels * span[0] * span[1] * span[2]
    planes, lines = ((results[axis] - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] for axis in range(2))
    column = (results[2] - 1) // LANES * LANES
    last = column * strides[2] + (kernel[2] - 1) * dilations[2]
    behind = LANES if strides[2] == 1 else (results[2] - column - 1) * strides[2] + 1
    read = (((channels - 1) * span[0] + planes) * span[1] + lines) * span[2] + last + behind
    each = (outputs // groups, groups, channels // groups, taps)
    yield reads(x, samples * channels * size[0] * size[1] * size[2] * FLOAT)
    yield reaches(weights, each, steps, FLOAT, offset=offset)
    yield given(bias, outputs * FLOAT)
    yield writes(out, samples * outputs * results[0] * results[1] * results[2] * FLOAT)
    yield works(work, FLOAT * max(parts * (count + LANES), (parts - 1) * (count + LANES) + read))
