"""Support vector machines of rows of float32, by a compiled task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk.opset.ml.scores import expand_binary, transform_rows
from ort_sdk.opset.ml.svm import Kernel, Machine
from ort_sdk_cpu.jit.arguments import Operand
from ort_sdk_cpu.kernel.bindable import STRING_CALLS, BindableKernel, DirectBindableKernel, bindable, kernel_maker
from ort_sdk_cpu.kernel.eager import with_fallback
from ort_sdk_cpu.kernel.task_writer import TaskWriter, is_worth_a_task
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer, output_writer
from ort_sdk_cpu.memory.workspace import Workspace, workspace_of
from ort_sdk_cpu.platform import libraries

from .arguments.svm import MODULE, SupportVectorMachine
from .scored_rows import PlansByShape, operands_of_outputs

__all__: list[str] = []

DOMAIN = "ai.onnx.ml"
NAME = "svm"
_LANES = 16
_CODES = {"LINEAR": 0, "POLY": 1, "RBF": 2, "SIGMOID": 3}
_SCORES, _SIGN, _BINARY, _PROBABILITIES = range(4)
"""Values of ``output`` of the task's arguments."""
ROUND_WORK = 1 << 9
"""Products that a class's probability takes as long as."""
ELEMENTS_OF_WORK = 1 << 3
"""About as many elements of other tasks are worth as much as a product here: NumPy is called many times for a row."""
MOST_FACTORS = 8
"""A power's exponent up to which it is a product."""
WORK_PER_THREAD = 1 << 17
"""Products that take some times as long as waking a thread up."""


class _Task:
    """A machine as its task reads it. For any number of threads at once.

    Args:
        machine: of the node.
        kernel: its kernel. Scores of products are products with the support vectors' weighted sums.
    """

    def __init__(self, machine: Machine, kernel: Kernel) -> None:
        self.machine, scores = machine, machine.rho.size
        is_linear = kernel.kind == "LINEAR" and scores <= kernel.supports.shape[1]
        vectors = kernel.supports @ machine.weights if is_linear else kernel.supports
        factors = np.eye(scores) if is_linear else machine.weights.T
        self.features, self._scores, self._filled = len(vectors), scores, _whole(vectors.shape[1])
        supports, weights = (np.zeros((count, self._filled), np.float32) for count in (self.features, scores))
        supports[:, : vectors.shape[1]], weights[:, : vectors.shape[1]] = vectors, factors
        labels = np.zeros(0) if machine.labels is None else machine.labels
        self.names = labels if labels.dtype == object else None
        """Labels that are strings: the task gives their positions."""
        class_labels = np.arange(labels.size) if self.names is not None else labels.astype(np.int64)
        pairs = np.zeros(0) if machine.coupling is None else np.stack([machine.coupling.slope, machine.coupling.shift])
        self.arrays = (supports, weights, np.ascontiguousarray(machine.rho), class_labels, pairs.astype(np.float32))
        """What the task reads beside rows."""
        self._classes, self._output = labels.size, _output_of(machine)
        self.columns = {_BINARY: 2, _PROBABILITIES: labels.size}.get(self._output, scores)
        gamma = -kernel.gamma if kernel.kind == "RBF" else kernel.gamma
        settings = (_CODES[kernel.kind], max(int(kernel.degree), 1), self._output)
        self._settings = (*settings, float(gamma), float(kernel.coef0))
        coupled = (labels.size + 2) * labels.size * 8 if self._output == _PROBABILITIES else 0
        self._thread_bytes = (self._filled + 2 * _whole(scores)) * 4 + _whole(coupled)

    def work(self, x: HostArray) -> int:
        """Products for rows; 0 for other arrays."""
        fits = x.ndim == 2 and x.shape[1] == self.features
        coupling = self._classes * ROUND_WORK if self._output == _PROBABILITIES else 0
        return len(x) * (self._filled * (self.features + self._scores) + coupling) if fits else 0

    def takes(self, x: HostArray) -> bool:
        """Whether rows are as the task wants them, and worth loading it."""
        return is_worth_a_task(self.work(x) * ELEMENTS_OF_WORK, MODULE, NAME)

    def threads(self, x: HostArray) -> int:
        """Threads worth waking up."""
        return max(1, min(libraries.thread_count(), len(x), self.work(x) // WORK_PER_THREAD))

    def workspace_for(self, threads: int) -> int:
        """Bytes of workspace."""
        return threads * self._thread_bytes

    def words(self, rows: int) -> tuple[int | float, ...]:
        """What the task's arguments have after the workspace."""
        return (rows, self.features, self._filled, self._scores, self._classes, self._thread_bytes, *self._settings)

    def transformed(self, scores: HostArray) -> HostArray:
        """The node's scores of those that the task gives."""
        name = self.machine.post_transform
        if name == "NONE":
            return scores
        if self._classes == 2 and self.machine.coupling is None:
            return expand_binary(scores, name, is_probability=True)
        return transform_rows(name)(scores)


def _whole(count: int) -> int:
    """Numbers that fill vectors."""
    return -(-count // _LANES) * _LANES


def _output_of(machine: Machine) -> int:
    """What the task makes of scores."""
    if machine.labels is None:
        return _SIGN if machine.is_one_class else _SCORES
    if machine.coupling is not None:
        return _PROBABILITIES
    return _BINARY if machine.labels.size == 2 and machine.post_transform == "NONE" else _SCORES


def _task_of(info: KernelInfo, compute: Any) -> _Task | None:
    """The task; None where rows are of another type than it knows, or the kernel is none of its."""
    kernel = compute.kernel if isinstance(compute, Machine) else None
    is_float = info.input_element_type(0) is TensorElementType.FLOAT
    if not is_float or not libraries.compiled_kernels().is_usable or not isinstance(kernel, Kernel) or not _is_usual(kernel):
        return None
    return _Task(compute, kernel)


def _is_usual(kernel: Kernel) -> bool:
    """Whether the task computes the kernel."""
    if kernel.kind == "POLY":
        return kernel.degree in range(1, MOST_FACTORS + 1)
    return kernel.kind != "RBF" or bool(kernel.gamma >= 0)


@bindable("SVMClassifier", "SVMRegressor", domain=DOMAIN)
def support_vector_machine(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Labels of the classes that win, and scores."""
    task = _task_of(info, compute)
    if task is None or task.names is not None:
        return None
    call = _call_of(task, workspace_of(info))
    write = output_writer(with_fallback(call, compute))

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        is_plain = task.machine.post_transform == "NONE" or task.machine.labels is None
        return _MachineWriter(task, inputs[0], len(outputs), write) if is_plain and task.takes(inputs[0]) else write

    make.call = call  # type: ignore[attr-defined]
    return make


@kernel_maker("SVMClassifier", "SVMRegressor", domain=DOMAIN)
def for_any_rows(_info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> BindableKernel:
    """The kernel over the task, for however many rows."""
    return DirectBindableKernel(kernel, make_writer, make_writer.call)  # type: ignore[attr-defined]


def _naming(info: KernelInfo, compute: Any) -> Callable[..., Any] | None:
    """The call of a node whose labels are strings."""
    task = _task_of(info, compute)
    return None if task is None else _call_of(task, workspace_of(info))


STRING_CALLS[DOMAIN, "SVMClassifier"] = _naming


class _MachineWriter(TaskWriter):
    """A task on rows of one shape, with the memory it needs.

    Args:
        task: of the machine.
        x: rows of the shape to expect.
        outputs: how many are written; a classifier's first are the labels.
        otherwise: writes what is not contiguous.
    """

    def __init__(self, task: _Task, x: HostArray, outputs: int, otherwise: Writer) -> None:
        threads = task.threads(x)
        workspace = np.empty(task.workspace_for(threads), np.uint8)
        self._kept = (task, workspace)
        operands = (Operand(0), *operands_of_outputs(outputs, classifies=task.machine.labels is not None))
        arguments = SupportVectorMachine.of_words((*operands, *task.arrays, workspace, *task.words(len(x))))
        super().__init__(MODULE, NAME, arguments, otherwise, threads)


class _Plan(NamedTuple):
    """What a call on rows of one shape is made of."""

    function: Callable[..., None]
    threads: int
    workspace: int
    """Bytes."""
    words: tuple[int | float, ...]
    """Arguments after it."""


def _plan(task: _Task, x: HostArray) -> _Plan:
    from ort_sdk_cpu.jit.task import task_function

    threads = task.threads(x)
    return _Plan(task_function(MODULE, NAME), threads, task.workspace_for(threads), task.words(len(x)))


def _call_of(task: _Task, workspace: Workspace) -> Callable[..., Any]:
    """A task as a call on a run's rows."""
    plans = PlansByShape(task.takes, lambda x: _plan(task, x))
    names, classifies = task.names, task.machine.labels is not None

    def call(x: HostArray) -> Any:
        plan = plans.get(x.shape) or plans.made_for(x)
        if plan is None or not x.flags.c_contiguous:
            return NotImplemented
        rows = len(x)
        scores, labels = np.empty((rows, task.columns), np.float32), np.empty(rows, np.int64) if classifies else None
        buffer = workspace.buffer(MODULE, plan.workspace)
        words = (x, scores, labels, *task.arrays, buffer, *plan.words)
        plan.function(plan.threads, SupportVectorMachine.of_words(words))
        if labels is None:
            return scores
        return labels if names is None else names.take(labels), task.transformed(scores)

    return call
