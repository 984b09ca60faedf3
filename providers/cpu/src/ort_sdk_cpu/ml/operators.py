"""Ensembles of decision trees and linear classifiers, by compiled tasks of rows of float32, or of ranks among splits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.ml.linear import LinearClassifier
from ort_sdk.opset.ml.tree_ensemble import TreeRegressor
from ort_sdk_cpu.jit.arguments import Operand
from ort_sdk_cpu.jit.native_call import in_sequence
from ort_sdk_cpu.kernel.bindable import STRING_CALLS, BindableKernel, DirectBindableKernel, bindable, kernel_maker
from ort_sdk_cpu.kernel.eager import with_fallback
from ort_sdk_cpu.kernel.selecting import SelectingMaker, Selection, selecting_call
from ort_sdk_cpu.kernel.task_writer import TaskWriter, threads_for
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer, output_writer
from ort_sdk_cpu.platform import libraries

from .arguments.ranks import MODULE as RANKS
from .arguments.ranks import SplitRanks
from .scored_model import TRANSFORMS, LinearTask, Model, ScoredModel, TreeTask
from .scored_rows import PlansByShape, operands_of_outputs
from .select import Algorithm, ScoringProblem, select_algorithm
from .tree_layout import Ranks

__all__: list[str] = []

DOMAIN = "ai.onnx.ml"
RANK_WORK = 1 << 3
"""Elements of a few instructions each that finding a rank takes as long as: a binary search of some ten steps."""
MAX_RANKED_BYTES = 1 << 20
"""Ranks that a program keeps memory for; more are computed into memory of the run."""


def _task_of(info: KernelInfo, compute: Any) -> ScoredModel | None:
    """The model as its task reads it; None where NumPy computes it."""
    if not isinstance(compute, Model) or not libraries.compiled_kernels().is_usable:
        return None
    output = info.output_element_type(0 if isinstance(compute, TreeRegressor) else 1)
    known = {
        "x_is_float32": info.input_element_type(0) is TensorElementType.FLOAT,
        "scores_are_float32": output in {TensorElementType.FLOAT, None},
        "has_transform": compute.post_transform in TRANSFORMS,
    }
    if isinstance(compute, LinearClassifier):
        is_linear = select_algorithm(ScoringProblem(is_of_trees=False, **known)) is Algorithm.LINEAR
        return LinearTask(compute) if is_linear else None
    nodes = compute.sums.trees.nodes
    ranks = None if known["x_is_float32"] and _are_float32(nodes.splits) else Ranks(nodes)
    found = select_algorithm(
        ScoringProblem(
            is_of_trees=True,
            **known,
            splits_are_float32=ranks is None,
            ranks_are_exact=ranks is None or ranks.are_exact,
        )
    )
    return None if found is Algorithm.NUMPY else TreeTask(compute, ranks)


def _ranks_of(task: ScoredModel) -> Ranks | None:
    """The ranks that it reads in place of features; None if it reads the features."""
    return task.ranks if isinstance(task, TreeTask) else None


def _are_float32(values: HostArray) -> bool:
    return values.dtype == np.float32 or np.array_equal(values, values.astype(np.float32))


@bindable("LinearClassifier", "TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor", domain=DOMAIN)
def classifier(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Labels of the classes that win, and scores."""
    task = _task_of(info, compute)
    if task is None or task.has_names:
        return None
    write = output_writer(compute)
    by_call = output_writer(with_fallback(_call_of(task), compute))

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> tuple[Algorithm, Writer]:
        x = inputs[0]
        if not task.takes(x):
            return Algorithm.NUMPY, write
        ranks = _ranks_of(task)
        if ranks is None:
            return task.algorithm, _ModelWriter(task, x, len(outputs), write)
        is_bound = x.dtype == np.float64 and len(x) * task.features * 4 <= MAX_RANKED_BYTES
        return task.algorithm, _RankedWriter(task, ranks, x, len(outputs), write) if is_bound else by_call

    maker = SelectingMaker(make)
    maker.task = task  # type: ignore[attr-defined]
    return maker


class _ModelWriter(TaskWriter):
    """A task on rows of one shape, with the memory it needs.

    Args:
        task: of the model.
        x: rows of the shape to expect.
        outputs: how many are written; a classifier's first are the labels.
        otherwise: writes what is not contiguous.
    """

    def __init__(self, task: ScoredModel, x: HostArray, outputs: int, otherwise: Writer) -> None:
        threads = task.threads(len(x))
        workspace = np.empty(task.workspace_for(threads))
        self._kept = (task, workspace)
        operands = (Operand(0), *operands_of_outputs(outputs, classifies=task.classifies))
        arguments = task.arguments.of_words((*operands, workspace, *task.words(*x.shape)))
        super().__init__(task.module, task.task, arguments, otherwise, threads)


class _RankedWriter:
    """The same on rows of float64, by their ranks.

    Args:
        task: of the model.
        ranks: its own.
        x: rows of the shape to expect.
        outputs: how many are written.
        otherwise: writes what is not contiguous.
    """

    def __init__(self, task: ScoredModel, ranks: Ranks, x: HostArray, outputs: int, otherwise: Writer) -> None:
        self._ranked = np.empty((len(x), task.features), np.float32)
        self._otherwise = otherwise
        arguments = _rank_arguments(ranks, Operand(0), Operand(1), x.shape)
        self._rank = TaskWriter(RANKS, "split_ranks", arguments, otherwise, _rank_threads(ranks, len(x)))
        self._write = _ModelWriter(task, self._ranked, outputs, otherwise)

    def __call__(self, x: HostArray, *outputs: HostArray | None) -> None:
        """Write the outputs."""
        if not all(array is None or array.flags.c_contiguous for array in (x, *outputs)):
            self._otherwise(x, *outputs)
            return
        self._rank(x, self._ranked)
        self._write(self._ranked, *outputs)

    def bind_arrays(self, x: HostArray, *outputs: HostArray | None) -> Callable[[], Any] | None:
        """The call on arrays that stay the same; None if one is not contiguous."""
        calls = self._rank.bind_arrays(x, self._ranked), self._write.bind_arrays(self._ranked, *outputs)
        return None if calls[0] is None or calls[1] is None else in_sequence([calls[0], calls[1]])


def _rank_arguments(ranks: Ranks, x: Any, out: Any, shape: Sequence[int]) -> SplitRanks:
    rows, width = shape
    return SplitRanks(x, out, ranks.starts, ranks.splits, rows, width * 8, ranks.features, ranks.splits.size)


def _rank_threads(ranks: Ranks, rows: int) -> int:
    """Threads worth waking up."""
    return threads_for(rows * ranks.features * RANK_WORK)


@kernel_maker("LinearClassifier", "TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor", domain=DOMAIN)
def for_any_rows(_info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> BindableKernel:
    """The kernel over the task, for however many rows."""
    return DirectBindableKernel(kernel, make_writer, _call_of(make_writer.task))  # type: ignore[attr-defined]


def _naming(info: KernelInfo, compute: Any) -> Callable[..., Any] | None:
    """The call of a node whose labels are strings."""
    task = _task_of(info, compute)
    return None if task is None else _call_of(task)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a call on rows of one shape is made of."""

    function: Callable[..., None]
    threads: int
    workspace: int
    """In float64 elements."""
    words: tuple[Any, ...]
    """Arguments after it."""


def _plan(task: ScoredModel, rows: int, width: int) -> _Plan:
    from ort_sdk_cpu.jit.task import task_function

    threads = task.threads(rows)
    return _Plan(task_function(task.module, task.task), threads, task.workspace_for(threads), task.words(rows, width))


def _call_of(task: ScoredModel) -> Callable[..., Any]:
    """A task as a call on a run's rows."""
    names = task.model.labels if task.has_names else None  # type: ignore[union-attr]
    plans = PlansByShape(task.takes, lambda x: _plan(task, *x.shape))
    targets, of_words, empty, float_type = task.targets, task.arguments.of_words, np.empty, np.float32
    ranks = _ranks_of(task)
    rank = None if ranks is None else _ranking(ranks)

    algorithm, numpy = task.algorithm.value, Algorithm.NUMPY.value

    def call(selection: Selection, x: HostArray) -> Any:
        plan = plans.get(x.shape) or plans.made_for(x)
        if plan is None or not x.flags.c_contiguous:
            selection.algorithm = numpy
            return NotImplemented
        selection.algorithm = algorithm
        rows = len(x)
        if rank is not None:
            x = rank(x)
        scores, workspace = empty((rows, targets), float_type), empty(plan.workspace)
        labels = empty(rows, np.int64) if task.classifies else None
        plan.function(plan.threads, of_words((x, scores, labels, workspace, *plan.words)))
        return scores if labels is None else (labels if names is None else names.take(labels), scores)

    return selecting_call(call)


def _ranking(ranks: Ranks) -> Callable[[HostArray], HostArray]:
    """Ranks of rows of any type, compared as float64."""

    @functools.cache  # the code is loaded when it is needed
    def function() -> Callable[..., None]:
        from ort_sdk_cpu.jit.task import task_function

        return task_function(RANKS, "split_ranks")

    def rank(x: HostArray) -> HostArray:
        wide, found = np.ascontiguousarray(x, np.float64), np.empty((len(x), ranks.features), np.float32)
        function()(_rank_threads(ranks, len(x)), _rank_arguments(ranks, wide, found, x.shape))
        return found

    return rank


STRING_CALLS.update(dict.fromkeys(((DOMAIN, "LinearClassifier"), (DOMAIN, "TreeEnsembleClassifier")), _naming))
