"""Steps of LSTM and GRU for a few rows of a batch: every part does its hidden units, dot products and activations alike."""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.jit import inner
from ort_sdk_cpu.machine_code import task
from ort_sdk_cpu.simd.arithmetic import add, fused_multiply_add, multiply, reduce_add, subtract, zero_f32
from ort_sdk_cpu.simd.functions import sigmoid, tanh
from ort_sdk_cpu.simd.memory import load_f32, load_f32_first, prefetch, store_f32_first, write_f32
from ort_sdk_cpu.simd.records import argument
from ort_sdk_cpu.simd.teams import barrier

__all__ = ["gru", "gru_team", "lstm", "lstm_team", "products"]

_LSTM_GATES, _GRU_GATES = 4, 3


@inner
def _four_dots(rows: int, step: int, x: int, size: int, sums: int, sums_step: int) -> None:
    """Products of a vector with four rows, ``step`` bytes apart."""
    a, b, c, d = zero_f32(), zero_f32(), zero_f32(), zero_f32()
    whole = size // 16 * 64
    for place in range(0, whole, 64):
        value, row = load_f32(x + place), rows + place
        prefetch(row + 4 * step)
        prefetch(row + 5 * step)
        prefetch(row + 6 * step)
        prefetch(row + 7 * step)
        a, b = fused_multiply_add(load_f32(row), value, a), fused_multiply_add(load_f32(row + step), value, b)
        c = fused_multiply_add(load_f32(row + 2 * step), value, c)
        d = fused_multiply_add(load_f32(row + 3 * step), value, d)
    rest = size % 16
    if rest:
        value, row = load_f32_first(x + whole, rest), rows + whole
        a = fused_multiply_add(load_f32_first(row, rest), value, a)
        b = fused_multiply_add(load_f32_first(row + step, rest), value, b)
        c = fused_multiply_add(load_f32_first(row + 2 * step, rest), value, c)
        d = fused_multiply_add(load_f32_first(row + 3 * step, rest), value, d)
    write_f32(sums, reduce_add(a))
    write_f32(sums + sums_step, reduce_add(b))
    write_f32(sums + 2 * sums_step, reduce_add(c))
    write_f32(sums + 3 * sums_step, reduce_add(d))


@inner
def _dots(rows: int, start: int, stop: int, x: int, size: int, sums: int) -> None:
    """Products of a vector with the rows of a gate from start to stop. The last rows overlap with those before them."""
    step = size * 4
    if stop - start < 4:
        for row in range(start, stop):
            _four_dots(rows + row * step, 0, x, size, sums + row * 4, 0)
        return
    for row in range(start, stop - 3, 4):
        _four_dots(rows + row * step, step, x, size, sums + row * 4, 4)
    if (stop - start) % 4:
        _four_dots(rows + (stop - 4) * step, step, x, size, sums + (stop - 4) * 4, 4)


@inner
def _sum_of(first: int, second: int, place: int, rest: int) -> Any:
    return add(load_f32_first(first + place, rest), load_f32_first(second + place, rest))


@inner
def _lstm_units(gates: int, sums: int, cell: int, after: int, start: int, stop: int, size: int) -> None:
    row = size * 4
    for unit in range(start, stop, 16):
        place, rest = unit * 4, stop - unit
        entry = sigmoid(_sum_of(gates, sums, place, rest))
        output = sigmoid(_sum_of(gates, sums, place + row, rest))
        forget = sigmoid(_sum_of(gates, sums, place + 2 * row, rest))
        candidate = tanh(_sum_of(gates, sums, place + 3 * row, rest))
        kept = multiply(forget, load_f32_first(cell + place, rest))
        state = fused_multiply_add(entry, candidate, kept)
        store_f32_first(cell + place, state, rest)
        store_f32_first(after + place, multiply(output, tanh(state)), rest)


@inner
def _gru_units(gates: int, sums: int, bias: int, before: int, after: int, start: int, stop: int, size: int) -> None:
    row = size * 4
    for unit in range(start, stop, 16):
        place, rest = unit * 4, stop - unit
        update, reset = _sum_of(gates, sums, place, rest), _sum_of(gates, sums, place + row, rest)
        hidden = load_f32_first(sums + place + 2 * row, rest)
        if bias:
            update = add(update, load_f32_first(bias + place, rest))
            reset = add(reset, load_f32_first(bias + place + row, rest))
            hidden = add(hidden, load_f32_first(bias + place + 2 * row, rest))
        own = load_f32_first(gates + place + 2 * row, rest)
        candidate = tanh(fused_multiply_add(sigmoid(reset), hidden, own))
        change = subtract(load_f32_first(before + place, rest), candidate)
        store_f32_first(after + place, fused_multiply_add(sigmoid(update), change, candidate), rest)


@inner
def _share(size: int, part: int, parts: int) -> Any:
    """First and behind the last of a part's units: whole vectors but for the last part."""
    vectors = (size + 15) // 16
    return vectors * part // parts * 16, min(size, vectors * (part + 1) // parts * 16)


@inner
def _go_on() -> None:
    """One part has nobody to wait for."""


@inner
def _wait() -> None:
    barrier()


@inner
def _steps(is_lstm: bool, between: Any, record: int, part: int, parts: int) -> None:
    weights, sums, state = argument(record, 0), argument(record, 1), argument(record, 2)
    gates, before, after = argument(record, 3), argument(record, 4), argument(record, 5)
    gates_step, after_step = argument(record, 6), argument(record, 7)
    size, batch = argument(record, 9), argument(record, 10)
    count = _LSTM_GATES if is_lstm else _GRU_GATES
    start, stop = _share(size, part, parts)
    for step in range(argument(record, 8)):
        source = before if step == 0 else after + (step - 1) * after_step
        for sample in range(batch):
            x, row = source + sample * size * 4, gates + step * gates_step + sample * count * size * 4
            for gate in range(count):
                _dots(weights + gate * size * size * 4, start, stop, x, size, sums + gate * size * 4)
            target = after + step * after_step + sample * size * 4
            if is_lstm:
                _lstm_units(row, sums, state + sample * size * 4, target, start, stop, size)
            else:
                _gru_units(row, sums, state, x, target, start, stop, size)
        between()


@task
def lstm(record: int, part: int, parts: int) -> None:
    """Steps of one direction, for one part.

    Arguments: addresses of the recurrent weights (4 * hidden, hidden), of working memory (4 * hidden), of the cells (batch,
    hidden), of the input's share of the gates (batch, 4 * hidden), of the hidden states before and after (batch, hidden);
    bytes from one step's gates and states to the next's; steps; hidden; batch.
    """
    _steps(True, _go_on, record, part, parts)


@task
def lstm_team(record: int, part: int, parts: int) -> None:
    """The same for several parts."""
    _steps(True, _wait, record, part, parts)


@task
def gru(record: int, part: int, parts: int) -> None:
    """The same for GRU that resets after the product: three gates, and its recurrent bias (or 0) in place of the cells."""
    _steps(False, _go_on, record, part, parts)


@task
def gru_team(record: int, part: int, parts: int) -> None:
    """The same for several parts."""
    _steps(False, _wait, record, part, parts)


@task
def products(record: int, part: int, parts: int) -> None:
    """Products of a few vectors with the rows of a matrix: (x, matrix, out, vectors, size, rows)."""
    x, weights, out = argument(record, 0), argument(record, 1), argument(record, 2)
    size, rows = argument(record, 4), argument(record, 5)
    start, stop = _share(rows, part, parts)
    for vector in range(argument(record, 3)):
        _dots(weights, start, stop, x + vector * size * 4, size, out + vector * rows * 4)
