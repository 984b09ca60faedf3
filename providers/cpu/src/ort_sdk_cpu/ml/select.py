"""Which algorithm computes a tree ensemble or a linear classifier."""

from __future__ import annotations

import enum

from ort_sdk.api.data_classes import dataclass

__all__ = ["Algorithm", "ScoringProblem", "select_algorithm"]


class Algorithm(enum.Enum):
    """How scores of rows are computed."""

    LINEAR = "linear task"
    """Products with coefficients, 16 rows or 16 features at a time."""
    WALK = "tree walk"
    """Trees walked over float32 nodes, eight at a time."""
    WALK_RANKS = "tree walk by ranks"
    """The same over the ranks of features among splits."""
    NUMPY = "numpy"
    """The shared set's."""


@dataclass(frozen=True, slots=True)
class ScoringProblem:
    """What is known of a node when its kernel is made."""

    is_of_trees: bool
    x_is_float32: bool
    scores_are_float32: bool
    has_transform: bool
    """Whether the tasks know what is done with scores: nothing, softmax or the logistic function."""
    splits_are_float32: bool = True
    """Whether what trees compare with is the same in float32."""
    ranks_are_exact: bool = True
    """Whether the ranks of splits are integers that float32 has: fewer than 2**23 splits of a feature."""


def select_algorithm(problem: ScoringProblem) -> Algorithm:
    """The algorithm for a node, where there is a compiler."""
    if not (problem.scores_are_float32 and problem.has_transform):
        return Algorithm.NUMPY
    if not problem.is_of_trees:
        # Sums of float64 and integers would be rounded otherwise in float32.
        return Algorithm.LINEAR if problem.x_is_float32 else Algorithm.NUMPY
    if problem.x_is_float32 and problem.splits_are_float32:
        return Algorithm.WALK
    # Numbers of float64 would make nodes twice as large. One binary search per feature, and all trees are walked as before.
    return Algorithm.WALK_RANKS if problem.ranks_are_exact else Algorithm.NUMPY
