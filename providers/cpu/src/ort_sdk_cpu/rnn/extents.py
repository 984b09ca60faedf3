"""Directions of LSTM, GRU and RNN layers."""

from __future__ import annotations

from ort_sdk_cpu.jit.extents.declaration import At, Extents, MayBeAt, declares, given, reaches, reads, works, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, LANES, VECTOR, whole

__all__: list[str] = []

_PART = 1024
"""Bytes of working memory of a part."""
_FUNCTION, _FUNCTION_END = 32, 28
"""Bytes of an activation that is named, and those that are read of the last."""
_GATES = {"lstm": 4, "gru": 3, "gru_reset_first": 3, "rnn": 1, "rnn_relu": 1}
_FUNCTIONS = {"lstm": 3, "gru": 2, "gru_reset_first": 2, "rnn": 1, "rnn_relu": 1}
_NARROW = 48
"""Bytes of 16 whole numbers of 24 bits."""
_COLUMNS = 512
"""Bytes of the columns' sums and scales of 16 units."""


def _layer(module: str, kind: str) -> None:
    gates_count, is_lstm = _GATES[kind], kind == "lstm"

    @declares(module, kind, f"{kind}_team")
    def extents(
        weights: At,
        work: At,
        first_cells: At,
        cells: At,
        gates: At,
        before: At,
        after: At,
        gates_step: int,
        after_step: int,
        steps: int,
        hidden: int,
        batch: int,
        x: MayBeAt,
        x_weights: At,
        inputs: int,
        bias: At,
        state_bias: At,
        last: At,
        sums: At,
        lengths: At,
        functions: At,
        peepholes: At,
        *,
        parts: int,
    ) -> Extents:
        units, state = whole(hidden) // LANES, batch * hidden * FLOAT
        unit_bytes = hidden * VECTOR if module == "recurrent" else VECTOR + hidden * _NARROW
        yield reads(weights, units * gates_count * unit_bytes)
        if kind == "gru_reset_first":
            yield works(work, 2 * state)
        if is_lstm:
            yield reads(first_cells, state)
            yield writes(cells, state)
            yield given(peepholes, 3 * hidden * FLOAT)
        yield from _steps(gates, before, after, (gates_step, after_step, steps), gates_count, state, is_written=x.is_given)
        if x.is_given:
            yield reads(x, steps * batch * inputs * FLOAT)
            yield reads(x_weights, gates_count * hidden * inputs * FLOAT)
        yield from _rest(bias, state_bias, last, sums, lengths, (gates_count, hidden, batch, parts))
        yield given(functions, (_FUNCTIONS[kind] - 1) * _FUNCTION + _FUNCTION_END)


def _steps(
    gates: int, before: int, after: int, steps: tuple[int, int, int], count: int, state: int, *, is_written: bool
) -> Extents:
    gates_step, after_step, number = steps
    yield reaches(gates, (number,), (gates_step,), count * state, is_written=is_written)
    yield reads(before, state)
    yield reaches(after, (number,), (after_step,), state, is_written=True)


def _rest(bias: int, state_bias: int, last: int, sums: int, lengths: int, sizes: tuple[int, int, int, int]) -> Extents:
    gates, hidden, batch, parts = sizes
    yield reads(bias, gates * hidden * FLOAT)
    yield reads(state_bias, gates * hidden * FLOAT)
    yield writes(last, batch * hidden * FLOAT, may_be_none=True)
    yield works(sums, parts * _PART)
    yield given(lengths, batch * FLOAT)


for _kind in _GATES:
    _layer("recurrent", _kind)
for _kind in ("lstm", "gru", "gru_reset_first"):
    _layer("narrow_recurrent", _kind)


@declares("quantized_recurrent", "lstm_quantized", "lstm_quantized_team")
def _quantized(
    weights: At,
    work: int,
    first_cells: At,
    cells: At,
    gates: At,
    before: At,
    after: At,
    gates_step: int,
    after_step: int,
    steps: int,
    hidden: int,
    batch: int,
    x: At,
    x_weights: At,
    inputs: int,
    bias: At,
    state_bias: At,
    last: At,
    sums: At,
    lengths: At,
    state_columns: At,
    input_columns: At,
    quantized: At,
    states: At,
    x_row: int,
    state_row: int,
    state_bytes: int,
    *,
    parts: int,
) -> Extents:
    units, state, count = whole(hidden) // LANES, batch * hidden * FLOAT, _GATES["lstm"]
    yield reads(weights, units * whole(hidden, 4) * LANES * count)
    yield reads(x_weights, units * whole(inputs, 4) * LANES * count)
    yield reads(first_cells, state)
    yield writes(cells, state)
    yield reads(x, steps * batch * inputs * FLOAT)
    yield reads(state_columns, units * _COLUMNS)
    yield reads(input_columns, units * _COLUMNS)
    yield works(quantized, (steps * batch - 1) * x_row + whole(inputs, 4))
    yield works(states, (parts - 1) * state_bytes + (batch - 1) * state_row + whole(hidden, 4))
    yield from _steps(gates, before, after, (gates_step, after_step, steps), count, state, is_written=True)
    yield from _rest(bias, state_bias, last, sums, lengths, (count, hidden, batch, parts))
