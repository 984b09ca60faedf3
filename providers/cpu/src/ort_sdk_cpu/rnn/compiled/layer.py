"""One direction of an LSTM, GRU or RNN layer: all steps in one task.

A step is a product of the hidden state with all recurrent weights, and the cells' functions. Each thread has a range of hidden
units and does all of it for them, so that gates never leave its core, and threads meet once per step (twice where a GRU resets
first). The weights are panels of 16 units with all gates of a unit together: one pass over a panel gives the sums of all gates,
and it is read from its beginning to its end. Up to four samples share a pass. What inputs contribute does not depend on the
state: it is one GEMM over all steps before, or, for few steps, dot products here.

A step reads all weights, so layers whose weights do not fit the cache near the core go at the pace of the next one. Therefore
every other step meets the panels backwards: those at its end are there still when the next step begins. And the first lines of a
panel are prefetched while the one before is used, as the processor's own prefetcher starts only behind them.
"""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.rnn.arguments.layer import THREAD_BYTES, FloatLayer, Gru, GruResetFirst, Lstm, Rnn
from ort_sdk_cpu.rnn.microkernels.gates import UNIT_ROWS
from ort_sdk_cpu.simd.memory import load_f32, load_f32_masked, prefetch

from .cells import (
    GRU,
    GRU_RESET_FIRST,
    LSTM,
    RNN,
    RNN_RELU,
    begin_candidate,
    begin_sums,
    blend,
    candidate_of,
    general_lstm_unit,
    gru_unit,
    lstm_unit,
    reset_unit,
    rnn_unit,
)
from .panels import add_products, wide_panel
from .row_dots import dots_of_rows
from .steps import carry_state, clear_behind, copy_last, is_within, no_barrier, team_barrier, unit_range

__all__ = [
    "gru",
    "gru_reset_first",
    "gru_reset_first_team",
    "gru_team",
    "layer",
    "lstm",
    "lstm_team",
    "rnn",
    "rnn_relu",
    "rnn_relu_team",
    "rnn_team",
]

_PREFETCHED_LINES = 8
"""Cache lines at the beginning of a panel."""


@inline
def _gates(kind: int) -> int:
    """Gates of a unit."""
    return 4 if kind == LSTM else 1 if kind >= RNN else 3


@inline
def _gates_together(kind: int) -> int:
    """Gates whose sums one pass over a panel gives: all, but for the candidate of a GRU that resets first."""
    return 2 if kind == GRU_RESET_FIRST else _gates(kind)


@inline
def _gates_of_input(args: FloatLayer, count: int, start: int, stop: int) -> None:
    """Products of inputs with their weights, for a thread's units of all steps."""
    x, weights, inputs = args.x, args.input_weights, args.inputs
    size, batch, gates_stride = args.hidden, args.batch, args.gates_stride
    steps = args.steps
    # Steps of a reverse direction are written from the end; inputs are in their own order.
    first = args.gates
    if gates_stride < 0:
        first += (steps - 1) * gates_stride
    for gate in range(count):
        rows, out = weights + gate * size * inputs * 4, first + gate * size * 4
        dots_of_rows(rows, start, stop, inputs, x, out, steps * batch, count * size * 4)


@inline
def _panel(kind: int, panel_at: Any, accumulate: Any, args: FloatLayer, step: int, unit: int, stop: int, sums: int) -> None:
    """A step of 16 units of all samples; a GRU that resets first stops before the candidate."""
    size, batch, row = args.hidden, args.batch, args.hidden * 4
    count, width = _gates_together(kind), _gates(kind) * row
    gates, after = args.gates + step * args.gates_stride, args.states + step * args.states_stride
    source = args.first_state if step == 0 else after - args.states_stride
    old = args.first_cells if step == 0 else args.cells
    panel, unit_offset, left = panel_at(args.recurrent_weights, count, size, unit), unit * 4, stop - unit
    activations = args.activations
    # A panel is read once for up to four samples, and for the next four again, from a nearer cache.
    for first in range(0, batch, UNIT_ROWS):
        rows = min(UNIT_ROWS, batch - first)
        for index in range(rows):
            begin_sums(kind, args, gates + (first + index) * width, unit_offset, left, sums + index * count * 64)
        accumulate(count, rows, panel, source + first * row, size, sums)
        for index in range(rows):
            own, offset, found = gates + (first + index) * width, (first + index) * row + unit_offset, sums + index * count * 64
            # A sample whose sequence has ended keeps its state, so that the next step reads it like any other.
            if not is_within(args, step, first + index):
                carry_state(kind, old + offset, args.cells + offset, source + offset, after + offset, left)
            elif kind == LSTM and activations:
                general_lstm_unit(args, found, old + offset, args.cells + offset, after + offset, unit_offset, left)
            elif kind == LSTM:
                lstm_unit(found, old + offset, args.cells + offset, after + offset, left)
            elif kind == GRU:
                last = unit_offset + 2 * row
                gru_unit(activations, found, own + last, args.input_bias + last, source + offset, after + offset, left)
            elif kind >= RNN:
                rnn_unit(kind, activations, found, after + offset, left)
            else:
                kept = args.resets + offset
                reset_unit(activations, found, source + offset, kept, kept + batch * row, left)


@inline
def _candidate_panel(panel_at: Any, accumulate: Any, args: FloatLayer, step: int, unit: int, stop: int, sums: int) -> None:
    """The rest of a step of a GRU that resets first."""
    size, batch, row = args.hidden, args.batch, args.hidden * 4
    gates, after = args.gates + step * args.gates_stride, args.states + step * args.states_stride
    source = args.first_state if step == 0 else after - args.states_stride
    # The candidate's panels come after all those of update and reset gates.
    panels = panel_at(args.recurrent_weights, 2, size, (size + 15) // 16 * 16)
    panel, unit_offset, left = panel_at(panels, 1, size, unit), unit * 4, stop - unit
    updates, resets, activations = args.resets, args.resets + batch * row, args.activations
    for first in range(0, batch, UNIT_ROWS):
        rows = min(UNIT_ROWS, batch - first)
        for index in range(rows):
            begin_candidate(args, gates + (first + index) * 3 * row, unit_offset, left, sums + index * 64)
        accumulate(1, rows, panel, resets + first * row, size, sums)
        for index in range(rows):
            offset = (first + index) * row + unit_offset
            if not is_within(args, step, first + index):
                carry_state(GRU_RESET_FIRST, 0, 0, source + offset, after + offset, left)
                continue
            candidate = candidate_of(activations, load_f32(sums + index * 64))
            blend(load_f32_masked(updates + offset, left), candidate, source + offset, after + offset, left)


@inline
def _prefetch_unit(kind: int, panel_at: Any, args: FloatLayer, step: int, unit: int) -> None:
    """What 16 units begin with: the inputs' products of the first sample, and the first lines of their panel."""
    row, count = args.hidden * 4, _gates_together(kind)
    gates = args.gates + step * args.gates_stride + unit * 4
    panel = panel_at(args.recurrent_weights, count, args.hidden, unit)
    # Products of inputs were written a while ago, by the GEMM: they are in an outer cache.
    for gate in range(_gates(kind)):
        prefetch(gates + gate * row)
    for line in range(_PREFETCHED_LINES):
        prefetch(panel + line * 64)


@inline
def _step(
    kind: int, panel_at: Any, accumulate: Any, sync: Any, args: FloatLayer, step: int, start: int, stop: int, sums: int
) -> None:
    """All units of a thread, in every other step backwards."""
    panels, backwards = (stop - start + 15) // 16, step % 2 == 1
    for index in range(panels):
        unit = start + 16 * (panels - 1 - index if backwards else index)
        # The next step begins with the panel that this one ends with; products of inputs are others.
        if index + 1 == panels:
            _prefetch_unit(kind, panel_at, args, step + 1, unit)
        else:
            _prefetch_unit(kind, panel_at, args, step, unit - 16 if backwards else unit + 16)
        _panel(kind, panel_at, accumulate, args, step, unit, stop, sums)
    if kind == GRU_RESET_FIRST:
        # The candidate's product needs the reset states of all units, which all threads make.
        sync()
        for index in range(panels):
            unit = start + 16 * (panels - 1 - index if backwards else index)
            _candidate_panel(panel_at, accumulate, args, step, unit, stop, sums)


@inline
def layer(kind: int, panel_at: Any, accumulate: Any, sync: Any, args: FloatLayer, thread: int, threads: int) -> None:
    """All steps, for a thread's units.

    Args:
        kind: of the layer.
        panel_at: finds a panel of the weights.
        accumulate: adds products of states with a panel to sums.
        sync: meets the other threads.
        args: of the task.
        thread: of the team.
        threads: of the team.
    """
    start, stop = unit_range(args.hidden, thread, threads)
    sums = args.workspace + thread * THREAD_BYTES
    if args.x:
        _gates_of_input(args, _gates(kind), start, stop)
    # Functions are passed as arguments and inlined: there is one source for 16 tasks, and no call in their loops.
    for step in range(args.steps):
        _step(kind, panel_at, accumulate, sync, args, step, start, stop, sums)
        sync()
    if args.last_state:
        copy_last(args, start, stop)
    if args.lengths:
        clear_behind(kind, args, start, stop)


# Two tasks of each kind: one thread has no barriers to call, which a compiler cannot leave out by itself.
@task
def lstm(args: Lstm, thread: int, threads: int) -> None:
    """All steps of one direction of LSTM, by one thread."""
    layer(LSTM, wide_panel, add_products, no_barrier, args, thread, threads)


@task
def lstm_team(args: Lstm, thread: int, threads: int) -> None:
    """The same by a team of threads."""
    layer(LSTM, wide_panel, add_products, team_barrier, args, thread, threads)


@task
def gru(args: Gru, thread: int, threads: int) -> None:
    """All steps of one direction of a GRU that resets after the product, by one thread."""
    layer(GRU, wide_panel, add_products, no_barrier, args, thread, threads)


@task
def gru_team(args: Gru, thread: int, threads: int) -> None:
    """The same by a team of threads."""
    layer(GRU, wide_panel, add_products, team_barrier, args, thread, threads)


@task
def gru_reset_first(args: GruResetFirst, thread: int, threads: int) -> None:
    """All steps of one direction of a GRU that resets before the product, by one thread."""
    layer(GRU_RESET_FIRST, wide_panel, add_products, no_barrier, args, thread, threads)


@task
def gru_reset_first_team(args: GruResetFirst, thread: int, threads: int) -> None:
    """The same by a team of threads."""
    layer(GRU_RESET_FIRST, wide_panel, add_products, team_barrier, args, thread, threads)


@task
def rnn(args: Rnn, thread: int, threads: int) -> None:
    """All steps of one direction of an RNN, by one thread."""
    layer(RNN, wide_panel, add_products, no_barrier, args, thread, threads)


@task
def rnn_team(args: Rnn, thread: int, threads: int) -> None:
    """The same by a team of threads."""
    layer(RNN, wide_panel, add_products, team_barrier, args, thread, threads)


@task
def rnn_relu(args: Rnn, thread: int, threads: int) -> None:
    """All steps of one direction of an RNN whose activation is Relu, by one thread."""
    layer(RNN_RELU, wide_panel, add_products, no_barrier, args, thread, threads)


@task
def rnn_relu_team(args: Rnn, thread: int, threads: int) -> None:
    """The same by a team of threads."""
    layer(RNN_RELU, wide_panel, add_products, team_barrier, args, thread, threads)
