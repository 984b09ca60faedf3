"""All trees of an ensemble in one table of nodes, walked for all rows and trees at once, level by level."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ort_sdk.api import HostArray, InvalidArgument, InvalidGraph
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.sizes import repeated, tiled

__all__ = ["MODES", "TreeNodes", "tree_nodes"]

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
"""Comparisons, in the order of TreeEnsemble's numbers for them."""

MEMBER = MODES.index("BRANCH_MEMBER")
LEAF = len(MODES)

_LESS, _EQUAL, _GREATER, _UNORDERED = range(4)

_IS_TRUE = np.array(
    [[1, 1, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 1, 1], [0, 1, 0, 0], [0, 0, 0, 0]],
    dtype=np.bool_,
)
"""Whether a comparison holds (row: mode) if the feature is less than, equal to, greater than or not comparable to the split."""

_TWO_WAY = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal)

_BLOCK = 1 << 15
"""Walks (pairs of row and tree) done at once: what a few arrays of them take stays in the processor's cache."""

_STRIDE = 4
"""Levels between two looks for walks that have ended."""


@dataclass(frozen=True, slots=True)
class TreeNodes:
    """Nodes of all trees. A leaf leads to itself, so that walks of different lengths go on together."""

    features: HostArray
    """Feature compared, (nodes)."""
    splits: HostArray
    """What it is compared with, (nodes)."""
    children: HostArray
    """Next node, (4 * nodes): if the feature is less, equal, greater, not a number."""
    two_way: Callable[[HostArray, HostArray], HostArray] | None
    """The one comparison that all nodes make, if there is one."""
    branches: HostArray
    """Next node, (2 * nodes): if ``two_way`` is false, if it is true."""
    nan_goes_own_way: bool
    """Whether NaN leads anywhere a two-way comparison does not."""
    is_leaf: HostArray
    roots: HostArray
    feature_count: int
    """Features a row must have at least."""

    def leaves(self, x: HostArray) -> HostArray:
        """Leaf that each row reaches in each tree, (rows, features) → (rows, trees).

        Raises:
            InvalidArgument: the rows have too few features.
        """
        if x.ndim != 2 or x.shape[1] < self.feature_count:
            raise InvalidArgument(
                f"a tree ensemble that looks at {self.feature_count} features got an input of shape {x.shape}; it must be [N, F] "
                f"with F >= {self.feature_count}"
            )
        values = np.ascontiguousarray(x, dtype=np.result_type(x.dtype, self.splits.dtype))
        result = np.empty((len(x), self.roots.size), dtype=np.intp)
        rows = max(1, _BLOCK // max(self.roots.size, 1))
        for start in range(0, len(x), rows):
            self._walk(values[start : start + rows], result[start : start + rows])
        return result

    def _walk(self, x: HostArray, result: HostArray) -> None:
        nodes = tiled(self.roots, (len(x),))
        offsets = repeated(np.arange(len(x), dtype=np.intp) * x.shape[1], self.roots.size)
        flat, ends = x.reshape(-1), result.reshape(-1)
        step = self._two_way_step if self._can_compare_once(x) else self._four_way_step
        walks = np.arange(nodes.size, dtype=np.intp)
        while walks.size:
            for _ in range(_STRIDE):
                nodes = step(flat, offsets, nodes)
            ends[walks] = nodes
            going_on = np.flatnonzero(~self.is_leaf.take(nodes))
            nodes, offsets, walks = nodes.take(going_on), offsets.take(going_on), walks.take(going_on)

    def _can_compare_once(self, x: HostArray) -> bool:
        return self.two_way is not None and not (self.nan_goes_own_way and bool(np.isnan(x).any()))

    def _two_way_step(self, flat: HostArray, offsets: HostArray, nodes: HostArray) -> HostArray:
        assert self.two_way is not None  # noqa: S101 - chosen by the caller
        holds = self.two_way(flat.take(offsets + self.features.take(nodes)), self.splits.take(nodes))
        return self.branches.take(2 * nodes + holds)

    def _four_way_step(self, flat: HostArray, offsets: HostArray, nodes: HostArray) -> HostArray:
        feature, split = flat.take(offsets + self.features.take(nodes)), self.splits.take(nodes)
        outcome: HostArray = (feature >= split).astype(np.intp) + (feature > split) + _UNORDERED * np.isnan(feature)
        return self.children.take(4 * nodes + outcome)


def tree_nodes(
    features: HostArray,
    splits: HostArray,
    modes: HostArray,
    children: tuple[HostArray, HostArray],
    nan_is_true: HostArray | None,
    roots: HostArray,
    members: list[HostArray] | None = None,
) -> TreeNodes:
    """Checks the nodes of all trees and makes the table of them.

    Args:
        features: feature each node compares; any number at leaves.
        splits: what it compares with; float32 or float64.
        modes: index into ``MODES``, or ``LEAF``.
        children: nodes the true and the false branches lead to.
        nan_is_true: whether NaN takes the true branch; None if it never does so.
        roots: root of each tree.
        members: values of each BRANCH_MEMBER node, in the order of the nodes.

    Raises:
        InvalidGraph: a feature, branch or root does not exist, or the nodes go round in a circle.
    """
    count = features.size
    is_leaf = modes == LEAF
    inner = np.flatnonzero(~is_leaf)
    true_child, false_child = (np.where(is_leaf, np.arange(count), child) for child in children)
    for what, values, limit in (
        ("branch", np.concatenate([true_child, false_child, roots]), count),
        ("feature", features[inner], None),
    ):
        if values.size and (values.min() < 0 or (limit is not None and values.max() >= limit)):
            raise InvalidGraph(f"{what} {values.min() if values.min() < 0 else values.max()} of a tree does not exist")
    _check_acyclic(inner, true_child, false_child)
    truth = _IS_TRUE[modes].copy()
    if nan_is_true is not None:
        truth[:, _UNORDERED] |= nan_is_true.astype(np.bool_)
    table = np.where(truth, true_child[:, np.newaxis], false_child[:, np.newaxis])
    features = np.where(is_leaf, 0, features)
    if members:
        features, splits, table = _with_members(np.flatnonzero(modes == MEMBER), members, features, splits, table, true_child)
    return _finished(features, splits, table, modes[inner], truth[inner], roots)


def _finished(
    features: HostArray, splits: HostArray, table: HostArray, modes: HostArray, truth: HostArray, roots: HostArray
) -> TreeNodes:
    same_mode = modes.size > 0 and bool((modes == modes[0]).all()) and modes[0] < len(_TWO_WAY)
    two_way = _TWO_WAY[modes[0]] if same_mode else None
    branches = np.zeros((len(table), 2), dtype=np.intp)
    if same_mode:
        is_true = _IS_TRUE[modes[0]]
        branches[:, 1] = table[:, int(np.flatnonzero(is_true)[0])]
        branches[:, 0] = table[:, int(np.flatnonzero(~is_true)[0])]
    return TreeNodes(
        features=features.astype(np.intp),
        splits=splits,
        children=table.astype(np.intp).reshape(-1),
        two_way=two_way,
        branches=branches.reshape(-1),
        nan_goes_own_way=bool(truth[:, _UNORDERED].any()),
        is_leaf=(table == np.arange(len(table))[:, np.newaxis]).all(axis=1),
        roots=roots.astype(np.intp),
        feature_count=int(features.max(initial=-1)) + 1,
    )


def _check_acyclic(inner: HostArray, true_child: HostArray, false_child: HostArray) -> None:
    """Takes away nodes without parents, level by level; what is left is a circle. Branches may meet again."""
    parents = np.bincount(np.concatenate([true_child[inner], false_child[inner]]), minlength=true_child.size)
    is_inner = np.zeros(true_child.size, dtype=np.bool_)
    is_inner[inner] = True
    level = inner[parents[inner] == 0]
    seen = 0
    while level.size:
        seen += level.size
        reached, times = np.unique(np.concatenate([true_child[level], false_child[level]]), return_counts=True)
        parents[reached] -= times
        level = reached[(parents[reached] == 0) & is_inner[reached]]
    if seen < inner.size:
        raise InvalidGraph(f"{inner.size - seen} nodes of a tree ensemble go round in a circle; branches must end at leaves")


def _with_members(
    nodes: HostArray, members: list[HostArray], features: HostArray, splits: HostArray, table: HostArray, true_child: HostArray
) -> tuple[HostArray, HostArray, HostArray]:
    """The table with each membership test replaced by a binary search over its sorted values."""
    new_features, new_splits, new_rows = [features], [splits], [table]
    count = len(table)
    for node, values in zip(nodes.tolist(), members, strict=True):
        otherwise, unordered = table[node, _LESS], table[node, _UNORDERED]
        order = np.unique(values)
        row_numbers = np.arange(order.size, dtype=np.intp) + count - 1
        middle = order.size // 2
        # The middle value keeps the node's own row, so that its parents find it; the others get new rows.
        row_numbers = np.where(np.arange(order.size) < middle, row_numbers + 1, row_numbers)
        row_numbers[middle] = node
        rows = np.empty((order.size, 4), dtype=np.intp)
        rows[:, _EQUAL], rows[:, _UNORDERED] = true_child[node], unordered
        _search_tree(rows, row_numbers, 0, order.size, int(otherwise))
        table[node], splits[node] = rows[middle], order[middle]
        others = np.arange(order.size) != middle
        new_rows.append(rows[others])
        new_splits.append(order[others].astype(splits.dtype))
        new_features.append(np.full(order.size - 1, features[node]))
        count += order.size - 1
    return np.concatenate(new_features), np.concatenate(new_splits), np.concatenate(new_rows)


def _search_tree(rows: HostArray, row_numbers: HostArray, start: int, end: int, otherwise: int) -> int:
    """Fills in where smaller and greater features lead for the values in [start, end); returns the row of their root."""
    if start == end:
        return otherwise
    middle = (start + end) // 2
    rows[middle, _LESS] = _search_tree(rows, row_numbers, start, middle, otherwise)
    rows[middle, _GREATER] = _search_tree(rows, row_numbers, middle + 1, end, otherwise)
    return int(row_numbers[middle])
