"""Directions of LSTM, GRU and RNN layers by compiled tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.gemm.plan import GemmCall
from ort_sdk_cpu.gemm.select import GemmProblem
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.memory.workspace import Workspace
from ort_sdk_cpu.platform import libraries

from .arguments.layer import MODULE, THREAD_BYTES, FloatLayer, Gru, GruResetFirst, Layer, Lstm, Rnn
from .packing import DirectionWeights
from .select import LayerSizes

__all__ = ["RecurrentTask"]

_FLOAT = np.dtype(np.float32)
_FLOAT_BYTES = 4
LSTM_GATES = 4

_ARGUMENTS: dict[str, type[Layer]] = {"lstm": Lstm, "gru": Gru, "gru_reset_first": GruResetFirst, "rnn": Rnn, "rnn_relu": Rnn}
"""Task → its class of arguments."""


_SMALL_BYTES = 1 << 17
"""Workspace up to which a task has its own."""


class _Working:
    """Workspace of a task: its own if that is small, so that calls can be bound once; else that of all of a session's kernels."""

    def __init__(
        self, sizes: LayerSizes, workspace: Workspace, threads: int, prefix: str, more: Mapping[str, tuple[int, ...]]
    ) -> None:
        shapes = {
            "gates": (sizes.steps * sizes.batch, sizes.gates * sizes.hidden),
            "states": (sizes.steps, sizes.batch, sizes.hidden),
            "sums": (threads, THREAD_BYTES // _FLOAT_BYTES),
            "resets": (2, sizes.batch, sizes.hidden),
            "cells": (sizes.batch, sizes.hidden),
            **more,
        }
        is_small = sum(map(math.prod, shapes.values())) * _FLOAT_BYTES <= _SMALL_BYTES
        self._own = {name: np.empty(shape, _FLOAT) for name, shape in shapes.items()} if is_small else None
        self._shapes, self._workspace, self._prefix = shapes, workspace, prefix

    @property
    def is_own(self) -> bool:
        """Whether it stays the same, and nobody else uses it."""
        return self._own is not None

    def array(self, name: str) -> HostArray:
        """Memory with any contents."""
        if self._own is not None:
            return self._own[name]
        return self._workspace.array(f"{self._prefix}{name}", self._shapes[name], _FLOAT)


class RecurrentTask:
    """One direction of a layer. For one thread at a time.

    Args:
        name: ``lstm``, ``gru`` (which resets after the product), ``gru_reset_first``, ``rnn`` or ``rnn_relu``.
        sizes: of everything.
        workspace: the workspace.
        reverse: last step first.
        activations: described, as ``activations`` does; None for the operator's own.
        is_int24: whether recurrent weights have 24 bits.
    """

    def __init__(
        self,
        name: str,
        sizes: LayerSizes,
        workspace: Workspace,
        *,
        reverse: bool,
        activations: HostArray | None = None,
        is_int24: bool = False,
    ) -> None:
        self._activations = activations
        self._sizes, self._resets_first = sizes, name == "gru_reset_first"
        self._weights: DirectionWeights | None = None
        self._bias: HostArray | None = None
        is_team = sizes.is_of_team
        step = sizes.batch * sizes.gates * sizes.hidden * _FLOAT_BYTES
        self._first_gates, self._sign = (sizes.steps - 1) * step if reverse else 0, -1 if reverse else 1
        threads = libraries.thread_count() if is_team else 1
        # Directions that run at the same time have a workspace each.
        prefix = "backwards " if reverse and sizes.are_concurrent else ""
        self._working = _Working(sizes, workspace, threads, prefix, self._more_memory(threads))
        module, kind = self._task(name, is_int24=is_int24)
        numbers = {"steps": sizes.steps, "hidden": sizes.hidden, "batch": sizes.batch, "inputs": sizes.inputs}
        arguments = kind.of_sizes(**numbers, gates_stride=self._sign * step, **self._more_numbers())
        self.call = TaskCall(module, f"{name}_team" if is_team else name, arguments, threads)
        """The task itself."""
        if activations is not None:
            self.call.point(FloatLayer.activations, activations)
        self._zeros = np.zeros((sizes.batch, sizes.hidden), _FLOAT)
        self._product = self._input_product(workspace)

    @property
    def is_concurrent(self) -> bool:
        """Whether the task may run at the same time as that of the other direction."""
        return self._sizes.are_concurrent

    def _input_product(self, workspace: Workspace) -> GemmCall | None:
        """The GEMM of inputs and their weights before the task; None if the task does it."""
        sizes = self._sizes
        if sizes.multiplies_inputs:
            return None
        product = GemmProblem(sizes.steps * sizes.batch, sizes.inputs, sizes.gates * sizes.hidden, trans_b=True)
        return GemmCall(product, workspace)

    def _more_memory(self, _threads: int) -> Mapping[str, tuple[int, ...]]:
        """Further workspace, float32, by name."""
        return {}

    def _task(self, name: str, *, is_int24: bool) -> tuple[str, type[Layer]]:
        """Module and class of arguments of a task."""
        if not is_int24:
            return MODULE, _ARGUMENTS[name]
        # Only layers whose weights do not fit the cache have 24 bits.
        from .arguments import layer_int24

        kinds = {"lstm": layer_int24.LstmInt24, "gru": layer_int24.GruInt24, "gru_reset_first": layer_int24.GruResetFirstInt24}
        return layer_int24.MODULE, kinds[name]

    def _more_numbers(self) -> Mapping[str, int]:
        """Further sizes and strides that the task takes, by name."""
        return {}

    def use_peepholes(self, peepholes: HostArray) -> None:
        """Read these from now on, (3 * hidden,), contiguous, which the caller keeps. Only for described activations."""
        self.call.point(FloatLayer.peepholes, peepholes)

    def use_weights(self, weights: DirectionWeights) -> None:
        """Read these from now on; they are kept."""
        self._weights = weights
        call, half = self.call, self._sizes.gates * self._sizes.hidden
        b = self._bias = np.zeros(2 * half, _FLOAT) if weights.b is None else weights.b
        call.point(Layer.recurrent_weights, weights.panels)
        call.point(Layer.input_weights, weights.w)
        call.point(Layer.input_bias, b)
        call.point(Layer.recurrent_bias, b[half:])

    def beginning(
        self, x: HostArray, before: Sequence[Any], after: HostArray | None, last: Sequence[Any], lengths: HostArray | None = None
    ) -> list[Callable[[], Any]] | None:
        """Calls before the task, on arrays that stay; None if that takes memory shared with others.

        Arguments as for :meth:`begin`; the caller keeps the arrays.
        """
        if not self._working.is_own:
            return None
        self._point(x, before, after, last, lengths)
        if self._product is None or self._weights is None:
            return []
        return [self._product.bind_arrays(x, self._weights.w, None, self._working.array("gates"))]

    def run(
        self, x: HostArray, before: Sequence[Any], after: HostArray | None, last: Sequence[Any], lengths: HostArray | None = None
    ) -> None:
        """All steps; arguments as for :meth:`begin`."""
        self.begin(x, before, after, last, lengths)
        self.call.run()

    def begin(
        self, x: HostArray, before: Sequence[Any], after: HostArray | None, last: Sequence[Any], lengths: HostArray | None = None
    ) -> None:
        """All that comes before the task.

        Args:
            x: (steps, batch, inputs), contiguous.
            before: first hidden state and, for LSTM, cells, (batch, hidden), contiguous; None for zeros.
            after: where the hidden states go, (steps, batch, hidden), each step contiguous; None if they are not wanted.
            last: where the last hidden state and LSTM's cells go, (batch, hidden), contiguous; None if they are not wanted.
            lengths: steps of each sample, int32, (batch,), contiguous; None if all have all.
        """
        if self._product is not None and self._weights is not None:
            self._product(x, self._weights.w, None, self._working.array("gates"))
        self._point(x, before, after, last, lengths)

    def _point(
        self, x: HostArray, before: Sequence[Any], after: HostArray | None, last: Sequence[Any], lengths: HostArray | None
    ) -> None:
        """Point the task at all arrays."""
        call, working = self.call, self._working
        gates, sign = working.array("gates"), self._sign
        if self._product is None:
            call.point(Layer.x, x)
        call.point(Layer.gates, gates, self._first_gates)
        call.point(Layer.workspace, working.array("sums"))
        if self._resets_first:
            call.point(Layer.resets, working.array("resets"))
        call.point(Layer.first_state, self._zeros if before[0] is None else before[0])
        if self._sizes.gates == LSTM_GATES:
            call.point(Layer.first_cells, self._zeros if before[1] is None else before[1])
            call.point(Layer.cells, working.array("cells") if last[1] is None else last[1])
        results = working.array("states") if after is None else after
        steps, step = self._sizes.steps, results.strides[0]
        call.set(Layer.states_stride, sign * step)
        call.point(Layer.states, results, step * (steps - 1) if sign < 0 else 0)
        call.point(Layer.last_state, last[0])
        call.point(Layer.lengths, lengths)
