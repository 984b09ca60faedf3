"""LSTM, GRU and RNN: as compiled tasks, or by NumPy where these are not worth loading."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk_cpu.jit.native_call import in_sequence
from ort_sdk_cpu.kernel.bindable import BindableKernel, bindable, kernel_maker
from ort_sdk_cpu.kernel.copy import CopyWriter
from ort_sdk_cpu.kernel.eager import declare_eager_calls
from ort_sdk_cpu.kernel.task_writer import are_floats
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer
from ort_sdk_cpu.memory.workspace import workspace_of
from ort_sdk_cpu.platform import libraries

from .activations import described_activations
from .arguments.layer import MODULE
from .numpy_steps import BACKWARDS, stepwise
from .packing import BIAS, RECURRENT, WEIGHT, DirectionWeights, LayerWeights
from .select import MIN_WORK, LayerSizes, RecurrentAlgorithm, RecurrentProblem, select

if TYPE_CHECKING:
    from ort_sdk_cpu.jit.independent_tasks import IndependentTasks

    from .launch import RecurrentTask
    from .quantized_launch import QuantizedWeights

__all__ = ["LayerTasks", "are_lengths", "computed_layer", "is_plain", "lstm"]

declare_eager_calls("rnn.eager", "GRU", "LSTM", "RNN")

_SEQUENCE_LENS, _STATES, _PEEPHOLES = 4, slice(5, 7), 7


@bindable("LSTM")
def lstm(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Long short-term memory."""
    return None if info.attribute("input_forget", 0) else _layer(info, "lstm", ("Sigmoid", "Tanh", "Tanh"), compute)


@bindable("GRU")
def gru(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Gated recurrent unit."""
    name = "gru" if info.attribute("linear_before_reset", 0) else "gru_reset_first"
    return _layer(info, name, ("Sigmoid", "Tanh"), compute)


@bindable("RNN")
def rnn(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Simple recurrence."""
    if info.attribute("activations", None) and is_plain(info, ("Relu",)):
        return _LayerWriters(info, "rnn_relu", compute)
    return _layer(info, "rnn", ("Tanh",), compute)


def _layer(info: KernelInfo, name: str, usual: Sequence[str], compute: Any) -> MakeWriter | None:
    """What makes the writers of a layer; None if its tasks cannot do what it asks for."""
    if is_plain(info, usual):
        return _LayerWriters(info, name, compute)
    activations = described_activations(info, usual, len(BACKWARDS[info.attribute("direction", "forward")]))
    if activations is None or compute is None or info.attribute("layout", 0):
        return None
    return _LayerWriters(info, name, compute, activations)


@kernel_maker("LSTM", "GRU", "RNN")
def packed_layer(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> BindableKernel | None:
    """The node with large constant weights, which the host packs; None for others."""
    if not isinstance(make_writer, _LayerWriters) or not libraries.compiled_kernels().is_usable:
        return None
    are_float = all(info.input_element_type(index) is TensorElementType.FLOAT for index in (0, WEIGHT, RECURRENT))
    weights = make_writer.weights
    if not weights.are_constant or not weights.are_whole:
        return None
    if not are_float or math.prod(info.constants[RECURRENT].shape) < MIN_WORK:
        return None
    from .prepack import PackedRecurrent

    return PackedRecurrent(kernel, make_writer, weights)


def is_plain(info: KernelInfo, functions: Sequence[str]) -> bool:
    """Whether the node's activations are these, and it asks for nothing that tasks do not have."""
    names = info.attribute("activations", None)
    directions = len(BACKWARDS[info.attribute("direction", "forward")])
    usual = names is None or [str(name).lower() for name in names] == [name.lower() for name in functions] * directions
    return usual and not info.has_input(_PEEPHOLES) and not info.attribute("clip", None) and not info.attribute("layout", 0)


class _LayerWriters:
    """Makes a node's writers.

    Args:
        info: the node.
        name: of the task that computes a direction.
        compute: the shared set's function, for sequences of no steps, and for other activations that are not worth a task.
        activations: of all directions, described, as ``activations`` does; None for the operator's own.
    """

    def __init__(self, info: KernelInfo, name: str, compute: Any, activations: HostArray | None = None) -> None:
        self._activations, self._compute = activations, compute
        self.weights = LayerWeights(info, name)
        self._name, self._direction, self._workspace = name, info.attribute("direction", "forward"), workspace_of(info)
        self.algorithm: str | None = None
        """Of the writer made last."""

    def __call__(self, inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        """A writer for arrays of these shapes and types."""
        shape = self.weights.shape_of(RECURRENT, inputs)
        problem = self._problem(inputs, shape)
        self.algorithm = select(problem, lambda: _is_loaded(self._name))
        if self.algorithm == RecurrentAlgorithm.OPSET:
            return computed_layer(len(inputs), self._computed)
        x = inputs[0]
        if self.algorithm == RecurrentAlgorithm.NUMPY_STEPS:
            write = stepwise(self._name, (x.shape[1], shape[-1]), x.dtype, self._direction, self._workspace)
            return functools.partial(self._write_stepwise, write, len(inputs))
        tasks = self._tasks(x, shape, is_int24=problem.is_int24)
        return LayerTasks(tasks, len(inputs), self.weights, self._computed)

    def _problem(self, inputs: Sequence[Any], shape: tuple[int, ...]) -> RecurrentProblem:
        weights = self.weights
        return RecurrentProblem(
            steps=inputs[0].shape[0],
            directions=len(BACKWARDS[self._direction]),
            weights=shape[-1] * shape[-2],
            is_compiled=_are_for_tasks(inputs),
            is_packed=weights.are_packed,
            is_int24=weights.is_int24(inputs[RECURRENT]),
            has_own_activations=self._activations is None,
        )

    def _computed(self, *inputs: Any) -> Any:
        """What the shared set's function gives, or the error that it raises."""
        return self._compute(*self.weights.plain(inputs))

    def _write_stepwise(self, write: Callable[..., None], given: int, *arrays: Any) -> None:
        if not are_lengths(arrays[:given]):
            self._computed(*arrays[:given])
        write(given, *self.weights.plain(arrays))

    def _tasks(self, x: HostArray, shape: tuple[int, ...], *, is_int24: bool) -> list[RecurrentTask]:
        from .launch import RecurrentTask

        (steps, batch, size), (rows, hidden) = x.shape, shape[-2:]
        backwards = BACKWARDS[self._direction]
        sizes = LayerSizes(steps, batch, size, hidden, rows // hidden, len(backwards))
        activations = [None] * len(backwards) if self._activations is None else self._activations
        return [
            RecurrentTask(self._name, sizes, self._workspace, reverse=reverse, activations=each, is_int24=is_int24)
            for reverse, each in zip(backwards, activations, strict=True)
        ]


def computed_layer(given: int, compute: Callable[..., Any]) -> Writer:
    """A writer of a function's outputs that are wanted.

    Args:
        given: number of inputs.
        compute: the function.
    """

    def write(*arrays: Any) -> None:
        for target, value in zip(arrays[given:], compute(*arrays[:given]), strict=False):
            if target is not None:
                np.copyto(target, value)

    return write


def are_lengths(inputs: Sequence[Any]) -> bool:
    """Whether no sequence is longer than the input's steps."""
    lengths = inputs[_SEQUENCE_LENS] if len(inputs) > _SEQUENCE_LENS else None
    return lengths is None or not lengths.size or 0 <= lengths.min() <= lengths.max() <= len(inputs[0])


def _are_for_tasks(inputs: Sequence[Any]) -> bool:
    """Whether tasks can be used, and inputs are of their types: float32, and an int32 length for each sample."""
    x, lengths = inputs[0], inputs[_SEQUENCE_LENS] if len(inputs) > _SEQUENCE_LENS else None
    if not x.size or not libraries.compiled_kernels().is_usable:
        return False
    floats = (*inputs[: BIAS + 1], *inputs[_STATES.start : _PEEPHOLES + 1])
    return are_floats(floats) and (lengths is None or lengths.shape == (x.shape[1],))


def _is_loaded(name: str) -> bool:
    from ort_sdk_cpu.jit.task_code import is_compiled

    return is_compiled(MODULE, name)


class LayerTasks:
    """A layer's directions as compiled tasks.

    Args:
        tasks: one per direction.
        given: number of inputs.
        weights: of all directions.
        compute: the shared set's function, which says what is wrong with lengths of sequences.
    """

    def __init__(
        self, tasks: Sequence[RecurrentTask], given: int, weights: LayerWeights | QuantizedWeights, compute: Callable[..., Any]
    ) -> None:
        self._tasks, self._given, self._weights, self._compute = tasks, given, weights, compute
        self._used: Sequence[DirectionWeights] = ()
        self._concurrent = _concurrent(tasks)

    def __call__(self, *arrays: Any) -> None:
        """Write the outputs."""
        if not are_lengths(arrays[: self._given]):
            self._compute(*arrays[: self._given])
        x, lengths, before, after, last = self._sorted(arrays)
        lengths, *before, p = [
            None if array is None else np.ascontiguousarray(array) for array in (lengths, *before, self._peepholes(arrays))
        ]
        x = np.ascontiguousarray(x)
        self._use_peepholes(p)
        for index, task in enumerate(self._tasks):
            do = task.run if self._concurrent is None else task.begin
            do(x, _rows(before, index), None if after is None else after[:, index], _rows(last, index), lengths)
        if self._concurrent is not None:
            self._concurrent.run()

    def bind_arrays(self, *arrays: Any) -> Callable[[], Any] | None:
        """The call on arrays that stay the same; None if a task is not all it takes."""
        if not self._weights.are_constant:
            return None  # Each run makes panels of its own.
        x, lengths, before, after, last = self._sorted(arrays)
        copied: list[Callable[[], Any]] = []
        x, lengths, *before, p = [_contiguous(array, copied) for array in (x, lengths, *before, self._peepholes(arrays))]
        self._use_peepholes(p)
        calls = [*copied, *self._checks(lengths, arrays)]
        for index, task in enumerate(self._tasks):
            found = task.beginning(
                x, _rows(before, index), None if after is None else after[:, index], _rows(last, index), lengths
            )
            if found is None:
                return None
            calls += found if self._concurrent is not None else [*found, task.call.bound_call()]
        calls += [] if self._concurrent is None else [self._concurrent.bound_call()]
        call = in_sequence(calls)
        call.keeps_alive = (self, x, lengths, *before, p, after, *last)  # type: ignore[attr-defined]
        return call

    def _checks(self, lengths: HostArray | None, arrays: Sequence[Any]) -> list[Callable[[], Any]]:
        """What looks at the lengths of sequences in each call."""
        if lengths is None:
            return []
        # Few layers have lengths.
        from ort_sdk_cpu.attention.arguments.lengths import MODULE as LENGTHS
        from ort_sdk_cpu.attention.arguments.lengths import LengthCheck
        from ort_sdk_cpu.jit.task import TaskCall

        check = TaskCall(LENGTHS, "check_lengths", LengthCheck(0, lengths, lengths.size, len(arrays[0])))
        return [check.checked_call(functools.partial(self._compute, *arrays[: self._given]), lengths)]

    def _peepholes(self, arrays: Sequence[Any]) -> HostArray | None:
        return arrays[_PEEPHOLES] if self._given > _PEEPHOLES else None

    def _use_peepholes(self, peepholes: HostArray | None) -> None:
        if peepholes is not None:
            for index, task in enumerate(self._tasks):
                task.use_peepholes(peepholes[index])

    def _sorted(self, arrays: Sequence[Any]) -> tuple[Any, Any, Sequence[Any], HostArray | None, Sequence[Any]]:
        """(input, lengths, first states, all states, last states); the tasks have their weights."""
        given = self._given
        x, w, r, b, lengths, *before = (*arrays[:given], None, None, None, None)[:7]
        weights = self._weights.of(w, r, b)
        if weights is not self._used:
            self._used = weights
            for task, each in zip(self._tasks, weights, strict=True):
                task.use_weights(each)
        sequence, *last = (*arrays[given:], None, None)[:3]
        return x, lengths, before, sequence, last


def _concurrent(tasks: Sequence[RecurrentTask]) -> IndependentTasks | None:
    """Both directions at the same time; None where each has the whole team, or it would not pay."""
    if not all(task.is_concurrent for task in tasks):
        return None
    from ort_sdk_cpu.jit.independent_tasks import IndependentTasks

    return IndependentTasks([task.call for task in tasks])


def _contiguous(array: Any, copied: list[Callable[[], Any]]) -> Any:
    """An array, or memory for a contiguous copy of it, which a call makes that is added to those given."""
    if array is None or array.flags.c_contiguous:
        return array
    copy = np.empty(array.shape, array.dtype)
    copied.append(CopyWriter(lambda source, target: [(target, source)]).bind_arrays(array, copy))
    return copy


def _rows(arrays: Sequence[Any], index: int) -> list[Any]:
    return [None if array is None else array[index] for array in arrays]
