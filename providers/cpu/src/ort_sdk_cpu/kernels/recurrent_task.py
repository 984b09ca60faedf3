"""Directions of LSTM, GRU and RNN layers by compiled tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu import libraries
from ort_sdk_cpu.addresses import address_of
from ort_sdk_cpu.machine_code import TaskCall
from ort_sdk_cpu.native_call import in_turn

from .compiled_product import CompiledProduct, Sizes
from .recurrent_weights import DirectionWeights
from .scratch import Scratch

__all__ = ["LayerSizes", "RecurrentTask"]

MAX_VECTORS = 8
"""Vectors of the input up to which the task itself multiplies them by the weights, which it reads as they lie."""
UNITS_PER_TEAM = 256
"""Hidden units from which a step is worth several threads."""
_FLOAT = np.dtype(np.float32)
_FLOAT_BYTES = 4
LSTM_GATES = 4
_COUNT = 20
_WEIGHTS, _WORK, _FIRST_CELLS, _CELLS, _GATES, _BEFORE, _AFTER, _GATES_STEP, _AFTER_STEP = range(9)
_STEPS, _HIDDEN, _BATCH, _X, _X_WEIGHTS, _INPUTS, _BIAS, _STATE_BIAS, _LAST, _SUMS, _LENGTHS = range(9, _COUNT)
_PART_FLOATS = 256
"""Working memory of a part."""


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """Sizes of one direction."""

    steps: int
    batch: int
    inputs: int
    hidden: int
    gates: int
    """4 for LSTM, 3 for GRU, 1 for RNN."""


_SMALL_BYTES = 1 << 16
"""Working memory up to which a task has its own."""


class _Working:
    """Working memory of a task: its own if that is little, else what all of a session's kernels share."""

    def __init__(self, sizes: LayerSizes, scratch: Scratch, threads: int) -> None:
        shapes = {
            "gates": (sizes.steps * sizes.batch, sizes.gates * sizes.hidden),
            "states": (sizes.steps, sizes.batch, sizes.hidden),
            "sums": (threads, _PART_FLOATS),
            "resets": (2, sizes.batch, sizes.hidden),
            "cells": (sizes.batch, sizes.hidden),
        }
        is_small = sum(map(math.prod, shapes.values())) * _FLOAT_BYTES <= _SMALL_BYTES
        self._own = {name: np.empty(shape, _FLOAT) for name, shape in shapes.items()} if is_small else None
        self._shapes, self._scratch = shapes, scratch

    @property
    def is_own(self) -> bool:
        """Whether it stays the same and is nobody else's."""
        return self._own is not None

    def array(self, name: str) -> HostArray:
        """Memory with any contents."""
        if self._own is not None:
            return self._own[name]
        return self._scratch.array(name, self._shapes[name], _FLOAT)


class RecurrentTask:
    """One direction of a layer. For one thread at a time.

    Args:
        name: ``lstm``, ``gru`` (which resets after the product), ``gru_reset_first``, ``rnn`` or ``rnn_relu``.
        sizes: of everything.
        scratch: working memory.
        reverse: last step first.
    """

    def __init__(self, name: str, sizes: LayerSizes, scratch: Scratch, *, reverse: bool) -> None:
        self._sizes, self._resets_first = sizes, name == "gru_reset_first"
        self._weights: DirectionWeights | None = None
        self._bias: HostArray | None = None
        is_team = sizes.hidden >= UNITS_PER_TEAM and libraries.thread_count() > 1 and libraries.has_openmp()
        step = sizes.batch * sizes.gates * sizes.hidden * _FLOAT_BYTES
        self._first_gates, self._sign = (sizes.steps - 1) * step if reverse else 0, -1 if reverse else 1
        arguments = [0] * _COUNT
        arguments[_STEPS], arguments[_HIDDEN], arguments[_BATCH] = sizes.steps, sizes.hidden, sizes.batch
        arguments[_INPUTS], arguments[_GATES_STEP] = sizes.inputs, self._sign * step
        threads = libraries.thread_count() if is_team else 1
        self._working = _Working(sizes, scratch, threads)
        self._call = TaskCall("recurrent", f"{name}_team" if is_team else name, tuple(arguments), threads)
        self._zeros = np.zeros((sizes.batch, sizes.hidden), _FLOAT)
        self._product: CompiledProduct | None = None
        if sizes.steps * sizes.batch > MAX_VECTORS:
            product = Sizes(sizes.steps * sizes.batch, sizes.inputs, sizes.gates * sizes.hidden, is_transposed=True)
            self._product = CompiledProduct(product, scratch)

    def use_weights(self, weights: DirectionWeights) -> None:
        """Read these from now on; they are kept."""
        self._weights = weights
        call, half = self._call, self._sizes.gates * self._sizes.hidden
        b = self._bias = np.zeros(2 * half, _FLOAT) if weights.b is None else weights.b
        call.point(_WEIGHTS, weights.panels)
        call.point(_X_WEIGHTS, weights.w)
        call.point(_BIAS, b)
        call.point(_STATE_BIAS, b[half:])

    def fixed(
        self, x: HostArray, before: Sequence[Any], after: HostArray | None, last: Sequence[Any], lengths: HostArray | None = None
    ) -> Callable[[], Any] | None:
        """A call of :meth:`run` on arrays that stay; None if it takes memory shared with others."""
        if not self._working.is_own:
            return None
        self._aim(x, before, after, last, lengths)
        steps = self._call.kept(self, x, *before, after, *last, lengths)
        if self._product is None or self._weights is None:
            return steps
        return in_turn([self._product.fixed(x, self._weights.w, None, self._working.array("gates")), steps])

    def run(
        self, x: HostArray, before: Sequence[Any], after: HostArray | None, last: Sequence[Any], lengths: HostArray | None = None
    ) -> None:
        """All steps.

        Args:
            x: (steps, batch, inputs), contiguous.
            before: first hidden state and, for LSTM, cells, (batch, hidden), contiguous; None for zeros.
            after: where the hidden states go, (steps, batch, hidden), each step contiguous; None if they are not wanted.
            last: where the last hidden state and LSTM's cells go, (batch, hidden), contiguous; None if they are not wanted.
            lengths: steps of each sample, int32, (batch,), contiguous; None if all have all.
        """
        if self._product is not None and self._weights is not None:
            self._product(x, self._weights.w, None, self._working.array("gates"))
        self._aim(x, before, after, last, lengths)
        self._call.run()

    def _aim(
        self, x: HostArray, before: Sequence[Any], after: HostArray | None, last: Sequence[Any], lengths: HostArray | None
    ) -> None:
        """Tell the task where all is."""
        call, working = self._call, self._working
        gates, sign = working.array("gates"), self._sign
        if self._product is None:
            call.point(_X, x)
        call.set(_GATES, address_of(gates) + self._first_gates)
        call.point(_SUMS, working.array("sums"))
        if self._resets_first:
            call.point(_WORK, working.array("resets"))
        call.point(_BEFORE, self._zeros if before[0] is None else before[0])
        if self._sizes.gates == LSTM_GATES:
            call.point(_FIRST_CELLS, self._zeros if before[1] is None else before[1])
            call.point(_CELLS, working.array("cells") if last[1] is None else last[1])
        results = working.array("states") if after is None else after
        steps, step = self._sizes.steps, results.strides[0]
        call.set(_AFTER, address_of(results) + (step * (steps - 1) if sign < 0 else 0))
        call.set(_AFTER_STEP, sign * step)
        call.point(_LAST, last[0])
        call.point(_LENGTHS, lengths)
