"""Ensembles of decision trees and linear classifiers, by compiled tasks of rows of float32, or of ranks among splits."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.ml.linear import LinearClassifier
from ort_sdk.opset.ml.tree_ensemble import TreeClassifier, TreeRegressor
from ort_sdk_cpu.jit.arguments import raw_arguments
from ort_sdk_cpu.jit.native_call import in_turn
from ort_sdk_cpu.kernel.bound import NAMING, BindableKernel, DirectlyBindable, MakeWriter, Writer, bindable, made_by, written
from ort_sdk_cpu.kernel.eager import directly
from ort_sdk_cpu.kernel.task_writer import TaskWriter, is_worth_a_task, threads_for
from ort_sdk_cpu.platform import libraries

from .scored_rows import PlansByShape, places_of_outputs
from .tree_layout import Ranks, TreeTable

__all__: list[str] = []

DOMAIN = "ai.onnx.ml"
MODULE = "classifiers"
RANKS = "ranks"
"""A task, and the module that it is alone in."""
KINDS = "q" * 19 + "f" + "q" * 6
WORK_PER_THREAD = 3 << 7
"""Walks down a tree that take some times as long as waking a thread up."""
PRODUCTS_PER_WALK = 4
"""Products of 16 features that take about as long as one."""
ELEMENTS_OF_WORK = 1 << 5
"""About as many elements of other tasks take as long as one of these."""
ROWS_AT_ONCE = 32
"""As in the compiled module."""
RANK_WORK = 1 << 3
"""Elements of a few instructions each that finding a rank takes as long as."""
RANKED_BYTES = 1 << 20
"""Ranks that a program keeps memory for."""
_AGGREGATES = {"SUM": 0, "AVERAGE": 1, "MIN": 2, "MAX": 3}
_TRANSFORMS = {"NONE": 0, "SOFTMAX": 1, "LOGISTIC": 2}

Model = TreeClassifier | TreeRegressor | LinearClassifier


class _Task:
    """A model as its task reads it. For any number of threads at once.

    Args:
        model: the shared set's function.
        ranks: of an ensemble that reads them in place of numbers.
    """

    def __init__(self, model: Model, ranks: Ranks | None) -> None:
        self.model, self.ranks = model, ranks
        self.classifies = not isinstance(model, TreeRegressor)
        labels = np.zeros(1) if isinstance(model, TreeRegressor) else model.labels
        self.has_names = labels.dtype == object
        """Whether labels are strings: the task gives their positions."""
        self.labels = np.arange(labels.size) if self.has_names else labels.astype(np.int64)
        transform = _TRANSFORMS[model.post_transform]
        if isinstance(model, LinearClassifier):
            self.name, self.features, self.targets = "linear_classifier", model.linear.coefficients.shape[0], labels.size
            scores = model.linear.intercepts.size
            coefficients = np.ascontiguousarray(model.linear.coefficients.T)
            self._places: tuple[Any, ...] = (coefficients, model.linear.intercepts, self.features, scores, 0)
            self._sizes = (0, self.targets, 0, transform)
            decision = (3, 0, 1, 0.0) if model.is_binary else (1, 0, 0, math.nan)
            self._rest: tuple[Any, ...] = (*decision, *[0] * 6)
            self.work = max(1, scores * -(-self.features // 16) // PRODUCTS_PER_WALK)
            self._room = 8 * (self.targets + 17)
            return
        splits = model.sums.trees.nodes.splits.astype(np.float32) if ranks is None else ranks.of_nodes
        table = TreeTable(model.sums, model.base, splits)
        self.name, self.features, self.targets = "trees", model.sums.trees.nodes.feature_count, table.base.size
        self._places = (table.nodes, table.roots, table.starts, table.votes, table.base)
        self._sizes = (table.roots.size, self.targets, _AGGREGATES[model.sums.aggregate], transform)
        counts = (table.nodes.size, self.features, table.votes.size)
        self._rest = (*_decision(model), table.ways, table.form, table.flags, *counts)
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

    def arguments(self, rows: int, width: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """What follows rows, scores and labels, before and behind the working memory."""
        x_row = 4 * (width if self.ranks is None else self.features)
        return (*self._places, self.labels), (rows, x_row, *self._sizes, *self._rest)


def _decision(model: TreeClassifier | TreeRegressor) -> tuple[int, int, int, float]:
    """How the winner is found, by which score, whether scores are made of it, and its limit."""
    if isinstance(model, TreeRegressor):
        return 0, 0, 0, math.nan
    decision = model.decision
    if decision is None:
        return 1, 0, 0, math.nan
    return 3 if decision.is_probability else 2, decision.column, int(model.expands), decision.limit


def _task_of(info: KernelInfo, compute: Any) -> _Task | None:
    """The task; None where rows or scores are of other types than it knows, or what follows is."""
    if not isinstance(compute, Model) or not libraries.numba().is_usable or compute.post_transform not in _TRANSFORMS:
        return None
    output = info.output_element_type(0 if isinstance(compute, TreeRegressor) else 1)
    if output not in {TensorElementType.FLOAT, None}:
        return None
    is_float = info.input_element_type(0) is TensorElementType.FLOAT
    if isinstance(compute, LinearClassifier):
        return _Task(compute, None) if is_float else None
    if is_float and _are_float32(compute.sums.trees.nodes.splits):
        return _Task(compute, None)
    ranks = Ranks(compute.sums.trees.nodes)
    return _Task(compute, ranks) if ranks.are_exact else None


def _are_float32(values: HostArray) -> bool:
    return values.dtype == np.float32 or np.array_equal(values, values.astype(np.float32))


@bindable("LinearClassifier", "TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor", domain=DOMAIN)
def classifier(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Labels of the classes that win, and scores."""
    task = _task_of(info, compute)
    if task is None or task.has_names:
        return None
    write = written(compute)
    by_call = written(directly(_call_of(task), compute))

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        x = inputs[0]
        if not task.takes(x):
            return write
        if task.ranks is None:
            return _ModelWriter(task, x, len(outputs), write)
        is_bound = x.dtype == np.float64 and len(x) * task.features * 4 <= RANKED_BYTES
        return _RankedWriter(task, task.ranks, x, len(outputs), write) if is_bound else by_call

    make.task = task  # type: ignore[attr-defined]
    return make


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
        places = places_of_outputs(outputs, classifies=task.classifies)
        super().__init__(MODULE, task.name, raw_arguments(places, (*before, room, *behind)), otherwise, threads)


class _RankedWriter:
    """The same on rows of float64, by their ranks.

    Args:
        task: of the model.
        ranks: its own.
        x: rows of the shape to expect.
        outputs: how many are written.
        otherwise: writes what is not contiguous.
    """

    def __init__(self, task: _Task, ranks: Ranks, x: HostArray, outputs: int, otherwise: Writer) -> None:
        self._ranked = np.empty((len(x), task.features), np.float32)
        self._otherwise = otherwise
        arguments, threads = _rank_arguments(ranks, *x.shape)
        self._rank = TaskWriter(RANKS, RANKS, raw_arguments((0, 1), arguments), otherwise, threads)
        self._write = _ModelWriter(task, self._ranked, outputs, otherwise)

    def __call__(self, x: HostArray, *outputs: HostArray | None) -> None:
        """Write the outputs."""
        if not all(array is None or array.flags.c_contiguous for array in (x, *outputs)):
            self._otherwise(x, *outputs)
            return
        self._rank(x, self._ranked)
        self._write(self._ranked, *outputs)

    def fixed(self, x: HostArray, *outputs: HostArray | None) -> Callable[[], Any] | None:
        """The call on arrays that stay the same; None if one is not contiguous."""
        calls = self._rank.fixed(x, self._ranked), self._write.fixed(self._ranked, *outputs)
        return None if calls[0] is None or calls[1] is None else in_turn([calls[0], calls[1]])


def _rank_arguments(ranks: Ranks, rows: int, width: int) -> tuple[tuple[Any, ...], int]:
    """What follows rows and their ranks; and threads worth waking up."""
    features, arrays = ranks.starts.size - 1, (ranks.starts, ranks.splits)
    return (*arrays, rows, width * 8, features, ranks.splits.size), threads_for(rows * features * RANK_WORK)


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
    before: tuple[Any, ...]
    """Arguments before it."""
    behind: tuple[Any, ...]


def _plan(task: _Task, rows: int, width: int) -> _Plan:
    from ort_sdk_cpu.jit.task import task_function

    threads = task.threads(rows)
    before, behind = task.arguments(rows, width)
    return _Plan(task_function(MODULE, task.name, KINDS), threads, task.room_for(threads), before, behind)


def _call_of(task: _Task) -> Callable[..., Any]:
    """A task as a call on a run's rows."""
    names = task.model.labels if task.has_names else None  # type: ignore[union-attr]
    plans = PlansByShape(task.takes, lambda x: _plan(task, *x.shape))
    targets, empty, float_type = task.targets, np.empty, np.float32
    rank = None if task.ranks is None else _ranking(task.ranks)

    def call(x: HostArray) -> Any:
        plan = plans.get(x.shape) or plans.made_for(x)
        if plan is None or not x.flags.c_contiguous:
            return NotImplemented
        rows = len(x)
        if rank is not None:
            x = rank(x)
        scores, room = empty((rows, targets), float_type), empty(plan.room)
        labels = empty(rows, np.int64) if task.classifies else None
        plan.function(plan.threads, x, scores, labels, *plan.before, room, *plan.behind)
        return scores if labels is None else (labels if names is None else names.take(labels), scores)

    return call


def _ranking(ranks: Ranks) -> Callable[[HostArray], HostArray]:
    """Ranks of rows of any type, compared as float64."""
    features = ranks.starts.size - 1

    @functools.cache  # the code is loaded when it is needed
    def function() -> Callable[..., None]:
        from ort_sdk_cpu.jit.task import task_function

        return task_function(RANKS, RANKS, "q" * 8)

    def rank(x: HostArray) -> HostArray:
        wide, found = np.ascontiguousarray(x, np.float64), np.empty((len(x), features), np.float32)
        arguments, threads = _rank_arguments(ranks, *x.shape)
        function()(threads, wide, found, *arguments)
        return found

    return rank


NAMING.update(dict.fromkeys(((DOMAIN, "LinearClassifier"), (DOMAIN, "TreeEnsembleClassifier")), _naming))
