"""Ensembles of decision trees and linear classifiers, by compiled tasks of rows of float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.ml.linear import LinearClassifier
from ort_sdk.opset.ml.tree_ensemble import TreeClassifier, TreeRegressor
from ort_sdk_cpu import libraries
from ort_sdk_cpu.addresses import address_of

from .bindable import NAMING, BindableKernel, DirectlyBindable, MakeWriter, Writer, bindable, made_by
from .direct_kernel import directly
from .task_writer import TaskWriter, is_worth_a_task
from .tree_table import TreeTable, as_float32

__all__: list[str] = []

DOMAIN = "ai.onnx.ml"
MODULE = "classifiers"
KINDS = "q" * 19 + "fqqq"
WORK_PER_THREAD = 3 << 7
"""Walks down a tree that take some times as long as waking a thread up."""
PRODUCTS_PER_WALK = 4
"""Products of 16 features that take about as long as one."""
ELEMENTS_OF_WORK = 1 << 5
"""About as many elements of other tasks take as long as one of these."""
SHAPES = 16
"""Shapes of rows whose calls are kept."""
ROWS_AT_ONCE = 32
"""As in the compiled module."""
_AGGREGATES = {"SUM": 0, "AVERAGE": 1, "MIN": 2, "MAX": 3}
_TRANSFORMS = {"NONE": 0, "SOFTMAX": 1, "LOGISTIC": 2}

Model = TreeClassifier | TreeRegressor | LinearClassifier


class _Task:
    """A model as its task reads it. For any number of threads at once.

    Args:
        model: the shared set's function.
        is_float: whether rows are float32.
    """

    def __init__(self, model: Model, *, is_float: bool) -> None:
        self.model, self.is_float = model, is_float
        self.rounding: np.float32 | None = None
        """See ``TreeTable``."""
        self.classifies = not isinstance(model, TreeRegressor)
        labels = np.zeros(1) if isinstance(model, TreeRegressor) else model.labels
        self.has_names = labels.dtype == object
        """Whether labels are strings: the task gives their positions."""
        self.labels = np.arange(labels.size) if self.has_names else labels.astype(np.int64)
        transform = _TRANSFORMS[model.post_transform]
        if isinstance(model, LinearClassifier):
            self.name, self.features, self.targets = "linear_classifier", model.linear.coefficients.shape[0], labels.size
            scores = model.linear.intercepts.size
            self._kept: tuple[Any, ...] = (np.ascontiguousarray(model.linear.coefficients.T), model.linear.intercepts)
            self._places: tuple[int, ...] = (*map(address_of, self._kept), self.features, scores, 0)
            self._sizes = (0, self.targets, 0, transform)
            self._rest = (3, 0, 1, 0.0, 0, 0, 0) if model.is_binary else (1, 0, 0, math.nan, 0, 0, 0)
            self.work = max(1, scores * -(-self.features // 16) // PRODUCTS_PER_WALK)
            self._room = 8 * (self.targets + 17)
            return
        table = TreeTable(model.sums, model.base)
        self.name, self.features, self.targets = "trees", model.sums.trees.nodes.feature_count, table.base.size
        self._kept, self._places, self.rounding = (table,), table.addresses(), table.rounding
        self._sizes = (table.roots.size, self.targets, _AGGREGATES[model.sums.aggregate], transform)
        self._rest = (*_decision(model), table.ways, table.form, address_of(table.flags))
        self.work, self._room = table.roots.size, self.targets * ROWS_AT_ONCE

    def takes(self, x: HostArray) -> bool:
        """Whether rows are as the task, or the shared set, wants them, and worth loading it."""
        width_fits = x.ndim == 2 and (x.shape[1] >= self.features if self.name == "trees" else x.shape[1] == self.features)
        return width_fits and is_worth_a_task(len(x) * self.work * ELEMENTS_OF_WORK, MODULE, self.name)

    def threads(self, rows: int) -> int:
        """Threads worth waking up."""
        worth: int = rows * self.work // WORK_PER_THREAD
        return max(1, min(libraries.thread_count(), rows, worth))

    def room_for(self, threads: int) -> int:
        """float64 numbers of working memory."""
        return threads * self._room

    def arguments(self, rows: int, width: int) -> tuple[tuple[int, ...], tuple[int | float, ...]]:
        """What follows the addresses of rows, scores and labels, before and behind that of the working memory."""
        return (*self._places, address_of(self.labels)), (rows, width * 4, *self._sizes, *self._rest)


def _decision(model: TreeClassifier | TreeRegressor) -> tuple[int, int, int, float]:
    """How the winner is found, by which score, whether scores are made of it, and its limit."""
    if isinstance(model, TreeRegressor):
        return 0, 0, 0, math.nan
    decision = model.decision
    if decision is None:
        return 1, 0, 0, math.nan
    return 3 if decision.is_probability else 2, decision.column, int(model.expands), decision.limit


def _task_of(info: KernelInfo, compute: Any) -> _Task | None:
    """The task; None where rows, splits or scores are of other types than it knows, or what follows is."""
    if not isinstance(compute, Model) or not libraries.numba().is_usable or compute.post_transform not in _TRANSFORMS:
        return None
    if isinstance(compute, TreeClassifier | TreeRegressor) and not _are_float32(compute.sums.trees.nodes.splits):
        return None
    output = info.output_element_type(0 if isinstance(compute, TreeRegressor) else 1)
    if output not in {TensorElementType.FLOAT, None}:
        return None
    task = _Task(compute, is_float=info.input_element_type(0) is TensorElementType.FLOAT)
    return task if task.is_float or task.rounding is not None else None


def _are_float32(values: HostArray) -> bool:
    return values.dtype == np.float32 or np.array_equal(values, values.astype(np.float32))


@bindable("LinearClassifier", "TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor", domain=DOMAIN)
def classifier(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Labels of the classes that win, and scores."""
    task = _task_of(info, compute)
    if task is None or task.has_names:
        return None
    rounded = None if task.is_float else _written(directly(_call_of(task), compute))

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        if rounded is not None:
            return rounded
        write = _written(compute)
        return _ModelWriter(task, inputs[0], len(outputs), write) if task.takes(inputs[0]) else write

    make.task = task  # type: ignore[attr-defined]
    return make


def _written(compute: Callable[[HostArray], Any]) -> Writer:
    def write(x: HostArray, *outputs: HostArray | None) -> None:
        found = compute(x)
        for value, out in zip(found if isinstance(found, tuple) else (found,), outputs, strict=False):
            if out is not None:
                np.copyto(out, value)

    return write


class _ModelWriter(TaskWriter):
    """A task on rows of one shape, with the memory it needs.

    Args:
        task: of the model.
        x: rows of the shape to expect.
        outputs: how many are written; a classifier's first are the labels.
        otherwise: writes what is not contiguous.
    """

    def __init__(self, task: _Task, x: HostArray, outputs: int, otherwise: Writer) -> None:
        threads = task.threads(len(x))
        room = np.empty(task.room_for(threads))
        self._kept = (task, room)
        before, behind = task.arguments(*x.shape)
        places = (0, 2 if outputs > 1 else None, 1) if task.classifies else (0, 1, None)
        super().__init__(MODULE, task.name, (*before, address_of(room), *behind), places, otherwise, threads)


@made_by("LinearClassifier", "TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor", domain=DOMAIN)
def for_any_rows(_info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> BindableKernel:
    """The kernel over the task, for however many rows."""
    return DirectlyBindable(kernel, make_writer, _call_of(make_writer.task))  # type: ignore[attr-defined]


def _naming(info: KernelInfo, compute: Any) -> Callable[..., Any] | None:
    """The call of a node whose labels are strings."""
    task = _task_of(info, compute)
    return None if task is None else _call_of(task)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a call on rows of one shape is made of."""

    function: Callable[..., None]
    threads: int
    room: int
    """float64 numbers of working memory."""
    before: tuple[int, ...]
    """Arguments before its address."""
    behind: tuple[int | float, ...]


def _plan(task: _Task, rows: int, width: int) -> _Plan:
    from ort_sdk_cpu.machine_code import task_function

    threads = task.threads(rows)
    before, behind = task.arguments(rows, width)
    return _Plan(task_function(MODULE, task.name, KINDS), threads, task.room_for(threads), before, behind)


def _call_of(task: _Task) -> Callable[..., Any]:
    """A task as a call on a run's rows."""
    names = task.model.labels if task.has_names else None  # type: ignore[union-attr]
    plans: dict[tuple[int, ...], _Plan] = {}
    targets, empty, float_type = task.targets, np.empty, np.float32
    rounding = None if task.is_float else task.rounding

    def call(x: HostArray) -> Any:
        if rounding is not None:
            x = as_float32(x, rounding)
        plan = plans.get(x.shape)
        if plan is None:
            if not task.takes(x):
                return NotImplemented
            if len(plans) >= SHAPES:
                plans.clear()
            plan = plans[x.shape] = _plan(task, *x.shape)
        if not x.flags.c_contiguous:
            return NotImplemented
        rows = len(x)
        scores, room = empty((rows, targets), float_type), empty(plan.room)
        labels = empty(rows, np.int64) if task.classifies else None
        places = (address_of(x), address_of(scores), 0 if labels is None else address_of(labels))
        plan.function(plan.threads, *places, *plan.before, address_of(room), *plan.behind)
        return scores if labels is None else (labels if names is None else names.take(labels), scores)

    return call


NAMING.update(dict.fromkeys(((DOMAIN, "LinearClassifier"), (DOMAIN, "TreeEnsembleClassifier")), _naming))
