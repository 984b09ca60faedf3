"""What tasks over recurrent weights of all types have in common: threads' units, sequences of several lengths, results."""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.rnn.arguments.layer import Layer
from ort_sdk_cpu.simd.arithmetic import reduce_add_i32, zero_f32
from ort_sdk_cpu.simd.memory import load_f32_masked, load_i32_masked, store_f32_masked
from ort_sdk_cpu.simd.synchronization import barrier

from .cells import LSTM

__all__ = ["carry_state", "clear_behind", "copy_last", "is_within", "no_barrier", "team_barrier", "unit_range"]


@inline
def _length(args: Layer, sample: int) -> Any:
    """Steps of a sample."""
    return reduce_add_i32(load_i32_masked(args.lengths + sample * 4, 1))


@inline
def is_within(args: Layer, step: int, sample: int) -> Any:
    """Whether a step belongs to a sample's sequence."""
    if args.lengths == 0:
        return True
    # ONNX pads at the end of time: a reverse direction meets the padding first.
    time = args.steps - 1 - step if args.gates_stride < 0 else step
    return time < _length(args, sample)


@inline
def carry_state(kind: int, old: int, cell: int, before: int, after: int, left: int) -> None:
    """The state of a sample whose sequence a step does not belong to stays."""
    store_f32_masked(after, load_f32_masked(before, left), left)
    if kind == LSTM:
        store_f32_masked(cell, load_f32_masked(old, left), left)


@inline
def unit_range(size: int, thread: int, threads: int) -> Any:
    """First and end of a thread's hidden units: whole vectors but for the last thread."""
    # Whole vectors: no two threads write to a cache line of a state.
    vectors = (size + 15) // 16
    return vectors * thread // threads * 16, min(size, vectors * (thread + 1) // threads * 16)


@inline
def no_barrier() -> None:
    """For tasks of one thread: it has nobody to wait for."""


@inline
def team_barrier() -> None:
    """For tasks of a team: a step needs the states of all units, which all threads have made in the step before."""
    barrier()


@inline
def copy_last(args: Layer, start: int, stop: int) -> None:
    """The last hidden states, where they are wanted."""
    steps, size, last = args.steps, args.hidden, args.last_state
    source = args.states + (steps - 1) * args.states_stride
    for sample in range(args.batch):
        for unit in range(start, stop, 16):
            offset = (sample * size + unit) * 4
            store_f32_masked(last + offset, load_f32_masked(source + offset, stop - unit), stop - unit)


@inline
def _clear(row: int, start: int, stop: int) -> None:
    """Make units of a sample 0."""
    for unit in range(start, stop, 16):
        store_f32_masked(row + unit * 4, zero_f32(), stop - unit)


@inline
def clear_behind(kind: int, args: Layer, start: int, stop: int) -> None:
    """Zeros for the results of steps that do not belong to a sequence, and for the states of empty sequences."""
    row, last = args.hidden * 4, args.last_state
    # ONNX wants zeros there, and the state was carried through them.
    for sample in range(args.batch):
        for step in range(args.steps):
            if not is_within(args, step, sample):
                _clear(args.states + step * args.states_stride + sample * row, start, stop)
        if _length(args, sample) <= 0:
            if last:
                _clear(last + sample * row, start, stop)
            if kind == LSTM:
                _clear(args.cells + sample * row, start, stop)
