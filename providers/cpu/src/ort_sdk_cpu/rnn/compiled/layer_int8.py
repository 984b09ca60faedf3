"""LSTM layers with weights of int8, whose inputs and states are quantized to uint8 by their own ranges.

Tasks take the arguments of ``layer.py``, but for the weights of state and input, which are panels for
``microkernels/gates_int8.py``, and these behind the last: addresses of the columns' sums and scales of both, 512 bytes for each
16 units; of quantized inputs (steps * batch, inputs) and of working memory of each part, (batch, hidden); bytes from one row of
these to the next; bytes from one part's working memory to the next's.
"""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.quantized.compiled.dynamic import quantize, range_of, scale_and_zero_point
from ort_sdk_cpu.rnn.microkernels.gates import UNIT_ROWS
from ort_sdk_cpu.rnn.microkernels.gates_int8 import add_four_scaled_sums
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.arithmetic import reduce_max, zero_f32
from ort_sdk_cpu.simd.memory import load_f32, store_f32, store_f32_first

from .layer import LSTM, begin_unit, clear_behind, copy_last, go_on, is_within, keep, lstm_unit, share, wait

__all__ = ["lstm_quantized", "lstm_quantized_team"]

_GATES = 4
_PANEL_COLUMNS_BYTES = 512


@inner
def _parameters(x: int, count: int) -> Any:
    """(scale, zero point) of an array's range."""
    low, high = range_of(x, count)
    return scale_and_zero_point(low, high)


@inner
def _quantize_rows(x: int, out: int, out_row: int, first: int, stop: int, size: int, scale: Any, zero_point: Any) -> None:
    for row in range(first, stop):
        quantize(x + row * size * 4, out + row * out_row, size, scale, zero_point)


@inner
def _panel_bytes(size: int) -> int:
    """Of 16 units, four gates, and ``size`` numbers along K."""
    return (size + 3) // 4 * _GATES * 64


@inner
def _gates_of_input(between: Any, record: int, part: int, parts: int, start: int, stop: int, sums: int) -> None:
    """The input's share of the gates, for a part's units; all parts quantize some rows each."""
    x, size, hidden, rows = (
        argument(record, 12),
        argument(record, 14),
        argument(record, 10),
        argument(record, 9) * argument(record, 11),
    )
    quantized, x_row, panel_bytes = argument(record, 22), argument(record, 24), _panel_bytes(size)
    scale, zero_point = _parameters(x, rows * size)
    _quantize_rows(x, quantized, x_row, rows * part // parts, rows * (part + 1) // parts, size, scale, zero_point)
    between()
    gates, width, zero = argument(record, 4), _GATES * hidden * 4, int(reduce_max(zero_point))
    if argument(record, 7) < 0:
        gates += (argument(record, 9) - 1) * argument(record, 7)
    for unit in range(start, stop, 16):
        panel, columns = argument(record, 13) + unit // 16 * panel_bytes, argument(record, 21) + unit // 16 * _PANEL_COLUMNS_BYTES
        for first in range(0, rows, UNIT_ROWS):
            count = min(UNIT_ROWS, rows - first)
            for vector in range(count * _GATES):
                store_f32(sums + vector * 64, zero_f32())
            add_four_scaled_sums(count, panel, quantized + first * x_row, x_row, (size + 3) // 4, columns, zero, scale, sums)
            for index in range(count):
                for gate in range(_GATES):
                    place = gates + (first + index) * width + (gate * hidden + unit) * 4
                    store_f32_first(place, load_f32(sums + (index * _GATES + gate) * 64), stop - unit)


@inner
def _panel(record: int, step: int, unit: int, stop: int, sums: int, states: int, zero: int, scale: Any) -> None:
    """A step of 16 units of all samples."""
    size, batch, row = argument(record, 10), argument(record, 11), argument(record, 10) * 4
    gates, after = argument(record, 4) + step * argument(record, 7), argument(record, 6) + step * argument(record, 8)
    source = argument(record, 5) if step == 0 else after - argument(record, 8)
    old = argument(record, 2) if step == 0 else argument(record, 3)
    panel, columns = (
        argument(record, 0) + unit // 16 * _panel_bytes(size),
        argument(record, 20) + unit // 16 * _PANEL_COLUMNS_BYTES,
    )
    unit_place, rest, state_row = unit * 4, stop - unit, argument(record, 25)
    for first in range(0, batch, UNIT_ROWS):
        rows = min(UNIT_ROWS, batch - first)
        for index in range(rows):
            begin_unit(LSTM, record, gates + (first + index) * _GATES * row, unit_place, rest, sums + index * _GATES * 64)
        add_four_scaled_sums(rows, panel, states + first * state_row, state_row, (size + 3) // 4, columns, zero, scale, sums)
        for index in range(rows):
            place = (first + index) * row + unit_place
            if is_within(record, step, first + index):
                lstm_unit(sums + index * _GATES * 64, old + place, argument(record, 3) + place, after + place, rest)
            else:
                keep(LSTM, old + place, argument(record, 3) + place, source + place, after + place, rest)


@inner
def _direction(between: Any, record: int, part: int, parts: int) -> None:
    """Every part quantizes all states for itself: that takes less than to wait for others."""
    size, batch = argument(record, 10), argument(record, 11)
    start, stop = share(size, part, parts)
    sums, states = argument(record, 18) + part * 1024, argument(record, 23) + part * argument(record, 26)
    _gates_of_input(between, record, part, parts, start, stop, sums)
    for step in range(argument(record, 9)):
        before = argument(record, 5) if step == 0 else argument(record, 6) + (step - 1) * argument(record, 8)
        scale, zero_point = _parameters(before, batch * size)
        _quantize_rows(before, states, argument(record, 25), 0, batch, size, scale, zero_point)
        zero = int(reduce_max(zero_point))
        for unit in range(start, stop, 16):
            _panel(record, step, unit, stop, sums, states, zero, scale)
        between()
    if argument(record, 17):
        copy_last(record, start, stop)
    if argument(record, 19):
        clear_behind(LSTM, record, start, stop)


@task
def lstm_quantized(record: int, part: int, parts: int) -> None:
    """All steps of one direction, for one part."""
    _direction(go_on, record, part, parts)


@task
def lstm_quantized_team(record: int, part: int, parts: int) -> None:
    """The same for several parts."""
    _direction(wait, record, part, parts)
