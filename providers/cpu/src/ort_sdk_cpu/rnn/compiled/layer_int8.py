"""One direction of an LSTM layer with weights of int8, whose inputs and states are quantized to uint8 by their own ranges.

As ``layer``, but for products of uint8 with int8: panels are for ``microkernels.gates_int8``. ONNX Runtime's DynamicQuantizeLSTM
quantizes inputs of all steps by one range, and each state by its own.
"""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.quantized.compiled.dynamic import quantize, range_of, scale_and_zero_point
from ort_sdk_cpu.rnn.arguments.layer import THREAD_BYTES
from ort_sdk_cpu.rnn.arguments.layer_int8 import COLUMNS_BYTES, GATES, QuantizedLstm
from ort_sdk_cpu.rnn.microkernels.gates import UNIT_ROWS
from ort_sdk_cpu.rnn.microkernels.gates_int8 import add_four_scaled_sums
from ort_sdk_cpu.simd.arithmetic import reduce_max, zero_f32
from ort_sdk_cpu.simd.memory import load_f32, store_f32, store_f32_masked

from .cells import LSTM, begin_sums, lstm_unit
from .steps import carry_state, clear_behind, copy_last, is_within, no_barrier, team_barrier, unit_range

__all__ = ["lstm_quantized", "lstm_quantized_team"]


@inline
def _parameters(x: int, count: int) -> Any:
    """(scale, zero point) of an array's range."""
    low, high = range_of(x, count)
    return scale_and_zero_point(low, high)


@inline
def _quantize_rows(x: int, out: int, out_row: int, first: int, stop: int, size: int, scale: Any, zero_point: Any) -> None:
    """Rows from ``first`` to ``stop``, ``out_row`` bytes apart."""
    for row in range(first, stop):
        quantize(x + row * size * 4, out + row * out_row, size, scale, zero_point)


@inline
def _panel_bytes(size: int) -> int:
    """Bytes of a panel of 16 units, four gates, and ``size`` elements of K."""
    return (size + 3) // 4 * GATES * 64


@inline
def _gates_of_input(sync: Any, args: QuantizedLstm, thread: int, threads: int, start: int, stop: int, sums: int) -> None:
    """Products of inputs with their weights, for a thread's units of all steps; all threads quantize some rows each."""
    x, size, hidden, rows = args.x, args.inputs, args.hidden, args.steps * args.batch
    quantized, x_row, panel_bytes = args.quantized_inputs, args.input_row, _panel_bytes(size)
    # One range for the inputs of all steps, as ONNX Runtime has it: so results agree with its.
    scale, zero_point = _parameters(x, rows * size)
    _quantize_rows(x, quantized, x_row, rows * thread // threads, rows * (thread + 1) // threads, size, scale, zero_point)
    # All rows are quantized before anybody multiplies some.
    sync()
    gates, width, zero = args.gates, GATES * hidden * 4, int(reduce_max(zero_point))
    if args.gates_stride < 0:
        gates += (args.steps - 1) * args.gates_stride
    for unit in range(start, stop, 16):
        panel, columns = args.input_weights + unit // 16 * panel_bytes, args.input_columns + unit // 16 * COLUMNS_BYTES
        for first in range(0, rows, UNIT_ROWS):
            count = min(UNIT_ROWS, rows - first)
            # Sums begin with 0: biases are added when the step begins.
            for vector in range(count * GATES):
                store_f32(sums + vector * 64, zero_f32())
            add_four_scaled_sums(count, panel, quantized + first * x_row, x_row, (size + 3) // 4, columns, zero, scale, sums)
            for index in range(count):
                for gate in range(GATES):
                    target = gates + (first + index) * width + (gate * hidden + unit) * 4
                    store_f32_masked(target, load_f32(sums + (index * GATES + gate) * 64), stop - unit)


@inline
def _panel(args: QuantizedLstm, step: int, unit: int, stop: int, sums: int, states: int, zero: int, scale: Any) -> None:
    """A step of 16 units of all samples."""
    size, batch, row = args.hidden, args.batch, args.hidden * 4
    gates, after = args.gates + step * args.gates_stride, args.states + step * args.states_stride
    source = args.first_state if step == 0 else after - args.states_stride
    old = args.first_cells if step == 0 else args.cells
    # Sums of a panel's columns take the zero point of states into account: see ``gates_int8``.
    panel, columns = (
        args.recurrent_weights + unit // 16 * _panel_bytes(size),
        args.recurrent_columns + unit // 16 * COLUMNS_BYTES,
    )
    unit_offset, left, state_row = unit * 4, stop - unit, args.state_row
    for first in range(0, batch, UNIT_ROWS):
        rows = min(UNIT_ROWS, batch - first)
        for index in range(rows):
            begin_sums(LSTM, args, gates + (first + index) * GATES * row, unit_offset, left, sums + index * GATES * 64)
        add_four_scaled_sums(rows, panel, states + first * state_row, state_row, (size + 3) // 4, columns, zero, scale, sums)
        for index in range(rows):
            offset = (first + index) * row + unit_offset
            if is_within(args, step, first + index):
                lstm_unit(sums + index * GATES * 64, old + offset, args.cells + offset, after + offset, left)
            else:
                carry_state(LSTM, old + offset, args.cells + offset, source + offset, after + offset, left)


@inline
def _layer(sync: Any, args: QuantizedLstm, thread: int, threads: int) -> None:
    """All steps, for a thread's units."""
    size, batch = args.hidden, args.batch
    start, stop = unit_range(size, thread, threads)
    sums, states = args.workspace + thread * THREAD_BYTES, args.quantized_states + thread * args.thread_state_bytes
    _gates_of_input(sync, args, thread, threads, start, stop, sums)
    for step in range(args.steps):
        before = args.first_state if step == 0 else args.states + (step - 1) * args.states_stride
        # Each thread quantizes all states for itself: that takes less time than another barrier.
        scale, zero_point = _parameters(before, batch * size)
        _quantize_rows(before, states, args.state_row, 0, batch, size, scale, zero_point)
        zero = int(reduce_max(zero_point))
        for unit in range(start, stop, 16):
            _panel(args, step, unit, stop, sums, states, zero, scale)
        sync()
    if args.last_state:
        copy_last(args, start, stop)
    if args.lengths:
        clear_behind(LSTM, args, start, stop)


@task
def lstm_quantized(args: QuantizedLstm, thread: int, threads: int) -> None:
    """All steps of one direction, by one thread."""
    _layer(no_barrier, args, thread, threads)


@task
def lstm_quantized_team(args: QuantizedLstm, thread: int, threads: int) -> None:
    """The same by a team of threads."""
    _layer(team_barrier, args, thread, threads)
