"""Directions of LSTM and GRU layers: every part does its hidden units, dot products and activations alike.

All tasks take the same arguments: addresses of the recurrent weights (gates * hidden, hidden), of working memory
(batch, (gates + 1) * hidden), of the first cells or 0 and of those that change (batch, hidden; LSTM only), of the input's share
of the gates (batch, gates * hidden), of the first hidden state and of the first step's result (batch, hidden); bytes from one
step's gates and results to the next's; steps, hidden, batch; addresses of the input (steps * batch, inputs), or 0 if the input's
share is there, and of its weights (gates * hidden, inputs); inputs; addresses of the biases of input and state, or 0; where
the last hidden state goes, or 0.
"""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.jit import inner
from ort_sdk_cpu.machine_code import task
from ort_sdk_cpu.simd.arithmetic import add, fused_multiply_add, multiply, reduce_add, subtract, zero_f32
from ort_sdk_cpu.simd.functions import sigmoid, tanh
from ort_sdk_cpu.simd.memory import load_f32, load_f32_first, prefetch, store_f32_first, write_f32
from ort_sdk_cpu.simd.records import argument
from ort_sdk_cpu.simd.teams import barrier

__all__ = ["gru", "gru_reset_first", "gru_reset_first_team", "gru_team", "lstm", "lstm_team"]

_LSTM, _GRU, _GRU_RESET_FIRST = 0, 1, 2


@inner
def _four_dots(rows: int, step: int, ahead: int, x: int, size: int, sums: int, sums_step: int) -> None:
    """Products of a vector with four rows, ``step`` bytes apart; those ``ahead`` of them are asked for."""
    a, b, c, d = zero_f32(), zero_f32(), zero_f32(), zero_f32()
    whole = size // 16 * 64
    for place in range(0, whole, 64):
        value, row = load_f32(x + place), rows + place
        prefetch(row + ahead)
        prefetch(row + ahead + step)
        prefetch(row + ahead + 2 * step)
        prefetch(row + ahead + 3 * step)
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
def _dots(rows: int, start: int, stop: int, size: int, x: int, sums: int, vectors: int, sums_step: int, backwards: bool) -> None:
    """Products of vectors with the rows of a gate from start to stop. The last four rows overlap with those before them.

    Rows are met backwards every other time: those at the end are still in the cache near the core then.
    """
    step = size * 4
    if stop - start < 4:
        for row in range(start, stop):
            for vector in range(vectors):
                _four_dots(rows + row * step, 0, 0, x + vector * step, size, sums + vector * sums_step + row * 4, 0)
        return
    blocks = (stop - start + 3) // 4
    for index in range(blocks):
        block = blocks - 1 - index if backwards else index
        row = min(start + 4 * block, stop - 4)
        ahead = -4 * step if backwards else 4 * step
        for vector in range(vectors):
            _four_dots(rows + row * step, step, ahead, x + vector * step, size, sums + vector * sums_step + row * 4, 4)


@inner
def _sum_of(gates: int, sums: int, bias: int, state_bias: int, place: int, rest: int) -> Any:
    total = add(load_f32_first(gates + place, rest), load_f32_first(sums + place, rest))
    if bias:
        total = add(total, add(load_f32_first(bias + place, rest), load_f32_first(state_bias + place, rest)))
    return total


@inner
def _lstm_units(
    gates: int, sums: int, bias: int, state_bias: int, before: int, cell: int, after: int, start: int, stop: int, size: int
) -> None:
    row = size * 4
    for unit in range(start, stop, 16):
        place, rest = unit * 4, stop - unit
        entry = sigmoid(_sum_of(gates, sums, bias, state_bias, place, rest))
        output = sigmoid(_sum_of(gates, sums, bias, state_bias, place + row, rest))
        forget = sigmoid(_sum_of(gates, sums, bias, state_bias, place + 2 * row, rest))
        candidate = tanh(_sum_of(gates, sums, bias, state_bias, place + 3 * row, rest))
        old = zero_f32()
        if before:
            old = load_f32_first(before + place, rest)
        state = fused_multiply_add(entry, candidate, multiply(forget, old))
        store_f32_first(cell + place, state, rest)
        store_f32_first(after + place, multiply(output, tanh(state)), rest)


@inner
def _gru_units(
    gates: int, sums: int, bias: int, state_bias: int, before: int, after: int, start: int, stop: int, size: int
) -> None:
    row = size * 4
    for unit in range(start, stop, 16):
        place, rest = unit * 4, stop - unit
        update = _sum_of(gates, sums, bias, state_bias, place, rest)
        reset = _sum_of(gates, sums, bias, state_bias, place + row, rest)
        hidden, own = load_f32_first(sums + place + 2 * row, rest), load_f32_first(gates + place + 2 * row, rest)
        if bias:
            hidden = add(hidden, load_f32_first(state_bias + place + 2 * row, rest))
            own = add(own, load_f32_first(bias + place + 2 * row, rest))
        _mix(update, tanh(fused_multiply_add(sigmoid(reset), hidden, own)), before + place, after + place, rest)


@inner
def _mix(update: Any, candidate: Any, before: int, after: int, rest: int) -> None:
    """The new hidden state: the old one's share is the update gate's."""
    change = subtract(load_f32_first(before, rest), candidate)
    store_f32_first(after, fused_multiply_add(sigmoid(update), change, candidate), rest)


@inner
def _reset(gates: int, sums: int, bias: int, state_bias: int, before: int, start: int, stop: int, size: int) -> None:
    """The hidden state times the reset gate, behind the sums."""
    row = size * 4
    for unit in range(start, stop, 16):
        place, rest = unit * 4, stop - unit
        reset = sigmoid(_sum_of(gates, sums, bias, state_bias, place + row, rest))
        store_f32_first(sums + 3 * row + place, multiply(reset, load_f32_first(before + place, rest)), rest)


@inner
def _reset_first_units(
    gates: int, sums: int, bias: int, state_bias: int, before: int, after: int, start: int, stop: int, size: int
) -> None:
    row = size * 4
    for unit in range(start, stop, 16):
        place, rest = unit * 4, stop - unit
        update = _sum_of(gates, sums, bias, state_bias, place, rest)
        candidate = tanh(_sum_of(gates, sums, bias, state_bias, place + 2 * row, rest))
        _mix(update, candidate, before + place, after + place, rest)


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
def _gates_of_input(record: int, count: int, start: int, stop: int) -> None:
    """The input's share of the gates, for a part's units."""
    x, weights, inputs = argument(record, 12), argument(record, 13), argument(record, 14)
    size, batch, gates_step = argument(record, 10), argument(record, 11), argument(record, 7)
    steps = argument(record, 9)
    first = argument(record, 4)
    if gates_step < 0:
        first += (steps - 1) * gates_step
    for gate in range(count):
        rows, out = weights + gate * size * inputs * 4, first + gate * size * 4
        _dots(rows, start, stop, inputs, x, out, steps * batch, count * size * 4, False)


@inner
def _state_dots(kind: int, record: int, source: int, start: int, stop: int, first: int, behind: int, backwards: bool) -> None:
    """Products of the hidden states of a batch with the recurrent weights of some gates."""
    weights, sums, size, batch = argument(record, 0), argument(record, 1), argument(record, 10), argument(record, 11)
    count = 4 if kind == _LSTM else 3
    width = (count + 1) * size * 4
    for index in range(first, behind):
        gate = first + behind - 1 - index if backwards else index
        _dots(weights + gate * size * size * 4, start, stop, size, source, sums + gate * size * 4, batch, width, backwards)


@inner
def _step(kind: int, between: Any, record: int, step: int, start: int, stop: int) -> None:
    size, batch, sums = argument(record, 10), argument(record, 11), argument(record, 1)
    bias, state_bias, cell = argument(record, 15), argument(record, 16), argument(record, 3)
    count, row, backwards = 4 if kind == _LSTM else 3, size * 4, step % 2 == 1
    after = argument(record, 6) + step * argument(record, 8)
    source = argument(record, 5) if step == 0 else after - argument(record, 8)
    gates, width = argument(record, 4) + step * argument(record, 7), (count + 1) * row
    old = argument(record, 2) if step == 0 else cell
    if kind == _GRU_RESET_FIRST:
        _state_dots(kind, record, source, start, stop, 0, 2, backwards)
        for sample in range(batch):
            own, total = gates + sample * count * row, sums + sample * width
            _reset(own, total, bias, state_bias, source + sample * row, start, stop, size)
        between()
        for sample in range(batch):
            place = sums + sample * width
            weights = argument(record, 0) + 2 * size * row
            _dots(weights, start, stop, size, place + 3 * row, place + 2 * row, 1, 0, backwards)
    else:
        _state_dots(kind, record, source, start, stop, 0, count, backwards)
    for sample in range(batch):
        own, total, hidden = gates + sample * count * row, sums + sample * width, sample * row
        if kind == _LSTM:
            previous = old + hidden if old else 0
            _lstm_units(own, total, bias, state_bias, previous, cell + hidden, after + hidden, start, stop, size)
        elif kind == _GRU:
            _gru_units(own, total, bias, state_bias, source + hidden, after + hidden, start, stop, size)
        else:
            _reset_first_units(own, total, bias, state_bias, source + hidden, after + hidden, start, stop, size)


@inner
def _copy_last(record: int, start: int, stop: int) -> None:
    steps, size, last = argument(record, 9), argument(record, 10), argument(record, 17)
    source = argument(record, 6) + (steps - 1) * argument(record, 8)
    for sample in range(argument(record, 11)):
        for unit in range(start, stop, 16):
            place = (sample * size + unit) * 4
            store_f32_first(last + place, load_f32_first(source + place, stop - unit), stop - unit)


@inner
def _direction(kind: int, between: Any, record: int, part: int, parts: int) -> None:
    start, stop = _share(argument(record, 10), part, parts)
    if argument(record, 12):
        _gates_of_input(record, 4 if kind == _LSTM else 3, start, stop)
    for step in range(argument(record, 9)):
        _step(kind, between, record, step, start, stop)
        between()
    if argument(record, 17):
        _copy_last(record, start, stop)


@task
def lstm(record: int, part: int, parts: int) -> None:
    """All steps of one direction of LSTM, for one part."""
    _direction(_LSTM, _go_on, record, part, parts)


@task
def lstm_team(record: int, part: int, parts: int) -> None:
    """The same for several parts."""
    _direction(_LSTM, _wait, record, part, parts)


@task
def gru(record: int, part: int, parts: int) -> None:
    """All steps of one direction of GRU that resets after the product, for one part."""
    _direction(_GRU, _go_on, record, part, parts)


@task
def gru_team(record: int, part: int, parts: int) -> None:
    """The same for several parts."""
    _direction(_GRU, _wait, record, part, parts)


@task
def gru_reset_first(record: int, part: int, parts: int) -> None:
    """All steps of one direction of GRU that resets before the product, for one part."""
    _direction(_GRU_RESET_FIRST, _go_on, record, part, parts)


@task
def gru_reset_first_team(record: int, part: int, parts: int) -> None:
    """The same for several parts."""
    _direction(_GRU_RESET_FIRST, _wait, record, part, parts)
