"""Runs of LSTM and GRU cells over a sequence by compiled tasks."""

from __future__ import annotations

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu import libraries
from ort_sdk_cpu.machine_code import TaskCall

__all__ = ["RecurrentTask"]

UNITS_PER_TEAM = 256
"""Hidden units from which a step is worth several threads."""
CELLS, GATES, BEFORE, AFTER, GATES_STEP, AFTER_STEP, STEPS = range(2, 9)


class RecurrentTask:
    """One direction of a layer. For one thread at a time.

    Args:
        name: ``lstm`` or ``gru``, for one that resets after the product.
        batch: rows of a step.
        hidden: units.
    """

    def __init__(self, name: str, batch: int, hidden: int) -> None:
        gates = 4 if name == "lstm" else 3
        self._sums = np.empty((gates, hidden), np.float32)
        self._spare = np.empty((2, batch, hidden), np.float32)
        self._is_team = hidden >= UNITS_PER_TEAM and libraries.thread_count() > 1 and libraries.has_openmp()
        threads = libraries.thread_count() if self._is_team else 1
        arguments = (0, self._sums.ctypes.data, *[0] * 7, hidden, batch)
        self._call = TaskCall("recurrent", name, arguments, threads)

    def run(
        self,
        gates: HostArray,
        weight: HostArray,
        state: HostArray | None,
        before: HostArray,
        after: HostArray | None,
        *,
        reverse: bool,
    ) -> HostArray:
        """All steps.

        Args:
            gates: the input's share, (time, batch, gates * hidden), contiguous.
            weight: (gates * hidden, hidden), contiguous.
            state: cells, which change, or GRU's recurrent bias.
            before: first hidden state, (batch, hidden); contiguous.
            after: where the hidden states go, (time, batch, hidden), each step contiguous; None if only the last is wanted.
            reverse: last step first.

        Returns:
            The last hidden state.
        """
        call, times = self._call, len(gates)
        call.point(0, weight)
        call.point(CELLS, state)
        call.point(BEFORE, before)
        call.set(STEPS, 1)
        if not self._is_team and after is not None:
            return self._all_steps(gates, after, reverse=reverse)
        last = before
        for time in reversed(range(times)) if reverse else range(times):
            place = self._spare[time % 2] if after is None else after[time]
            call.point(GATES, gates[time])
            call.point(BEFORE, last)
            call.point(AFTER, place)
            call.run()
            last = place
        return last

    def _all_steps(self, gates: HostArray, after: HostArray, *, reverse: bool) -> HostArray:
        call, times, sign = self._call, len(gates), -1 if reverse else 1
        first = times - 1 if reverse else 0
        call.point(GATES, gates[first])
        call.point(AFTER, after[first])
        call.set(GATES_STEP, sign * gates.strides[0])
        call.set(AFTER_STEP, sign * after.strides[0])
        call.set(STEPS, times)
        call.run()
        last: HostArray = after[times - 1 - first]
        return last
