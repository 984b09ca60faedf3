"""Runs of LSTM and GRU cells over a sequence by compiled tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu import libraries
from ort_sdk_cpu.machine_code import TaskCall

from .scratch import Scratch

if TYPE_CHECKING:
    from ort_sdk_cpu.onednn.call import PrimitiveCall

__all__ = ["InputProduct", "RecurrentTask"]

MAX_VECTORS = 8
"""Vectors up to which products with a weight that is not packed are fastest one by one."""
WORK_PER_TEAM = 1 << 18
"""Multiplications that are worth several threads."""

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
        is_team = hidden >= UNITS_PER_TEAM and libraries.thread_count() > 1 and libraries.has_openmp()
        threads = libraries.thread_count() if is_team else 1
        arguments = (0, self._sums.ctypes.data, *[0] * 7, hidden, batch)
        self._call = TaskCall("recurrent", f"{name}_team" if is_team else name, arguments, threads)

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
        self._call.point(0, weight)
        self._call.point(CELLS, state)
        self._call.point(BEFORE, before)
        if after is None:
            after = np.empty((len(gates), *before.shape), np.float32)
        return self._all_steps(gates, after, reverse=reverse)

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


class InputProduct:
    """Products of a sequence's vectors with the rows of a weight, without NumPy's threads: they would spin beside OpenMP's.

    Args:
        vectors: time * batch.
        size: of an input.
        rows: gates * hidden.
    """

    def __init__(self, vectors: int, size: int, rows: int) -> None:
        self._few: TaskCall | None = None
        self._many: PrimitiveCall | None = None
        if vectors > MAX_VECTORS and libraries.onednn().is_usable:
            self._many = _product(vectors, size, rows)
        if self._many is None:
            threads = libraries.thread_count() if vectors * size * rows >= WORK_PER_TEAM else 1
            self._few = TaskCall("recurrent", "products", (0, 0, 0, vectors, size, rows), threads)

    def __call__(self, x: HostArray, weight: HostArray, out: HostArray) -> None:
        """Write ``x @ weight.T``; all are contiguous."""
        if self._many is not None:
            self._many.run(x, weight.T, out)
        elif self._few is not None:
            for position, array in enumerate((x, weight, out)):
                self._few.point(position, array)
            self._few.run()


def _product(vectors: int, size: int, rows: int) -> PrimitiveCall | None:
    from ort_sdk_cpu.onednn.call import PrimitiveCall
    from ort_sdk_cpu.onednn.constants import Argument
    from ort_sdk_cpu.onednn.memory_descriptor import contiguous, strided
    from ort_sdk_cpu.onednn.primitive import matmul

    dtype = np.dtype(np.float32)
    src, dst = contiguous((vectors, size), dtype), contiguous((vectors, rows), dtype)
    weights = strided((size, rows), dtype, (1, size))
    primitive = matmul(src, weights, None, dst)
    if primitive is None:
        return None
    layouts = ((Argument.SRC, src), (Argument.WEIGHTS, weights), (Argument.DST, dst))
    return PrimitiveCall(primitive, [(int(argument), layout, layout) for argument, layout in layouts], [], Scratch())
