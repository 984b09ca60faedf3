"""Directions of LSTM, GRU and RNN layers: every part does its hidden units, products and activations alike.

All tasks take the same arguments: addresses of the recurrent weights as panels of 16 units (``packing.py``), of
working memory (2, batch, hidden; GRU that resets first only), of the first cells and of those that change (batch, hidden;
LSTM only), of the input's share of the gates (batch, gates * hidden), of the first hidden state and of the first step's result
(batch, hidden); bytes from one step's gates and results to the next's; steps, hidden, batch; addresses of the input (steps *
batch, inputs), or 0 if the input's share is there, and of its weights (gates * hidden, inputs); inputs; addresses of the biases
of input and state; where the last hidden state goes, or 0; address of 1024 bytes of working memory for each part; address of
the samples' numbers of steps (int32), or 0 if all have all steps; address of the activations as they are told
(``activations.py``), or 0 for the usual ones; address of LSTM's peepholes (3 * hidden), or 0.
"""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.rnn.microkernels.gates import UNIT_ROWS
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.arithmetic import (
    add,
    fused_multiply_add,
    maximum,
    maximum_or_nan,
    minimum,
    multiply,
    reduce_add_i32,
    subtract,
    zero_f32,
)
from ort_sdk_cpu.simd.barrier import barrier
from ort_sdk_cpu.simd.math import sigmoid, tanh
from ort_sdk_cpu.simd.memory import (
    broadcast_f32,
    load_f32,
    load_f32_first,
    load_i32_first,
    prefetch,
    read_f32,
    store_f32,
    store_f32_first,
)

from .panels import add_products, wide_panel
from .row_dots import dots_of_rows

__all__ = [
    "GRU",
    "GRU_RESET_FIRST",
    "LSTM",
    "begin_unit",
    "clear_behind",
    "copy_last",
    "direction",
    "go_on",
    "gru",
    "gru_reset_first",
    "gru_reset_first_team",
    "gru_team",
    "is_within",
    "keep",
    "lstm",
    "lstm_team",
    "lstm_unit",
    "rnn",
    "rnn_relu",
    "rnn_relu_team",
    "rnn_team",
    "share",
    "wait",
]

LSTM, GRU, GRU_RESET_FIRST, _RNN, _RNN_RELU = 0, 1, 2, 3, 4
_IDENTITY, _SIGMOID = 0, 1
"""Of activations that a record tells."""
_FUNCTION_BYTES = 32
_ASKED_LINES = 8
"""Lines of the cache at the beginning of a panel, behind which the processor goes on by itself."""


@inner
def _begin(gates: int, bias: int, state_bias: int, place: int, rest: int, target: int) -> None:
    """What a sum begins with: the input's share of the gate, and both biases."""
    biases = add(load_f32_first(bias + place, rest), load_f32_first(state_bias + place, rest))
    store_f32(target, add(load_f32_first(gates + place, rest), biases))


@inner
def begin_unit(kind: int, record: int, gates: int, place: int, rest: int, target: int) -> None:
    """What the sums of 16 units of a sample begin with."""
    bias, state_bias, row = argument(record, 15), argument(record, 16), argument(record, 10) * 4
    _begin(gates, bias, state_bias, place, rest, target)
    if kind < _RNN:
        _begin(gates, bias, state_bias, place + row, rest, target + 64)
    if kind == LSTM:
        _begin(gates, bias, state_bias, place + 2 * row, rest, target + 128)
        _begin(gates, bias, state_bias, place + 3 * row, rest, target + 192)
    elif kind == GRU:
        store_f32(target + 128, load_f32_first(state_bias + place + 2 * row, rest))


@inner
def _activated(x: Any, function: int) -> Any:
    """A told activation: bounds and a line, a function of that, and a factor and bounds of the result."""
    bound = broadcast_f32(function + 4)
    bounded = minimum(bound, maximum(subtract(zero_f32(), bound), x))
    value = fused_multiply_add(bounded, broadcast_f32(function + 8), broadcast_f32(function + 12))
    kind = int(read_f32(function))
    if kind == _SIGMOID:
        value = sigmoid(value)
    elif kind != _IDENTITY:
        value = multiply(tanh(value), broadcast_f32(function + 16))
    return minimum(broadcast_f32(function + 24), maximum(broadcast_f32(function + 20), value))


@inner
def _activate(place: int, function: int) -> None:
    store_f32(place, _activated(load_f32(place), function))


@inner
def _see(sums: int, peephole: int, cells: Any, rest: int) -> None:
    """Add what a gate sees of the cells."""
    store_f32(sums, fused_multiply_add(load_f32_first(peephole, rest), cells, load_f32(sums)))


@inner
def _told_lstm_unit(record: int, sums: int, before: int, cell: int, after: int, unit: int, rest: int) -> None:
    """As ``lstm_unit``, by the activations and peepholes that the record tells; the output gate sees the new cells."""
    functions, peepholes, row = argument(record, 20), argument(record, 21), argument(record, 10) * 4
    old = load_f32_first(before, rest)
    if peepholes:
        _see(sums, peepholes + unit, old, rest)
        _see(sums + 128, peepholes + 2 * row + unit, old, rest)
    for gate in range(4):
        if gate != 1:
            _activate(sums + gate * 64, functions + gate // 3 * _FUNCTION_BYTES)
    state = fused_multiply_add(load_f32(sums), load_f32(sums + 192), multiply(load_f32(sums + 128), old))
    store_f32_first(cell, state, rest)
    if peepholes:
        _see(sums + 64, peepholes + row + unit, state, rest)
    _activate(sums + 64, functions)
    store_f32_first(after, multiply(load_f32(sums + 64), _activated(state, functions + 2 * _FUNCTION_BYTES)), rest)


@inner
def lstm_unit(sums: int, before: int, cell: int, after: int, rest: int) -> None:
    """The new cells and hidden states of 16 units of a sample, from the sums of its gates."""
    entry, output, forget = sigmoid(load_f32(sums)), sigmoid(load_f32(sums + 64)), sigmoid(load_f32(sums + 128))
    kept = multiply(forget, load_f32_first(before, rest))
    state = fused_multiply_add(entry, tanh(load_f32(sums + 192)), kept)
    store_f32_first(cell, state, rest)
    store_f32_first(after, multiply(output, tanh(state)), rest)


@inner
def _gate(functions: int, place: int) -> None:
    """A gate of GRU, from its sum."""
    if functions:
        _activate(place, functions)
    else:
        store_f32(place, sigmoid(load_f32(place)))


@inner
def _candidate(functions: int, x: Any) -> Any:
    return _activated(x, functions + _FUNCTION_BYTES) if functions else tanh(x)


@inner
def _gru_unit(functions: int, sums: int, gates: int, bias: int, before: int, after: int, rest: int) -> None:
    """The input's share of the candidate is not part of its sum, which the reset gate is for."""
    own = add(load_f32_first(gates, rest), load_f32_first(bias, rest))
    _gate(functions, sums)
    _gate(functions, sums + 64)
    candidate = fused_multiply_add(load_f32(sums + 64), load_f32(sums + 128), own)
    _mix(load_f32(sums), _candidate(functions, candidate), before, after, rest)


@inner
def _mix(update: Any, candidate: Any, before: int, after: int, rest: int) -> None:
    """The new hidden state: the old one's share is the update gate."""
    change = subtract(load_f32_first(before, rest), candidate)
    store_f32_first(after, fused_multiply_add(update, change, candidate), rest)


@inner
def _reset_unit(functions: int, sums: int, before: int, update: int, reset: int, rest: int) -> None:
    """Keep the update gate, and the hidden state times the reset gate."""
    _gate(functions, sums)
    _gate(functions, sums + 64)
    store_f32_first(update, load_f32(sums), rest)
    store_f32_first(reset, multiply(load_f32(sums + 64), load_f32_first(before, rest)), rest)


@inner
def _rnn_unit(kind: int, functions: int, sums: int, after: int, rest: int) -> None:
    total = load_f32(sums)
    if functions:
        store_f32_first(after, _activated(total, functions), rest)
    else:
        store_f32_first(after, maximum_or_nan(total, zero_f32()) if kind == _RNN_RELU else tanh(total), rest)


@inner
def _length(record: int, sample: int) -> Any:
    """Number of a sample's steps."""
    return reduce_add_i32(load_i32_first(argument(record, 19) + sample * 4, 1))


@inner
def is_within(record: int, step: int, sample: int) -> Any:
    """Whether a step belongs to a sample's sequence."""
    if argument(record, 19) == 0:
        return True
    time = argument(record, 9) - 1 - step if argument(record, 7) < 0 else step
    return time < _length(record, sample)


@inner
def keep(kind: int, old: int, cell: int, before: int, after: int, rest: int) -> None:
    """The state of a sample whose sequence a step does not belong to."""
    store_f32_first(after, load_f32_first(before, rest), rest)
    if kind == LSTM:
        store_f32_first(cell, load_f32_first(old, rest), rest)


@inner
def share(size: int, part: int, parts: int) -> Any:
    """First and behind the last of a part's units: whole vectors but for the last part."""
    vectors = (size + 15) // 16
    return vectors * part // parts * 16, min(size, vectors * (part + 1) // parts * 16)


@inner
def go_on() -> None:
    """One part has nobody to wait for."""


@inner
def wait() -> None:
    """All parts meet."""
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
        dots_of_rows(rows, start, stop, inputs, x, out, steps * batch, count * size * 4)


@inner
def _panel(kind: int, panel_of: Any, add: Any, record: int, step: int, unit: int, stop: int, sums: int) -> None:
    """A step of 16 units of all samples; GRU that resets first stops before the candidate."""
    size, batch, row = argument(record, 10), argument(record, 11), argument(record, 10) * 4
    count = 4 if kind == LSTM else 3 if kind == GRU else 2 if kind == GRU_RESET_FIRST else 1
    width = _gates(kind) * row
    gates, after = argument(record, 4) + step * argument(record, 7), argument(record, 6) + step * argument(record, 8)
    source = argument(record, 5) if step == 0 else after - argument(record, 8)
    old = argument(record, 2) if step == 0 else argument(record, 3)
    panel, unit_place, rest = panel_of(argument(record, 0), count, size, unit), unit * 4, stop - unit
    functions = argument(record, 20)
    for first in range(0, batch, UNIT_ROWS):
        rows = min(UNIT_ROWS, batch - first)
        for index in range(rows):
            begin_unit(kind, record, gates + (first + index) * width, unit_place, rest, sums + index * count * 64)
        add(count, rows, panel, source + first * row, size, sums)
        for index in range(rows):
            own, place, found = gates + (first + index) * width, (first + index) * row + unit_place, sums + index * count * 64
            if not is_within(record, step, first + index):
                keep(kind, old + place, argument(record, 3) + place, source + place, after + place, rest)
            elif kind == LSTM and functions:
                _told_lstm_unit(record, found, old + place, argument(record, 3) + place, after + place, unit_place, rest)
            elif kind == LSTM:
                lstm_unit(found, old + place, argument(record, 3) + place, after + place, rest)
            elif kind == GRU:
                share = unit_place + 2 * row
                _gru_unit(functions, found, own + share, argument(record, 15) + share, source + place, after + place, rest)
            elif kind >= _RNN:
                _rnn_unit(kind, functions, found, after + place, rest)
            else:
                kept = argument(record, 1) + place
                _reset_unit(functions, found, source + place, kept, kept + batch * row, rest)


@inner
def _candidate_panel(panel_of: Any, add: Any, record: int, step: int, unit: int, stop: int, sums: int) -> None:
    """The rest of a step of GRU that resets first."""
    size, batch, row = argument(record, 10), argument(record, 11), argument(record, 10) * 4
    bias, state_bias = argument(record, 15), argument(record, 16)
    gates, after = argument(record, 4) + step * argument(record, 7), argument(record, 6) + step * argument(record, 8)
    source = argument(record, 5) if step == 0 else after - argument(record, 8)
    panels = panel_of(argument(record, 0), 2, size, (size + 15) // 16 * 16)
    panel, unit_place, rest = panel_of(panels, 1, size, unit), unit * 4, stop - unit
    updates, resets, functions = argument(record, 1), argument(record, 1) + batch * row, argument(record, 20)
    for first in range(0, batch, UNIT_ROWS):
        rows = min(UNIT_ROWS, batch - first)
        for index in range(rows):
            own = gates + (first + index) * 3 * row
            _begin(own, bias, state_bias, unit_place + 2 * row, rest, sums + index * 64)
        add(1, rows, panel, resets + first * row, size, sums)
        for index in range(rows):
            place = (first + index) * row + unit_place
            if not is_within(record, step, first + index):
                keep(GRU_RESET_FIRST, 0, 0, source + place, after + place, rest)
                continue
            candidate = _candidate(functions, load_f32(sums + index * 64))
            _mix(load_f32_first(updates + place, rest), candidate, source + place, after + place, rest)


@inner
def _ask_for_unit(kind: int, panel_of: Any, record: int, step: int, unit: int) -> None:
    """What 16 units begin with: the input's share of the first sample's gates, and the first of their panel."""
    row, count = argument(record, 10) * 4, 4 if kind == LSTM else 2 if kind == GRU_RESET_FIRST else _gates(kind)
    share = argument(record, 4) + step * argument(record, 7) + unit * 4
    panel = panel_of(argument(record, 0), count, argument(record, 10), unit)
    for gate in range(_gates(kind)):
        prefetch(share + gate * row)
    for line in range(_ASKED_LINES):
        prefetch(panel + line * 64)


@inner
def _step(kind: int, panel_of: Any, add: Any, between: Any, record: int, step: int, start: int, stop: int, sums: int) -> None:
    """Panels are met backwards every other time: those at the end are still in the cache near the core then."""
    panels, backwards = (stop - start + 15) // 16, step % 2 == 1
    for index in range(panels):
        unit = start + 16 * (panels - 1 - index if backwards else index)
        if index + 1 == panels:
            _ask_for_unit(kind, panel_of, record, step + 1, unit)
        else:
            _ask_for_unit(kind, panel_of, record, step, unit - 16 if backwards else unit + 16)
        _panel(kind, panel_of, add, record, step, unit, stop, sums)
    if kind == GRU_RESET_FIRST:
        between()
        for index in range(panels):
            unit = start + 16 * (panels - 1 - index if backwards else index)
            _candidate_panel(panel_of, add, record, step, unit, stop, sums)


@inner
def copy_last(record: int, start: int, stop: int) -> None:
    """The last hidden states, where they are asked for."""
    steps, size, last = argument(record, 9), argument(record, 10), argument(record, 17)
    source = argument(record, 6) + (steps - 1) * argument(record, 8)
    for sample in range(argument(record, 11)):
        for unit in range(start, stop, 16):
            place = (sample * size + unit) * 4
            store_f32_first(last + place, load_f32_first(source + place, stop - unit), stop - unit)


@inner
def _clear(place: int, start: int, stop: int) -> None:
    """Zeros for a sample's units."""
    for unit in range(start, stop, 16):
        store_f32_first(place + unit * 4, zero_f32(), stop - unit)


@inner
def clear_behind(kind: int, record: int, start: int, stop: int) -> None:
    """Zeros for the results of steps that do not belong to a sequence, and for the states of empty sequences."""
    row, last = argument(record, 10) * 4, argument(record, 17)
    for sample in range(argument(record, 11)):
        for step in range(argument(record, 9)):
            if not is_within(record, step, sample):
                _clear(argument(record, 6) + step * argument(record, 8) + sample * row, start, stop)
        if _length(record, sample) <= 0:
            if last:
                _clear(last + sample * row, start, stop)
            if kind == LSTM:
                _clear(argument(record, 3) + sample * row, start, stop)


@inner
def _gates(kind: int) -> int:
    return 4 if kind == LSTM else 1 if kind >= _RNN else 3


@inner
def direction(kind: int, panel_of: Any, add: Any, between: Any, record: int, part: int, parts: int) -> None:
    """All steps, for one part, with panels of the weights that one function finds and another multiplies with."""
    start, stop = share(argument(record, 10), part, parts)
    sums = argument(record, 18) + part * 1024
    if argument(record, 12):
        _gates_of_input(record, _gates(kind), start, stop)
    for step in range(argument(record, 9)):
        _step(kind, panel_of, add, between, record, step, start, stop, sums)
        between()
    if argument(record, 17):
        copy_last(record, start, stop)
    if argument(record, 19):
        clear_behind(kind, record, start, stop)


@task
def lstm(record: int, part: int, parts: int) -> None:
    """All steps of one direction of LSTM, for one part."""
    direction(LSTM, wide_panel, add_products, go_on, record, part, parts)


@task
def lstm_team(record: int, part: int, parts: int) -> None:
    """The same for several parts."""
    direction(LSTM, wide_panel, add_products, wait, record, part, parts)


@task
def gru(record: int, part: int, parts: int) -> None:
    """All steps of one direction of GRU that resets after the product, for one part."""
    direction(GRU, wide_panel, add_products, go_on, record, part, parts)


@task
def gru_team(record: int, part: int, parts: int) -> None:
    """The same for several parts."""
    direction(GRU, wide_panel, add_products, wait, record, part, parts)


@task
def gru_reset_first(record: int, part: int, parts: int) -> None:
    """All steps of one direction of GRU that resets before the product, for one part."""
    direction(GRU_RESET_FIRST, wide_panel, add_products, go_on, record, part, parts)


@task
def gru_reset_first_team(record: int, part: int, parts: int) -> None:
    """The same for several parts."""
    direction(GRU_RESET_FIRST, wide_panel, add_products, wait, record, part, parts)


@task
def rnn(record: int, part: int, parts: int) -> None:
    """All steps of one direction of RNN, for one part."""
    direction(_RNN, wide_panel, add_products, go_on, record, part, parts)


@task
def rnn_team(record: int, part: int, parts: int) -> None:
    """The same for several parts."""
    direction(_RNN, wide_panel, add_products, wait, record, part, parts)


@task
def rnn_relu(record: int, part: int, parts: int) -> None:
    """All steps of one direction of RNN whose activation is Relu, for one part."""
    direction(_RNN_RELU, wide_panel, add_products, go_on, record, part, parts)


@task
def rnn_relu_team(record: int, part: int, parts: int) -> None:
    """The same for several parts."""
    direction(_RNN_RELU, wide_panel, add_products, wait, record, part, parts)
