"""Tree ensembles and linear classifiers as their tasks read them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.opset.ml.linear import LinearClassifier
from ort_sdk.opset.ml.tree_ensemble import TreeClassifier, TreeRegressor
from ort_sdk_cpu.kernel.task_writer import is_worth_a_task
from ort_sdk_cpu.platform import libraries

from .arguments import linear, trees
from .arguments.scores import ScoredRows
from .select import Algorithm
from .tree_layout import Ranks, TreeTable

__all__ = ["TRANSFORMS", "LinearTask", "Model", "ScoredModel", "TreeTask"]

WORK_PER_THREAD = 3 << 7
"""Walks down a tree that take some times as long as waking a thread up."""
PRODUCTS_PER_WALK = 4
"""Products of 16 features that take about as long as a walk."""
ELEMENTS_PER_WALK = 1 << 5
"""Elements of a few instructions each that take about as long as a walk."""
ROWS_AT_ONCE = 32
"""Rows that the task of trees adds votes up for at a time."""
TRANSFORMS = {"NONE": 0, "SOFTMAX": 1, "LOGISTIC": 2}
_AGGREGATES = {"SUM": 0, "AVERAGE": 1, "MIN": 2, "MAX": 3}
_LABEL_OF_HIGHEST = (1, 0, 0, math.nan)
"""``decision``, ``decision_score``, ``expands`` and ``limit`` of arguments."""

Model = TreeClassifier | TreeRegressor | LinearClassifier


class ScoredModel:
    """A model as its task reads it. For any number of threads at once.

    Args:
        model: the shared set's function.
        decision: ``decision``, ``decision_score``, ``expands`` and ``limit`` of the task's arguments.
        targets: scores of a row.
    """

    algorithm: Algorithm
    module: str
    task: str
    arguments: type[ScoredRows]
    features: int
    """Of a row; trees take rows with more."""
    work: int
    """Walks down a tree that a row takes as long as."""
    workspace: int
    """float64 elements that a thread needs."""
    own_words: tuple[Any, ...]
    """What the task's arguments have after those of ``ScoredRows``."""

    def __init__(self, model: Model, decision: tuple[int, int, int, float], targets: int) -> None:
        self.model, self.targets = model, targets
        self.classifies = not isinstance(model, TreeRegressor)
        labels = np.zeros(1) if isinstance(model, TreeRegressor) else model.labels
        self.has_names = labels.dtype == object
        """Whether labels are strings: the task gives their positions."""
        self.labels = np.arange(labels.size) if self.has_names else labels.astype(np.int64)
        self._scoring = (targets, TRANSFORMS[model.post_transform], *decision, self.labels)

    def fits(self, x: HostArray) -> bool:
        """Whether rows are as the task wants them."""
        return x.ndim == 2 and x.shape[1] == self.features

    def takes(self, x: HostArray) -> bool:
        """Whether rows are as the task, or the shared set, wants them, and worth loading it."""
        return self.fits(x) and is_worth_a_task(len(x) * self.work * ELEMENTS_PER_WALK, self.module, self.task)

    def threads(self, rows: int) -> int:
        """Threads worth waking up."""
        return max(1, min(libraries.thread_count(), rows, rows * self.work // WORK_PER_THREAD))

    def workspace_for(self, threads: int) -> int:
        """Of the workspace, in float64 elements."""
        return threads * self.workspace

    def words(self, rows: int, width: int) -> tuple[Any, ...]:
        """What the task's arguments have after the workspace."""
        return (rows, width * 4, *self._scoring, *self.own_words)


class LinearTask(ScoredModel):
    """A linear classifier."""

    algorithm = Algorithm.LINEAR
    module, task, arguments = linear.MODULE, "linear", linear.LinearModel

    def __init__(self, model: LinearClassifier) -> None:
        decision = (3, 0, 1, 0.0) if model.is_binary else _LABEL_OF_HIGHEST
        super().__init__(model, decision, model.labels.size)
        self.features, scores = model.linear.coefficients.shape[0], model.linear.intercepts.size
        self.own_words = (np.ascontiguousarray(model.linear.coefficients.T), model.linear.intercepts, self.features, scores)
        self.work = max(1, scores * -(-self.features // 16) // PRODUCTS_PER_WALK)
        self.workspace = 8 * (self.targets + linear.WORKSPACE_VECTORS)


class TreeTask(ScoredModel):
    """An ensemble of trees.

    Args:
        model: the shared set's function.
        ranks: of the ensemble, if the task reads ranks in place of features.
    """

    module, task, arguments = trees.MODULE, "tree_ensemble", trees.TreeEnsemble

    def __init__(self, model: TreeClassifier | TreeRegressor, ranks: Ranks | None) -> None:
        nodes = model.sums.trees.nodes
        table = TreeTable(
            model.sums, model.base, nodes.splits.astype(np.float32, copy=False) if ranks is None else ranks.of_nodes
        )
        super().__init__(model, _decision_of(model), table.base.size)
        self.features, self.ranks = nodes.feature_count, ranks
        self.algorithm = Algorithm.WALK if ranks is None else Algorithm.WALK_RANKS
        self.own_words = (
            *(table.nodes, table.roots, table.starts, table.votes, table.base),
            *(table.roots.size, _AGGREGATES[model.sums.aggregate], table.ways, table.leaf_votes, table.flags),
            *(table.nodes.size, self.features, table.votes.size),
        )
        self.work, self.workspace = table.roots.size, self.targets * ROWS_AT_ONCE

    def fits(self, x: HostArray) -> bool:
        """Whether rows have all features that are compared; they may have more."""
        return x.ndim == 2 and x.shape[1] >= self.features

    def words(self, rows: int, width: int) -> tuple[Any, ...]:
        """What the task's arguments have after the workspace."""
        return super().words(rows, width if self.ranks is None else self.features)


def _decision_of(model: TreeClassifier | TreeRegressor) -> tuple[int, int, int, float]:
    if isinstance(model, TreeRegressor):
        return 0, 0, 0, math.nan
    decision = model.decision
    if decision is None:
        return _LABEL_OF_HIGHEST
    return 3 if decision.is_probability else 2, decision.column, int(model.expands), decision.limit
