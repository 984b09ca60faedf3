"""Ensembles of decision trees, walked by a compiled task."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk.opset.ml.tree_ensemble import TreeClassifier, TreeRegressor, TreeSums
from ort_sdk_cpu import libraries
from ort_sdk_cpu.addresses import address_of

from .bindable import MakeWriter, Writer, bindable
from .task_writer import TaskWriter, is_worth_a_task

__all__: list[str] = []

MODULE = TASK = "trees"
WALKS_PER_THREAD = 1 << 9
"""Pairs of a row and a tree that take some times as long as waking a thread up."""
COMPARISONS_PER_WALK = 1 << 5
"""About as many elements of other tasks take as long."""
ROWS_AT_ONCE = 32
"""As in the compiled module."""
_AGGREGATES = {"SUM": 0, "AVERAGE": 1, "MIN": 2, "MAX": 3}
_TRANSFORMS = {"NONE": 0, "SOFTMAX": 1, "LOGISTIC": 2}
_NODE = np.dtype([("children", np.int32, 4), ("feature", np.int32), ("split", np.float32)])
_VOTE = np.dtype([("target", np.int64), ("weight", np.float64)])


@bindable("TreeEnsemble", "TreeEnsembleRegressor", "TreeEnsembleClassifier", domain="ai.onnx.ml")
def trees(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Votes of the leaves that rows of float32 reach, and the classes that win."""
    if not isinstance(compute, TreeClassifier | TreeRegressor) or not _is_compiled(info, compute):
        return None
    table = _Table(compute.sums, compute.base)

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        write = _written(compute)
        x = inputs[0]
        if x.ndim != 2 or x.shape[1] < compute.sums.trees.nodes.feature_count:
            return write
        walks = len(x) * table.roots.size
        if not is_worth_a_task(walks * COMPARISONS_PER_WALK, MODULE, TASK):
            return write
        threads = max(1, min(libraries.thread_count(), len(x), walks // WALKS_PER_THREAD))
        return _TreeWriter(compute, table, x.shape, threads, write, len(outputs))

    return make


def _is_compiled(info: KernelInfo, compute: TreeClassifier | TreeRegressor) -> bool:
    """Whether rows, splits and scores are of types that the task knows, and so is what follows."""
    is_narrow = info.input_element_type(0) is TensorElementType.FLOAT and compute.sums.trees.nodes.splits.dtype == np.float32
    output = info.output_element_type(1 if isinstance(compute, TreeClassifier) else 0)
    return is_narrow and output in {TensorElementType.FLOAT, None} and compute.post_transform in _TRANSFORMS


def _written(compute: Callable[[HostArray], Any]) -> Writer:
    def write(x: HostArray, *outputs: HostArray | None) -> None:
        found = compute(x)
        for value, out in zip(found if isinstance(found, tuple) else (found,), outputs, strict=False):
            if out is not None:
                np.copyto(out, value)

    return write


class _Table:
    """The nodes and votes of an ensemble as the task reads them.

    Args:
        sums: the ensemble.
        base: what each row starts with.
    """

    def __init__(self, sums: TreeSums, base: HostArray) -> None:
        trees, nodes = sums.trees, sums.trees.nodes
        self.nodes = np.zeros(nodes.features.size, _NODE)
        self.nodes["children"] = nodes.children.reshape(-1, 4)
        self.nodes["feature"], self.nodes["split"] = nodes.features, nodes.splits
        is_below = nodes.two_way is np.less and not np.isneginf(nodes.splits).any()
        self.is_two_way = (is_below or nodes.two_way is np.less_equal) and not nodes.nan_goes_own_way
        """Whether all nodes ask whether a feature is at most the split, or can do so."""
        if is_below and self.is_two_way:
            self.nodes["split"] = np.nextafter(nodes.splits, np.float32(-np.inf))
        self.roots = nodes.roots.astype(np.int32)
        order = np.argsort(trees.vote_nodes, kind="stable")
        self.votes = np.zeros(order.size, _VOTE)
        self.votes["target"], self.votes["weight"] = trees.vote_targets[order], trees.vote_weights[order]
        self.starts = np.zeros(nodes.features.size + 1, np.int32)
        np.cumsum(np.bincount(trees.vote_nodes, minlength=nodes.features.size), out=self.starts[1:])
        self.base = np.ascontiguousarray(base, np.float64)

    def addresses(self) -> tuple[int, ...]:
        """Where they are, in the order of the task's arguments."""
        return tuple(address_of(array) for array in (self.nodes, self.roots, self.starts, self.votes, self.base))


class _TreeWriter(TaskWriter):
    """A task on rows of one shape, with the memory it needs.

    Args:
        compute: the shared set's function.
        table: its ensemble.
        shape: of the rows.
        threads: how many it may use.
        otherwise: writes what is not contiguous.
        outputs: how many are written; a classifier's first are the labels.
    """

    def __init__(
        self,
        compute: TreeClassifier | TreeRegressor,
        table: _Table,
        shape: tuple[int, ...],
        threads: int,
        otherwise: Writer,
        outputs: int,
    ) -> None:
        targets = table.base.size
        labels = compute.labels if isinstance(compute, TreeClassifier) else np.zeros(1, np.int64)
        self._kept = (table, labels, np.empty(threads * ROWS_AT_ONCE * targets))
        aggregate, transform = _AGGREGATES[compute.sums.aggregate], _TRANSFORMS[compute.post_transform]
        sizes = (shape[0], shape[1] * 4, table.roots.size, targets, aggregate, transform)
        rest = (
            *table.addresses(),
            address_of(labels),
            address_of(self._kept[2]),
            *sizes,
            *_decision(compute),
            int(table.is_two_way),
        )
        places = (0, 2 if outputs > 1 else None, 1) if isinstance(compute, TreeClassifier) else (0, 1, None)
        super().__init__(MODULE, TASK, rest, places, otherwise, threads)

    def fixed(self, *arrays: HostArray | None) -> Callable[[], Any] | None:
        """As the base says; the call keeps the ensemble."""
        call = super().fixed(*arrays)
        if call is not None:
            call.table = self._kept  # type: ignore[attr-defined]
        return call


def _decision(compute: TreeClassifier | TreeRegressor) -> tuple[int, int, int, float]:
    """How the winner is found, by which score, whether scores are made of it, and its limit."""
    if not isinstance(compute, TreeClassifier):
        return 0, 0, 0, math.nan
    decision = compute.decision
    if decision is None:
        return 1, 0, 0, math.nan
    return 3 if decision.is_probability else 2, decision.column, int(compute.expands), decision.limit
