"""TreeEnsemble, TreeEnsembleRegressor and TreeEnsembleClassifier."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ort_sdk.api import Compute, HostArray, InvalidGraph, KernelInfo
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.definition import operator

from .scores import class_labels, expand_binary, post_transform, regression_transform
from .tree_attributes import Trees, read_trees, read_trees_by_id

__all__ = ["Decision", "TreeClassifier", "TreeRegressor", "TreeSums"]

DOMAIN = "ai.onnx.ml"

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")

_BLOCK = 1 << 20
"""Votes (row, tree and target) added up at once."""


@operator("TreeEnsemble", domain=DOMAIN, host_only=True)
def tree_ensemble(info: KernelInfo, xp: Any) -> Compute:
    """Votes of the leaves that each row reaches, put together for each target, (N, F) → (N, targets)."""
    aggregate = info.attribute("aggregate_function", 1)
    if not 0 <= aggregate < len(_AGGREGATES):
        raise InvalidGraph(
            f"{info.describe()}: aggregate_function {aggregate} is unknown; allowed are 0 to {len(_AGGREGATES) - 1}"
        )
    return _regressor(info, read_trees(info), _AGGREGATES[aggregate])


@operator("TreeEnsembleRegressor", domain=DOMAIN, host_only=True)
def tree_ensemble_regressor(info: KernelInfo, xp: Any) -> Compute:
    """Votes of the leaves that each row reaches, put together for each target, as float, (N, F) → (N, targets)."""
    aggregate = info.attribute("aggregate_function", "SUM")
    if aggregate not in _AGGREGATES:
        raise InvalidGraph(
            f"{info.describe()}: aggregate_function '{aggregate}' is unknown; allowed are {', '.join(_AGGREGATES)}"
        )
    return _regressor(info, read_trees_by_id(info, "target"), aggregate)


@operator("TreeEnsembleClassifier", domain=DOMAIN, host_only=True)
def tree_ensemble_classifier(info: KernelInfo, xp: Any) -> Compute:
    """The class with the highest score, (N), and the scores as float, (N, classes).

    If two classes have votes for one of them only, that score alone decides: the second class wins above 0.5 if no vote is
    negative (a probability), else above zero.
    """
    labels = class_labels(info, "classlabels_int64s", "classlabels_strings")
    trees = read_trees_by_id(info, "class")
    base, name = _base_values(info, labels.size), post_transform(info)
    return TreeClassifier(
        TreeSums(info, trees, labels.size, "SUM"),
        base,
        name,
        labels,
        _decision(trees, labels.size, base_values=len(_given_base_values(info))),
    )


@dataclass(frozen=True, slots=True)
class Decision:
    """How the winner of two classes follows from the one score that there is."""

    column: int
    limit: float
    """The second class wins above it."""
    is_probability: bool
    """Whether both scores add up to one, or to zero."""


@dataclass(frozen=True, slots=True)
class TreeClassifier:
    """(N, F) → the winning classes' labels, (N), and the scores, (N, classes)."""

    sums: TreeSums
    base: HostArray
    """What every row starts with, (classes)."""
    post_transform: str
    labels: HostArray
    decision: Decision | None
    """None if scores are compared."""

    @property
    def expands(self) -> bool:
        """Whether both classes' scores are made of the first one's."""
        return self.decision is not None and self.decision.column == 0

    def __call__(self, x: HostArray) -> tuple[HostArray, HostArray]:
        """Both outputs."""
        scores, decision = self.sums(x) + self.base, self.decision
        winners = scores.argmax(axis=1) if decision is None else (scores[:, decision.column] > decision.limit).astype(np.intp)
        scores = scores.astype(np.float32)
        if decision is not None and self.expands:
            return self.labels[winners], expand_binary(scores[:, :1], self.post_transform, is_probability=decision.is_probability)
        return self.labels[winners], regression_transform(self.post_transform, self.labels.size)(scores)


@dataclass(frozen=True, slots=True)
class TreeRegressor:
    """(N, F) → (N, targets)."""

    sums: TreeSums
    base: HostArray
    """What every row starts with, (targets)."""
    post_transform: str
    dtype: np.dtype[Any]

    def __call__(self, x: HostArray) -> HostArray:
        """The output."""
        transform = regression_transform(self.post_transform, self.base.size)
        return transform((self.sums(x) + self.base).astype(self.dtype))


def _decision(trees: Trees, classes: int, base_values: int) -> Decision | None:
    voted = trees.vote_targets
    if classes != 2 or base_values > 1 or not voted.size or voted.min() != voted.max():
        return None
    is_probability = bool((trees.vote_weights >= 0).all())
    return Decision(int(voted[0]), 0.5 if is_probability else 0.0, is_probability)


def _regressor(info: KernelInfo, trees: Trees, aggregate: str) -> TreeRegressor:
    targets = info.attribute("n_targets", None) or int(trees.vote_targets.max(initial=0)) + 1
    element_type = info.output_element_type(0)
    dtype = np.dtype(np.float32) if element_type is None else element_type.numpy_dtype
    sums = TreeSums(info, trees, targets, aggregate)
    return TreeRegressor(sums, _base_values(info, targets), post_transform(info), dtype)


def _given_base_values(info: KernelInfo) -> HostArray:
    tensor = info.attribute("base_values_as_tensor", None)
    values = info.attribute("base_values", None) or () if tensor is None else tensor.numpy()
    return np.asarray(values, dtype=np.float64).reshape(-1)


def _base_values(info: KernelInfo, targets: int) -> HostArray:
    """What every row starts with, (targets); missing values are zero."""
    given = _given_base_values(info)
    if given.size > targets:
        raise InvalidGraph(f"{info.describe()}: {given.size} base_values are given for {targets} targets or classes")
    base = np.zeros(targets)
    base[: given.size] = given
    return base


class TreeSums:
    """Puts the votes of the leaves that rows reach together: (N, F) → (N, targets) in float64."""

    def __init__(self, info: KernelInfo, trees: Trees, targets: int, aggregate: str) -> None:
        ids = trees.vote_targets
        if targets < 1 or (ids.size and (ids.min() < 0 or ids.max() >= targets)):
            raise InvalidGraph(f"{info.describe()}: votes are for targets {ids.min()} to {ids.max()}; allowed is [0, {targets})")
        self.trees, self.aggregate = trees, aggregate
        self._targets = targets
        self._tree_count = max(trees.nodes.roots.size, 1)
        self._empty = {"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0.0)

    @functools.cached_property
    def _votes_of(self) -> _OneVote | _Votes:
        """The votes by leaf. Made when they are wanted: compiled walks have tables of their own."""
        trees = self.trees
        by_node = np.bincount(trees.vote_nodes, minlength=trees.nodes.is_leaf.size)
        if self._targets > 1 and self._empty == 0.0 and int(by_node.max(initial=0)) <= 1:
            return _OneVote(trees, self._targets)
        return _Votes(trees, by_node, np.full(self._targets, self._empty), self.aggregate)

    def __call__(self, x: HostArray) -> HostArray:
        result, votes_of = np.empty((len(x), self._targets)), self._votes_of
        rows = max(1, _BLOCK // (self._tree_count * votes_of.work))
        for start in range(0, len(x), rows):
            result[start : start + rows] = votes_of(self.trees.nodes.leaves(x[start : start + rows]))
        if self.aggregate == "AVERAGE":
            result /= self._tree_count
        return result


class _OneVote:
    """Sums of votes for several targets, of which no leaf has more than one."""

    work = 1
    """Numbers that are added up for a leaf."""

    def __init__(self, trees: Trees, targets: int) -> None:
        nodes = trees.nodes.is_leaf.size
        self._targets = targets
        self._target_of = np.zeros(nodes, dtype=np.intp)
        self._weight_of = np.zeros(nodes)
        self._target_of[trees.vote_nodes] = trees.vote_targets
        self._weight_of[trees.vote_nodes] = trees.vote_weights

    def __call__(self, leaves: HostArray) -> HostArray:
        """(N, trees) → (N, targets)."""
        offsets = np.arange(len(leaves), dtype=np.intp)[:, np.newaxis] * self._targets + self._target_of.take(leaves)
        size = len(leaves) * self._targets
        sums = np.bincount(offsets.reshape(-1), self._weight_of.take(leaves).reshape(-1), minlength=size)
        return sums.reshape(-1, self._targets)


class _Votes:
    """Sums, minima or maxima of any votes.

    Args:
        trees: the ensemble.
        by_node: how many votes each node has.
        empty: what there is without votes, (targets).
        aggregate: what is done with votes.
    """

    def __init__(self, trees: Trees, by_node: HostArray, empty: HostArray, aggregate: str) -> None:
        self.work = empty.size
        """Numbers that are put together for a leaf."""
        self._aggregate = aggregate
        voters = np.flatnonzero(by_node)
        self._row_of = np.zeros(by_node.size, dtype=np.intp)
        """Row of each node in the table, (rows, targets); row 0 is for nodes without votes."""
        self._row_of[voters] = np.arange(1, voters.size + 1)
        self._table = np.full((voters.size + 1, empty.size), empty)
        put = {"MIN": np.minimum, "MAX": np.maximum}.get(aggregate, np.add)
        put.at(self._table, (self._row_of[trees.vote_nodes], trees.vote_targets), trees.vote_weights)

    def __call__(self, leaves: HostArray) -> HostArray:
        """(N, trees) → (N, targets)."""
        votes: HostArray = self._table[self._row_of.take(leaves)]
        if self._aggregate not in ("MIN", "MAX"):
            total: HostArray = votes.sum(axis=1)
            return total
        best: HostArray = votes.min(axis=1) if self._aggregate == "MIN" else votes.max(axis=1)
        return np.where(np.isinf(best), 0.0, best)
