"""All trees of an ensemble in one table of nodes, walked for all rows and trees at once, level by level."""

from __future__ import annotations

import functools

import numpy as np

from ort_sdk.api import HostArray, InvalidArgument, InvalidGraph
from ort_sdk.opset.sizes import repeated, tiled

__all__ = ["LEAF", "MEMBER", "MODES", "TreeNodes", "Ways", "tree_nodes"]

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

Ways = tuple[HostArray, HostArray, HostArray, HostArray]
"""Next node, (nodes): if the feature is less, equal, greater, not a number. Some may be the same array."""


class TreeNodes:
    """Nodes of all trees. A leaf leads to itself, so that walks of different lengths go on together.

    Args:
        features: feature compared, (nodes).
        splits: what it is compared with, (nodes).
        ways: where each node leads.
        mode: index into ``MODES`` of the one comparison that all nodes make; None if there is no such one, or it is no function
            of NumPy's.
        nan_goes_own_way: whether NaN leads anywhere a two-way comparison does not.
        is_leaf: which nodes are leaves, (nodes).
        roots: root of each tree.
    """

    def __init__(
        self,
        features: HostArray,
        splits: HostArray,
        ways: Ways,
        mode: int | None,
        *,
        nan_goes_own_way: bool,
        is_leaf: HostArray,
        roots: HostArray,
    ) -> None:
        self.features, self.splits, self.ways = features, splits, ways
        self.is_leaf, self.roots, self._nan_goes_own_way = is_leaf, roots, nan_goes_own_way
        self._mode = mode
        self.feature_count = int(features.max(initial=-1)) + 1
        """Features a row must have at least."""

    # These are made when a walk wants them: compiled walks have tables of their own, and these take as long as all the others.
    @functools.cached_property
    def _children(self) -> HostArray:
        """Next node, (4 * nodes): if the feature is less, equal, greater, not a number."""
        return np.stack(self.ways, axis=1).reshape(-1)

    @functools.cached_property
    def _branches(self) -> HostArray:
        """Next node, (2 * nodes): if the one comparison is false, if it is true."""
        assert self._mode is not None  # noqa: S101 - looked at by the caller
        is_true = _IS_TRUE[self._mode].tolist()
        return np.stack([self.ways[is_true.index(False)], self.ways[is_true.index(True)]], axis=1).reshape(-1)

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
        return self._mode is not None and not (self._nan_goes_own_way and bool(np.isnan(x).any()))

    def _two_way_step(self, flat: HostArray, offsets: HostArray, nodes: HostArray) -> HostArray:
        assert self._mode is not None  # noqa: S101 - chosen by the caller
        holds = _TWO_WAY[self._mode](flat.take(offsets + self.features.take(nodes)), self.splits.take(nodes))
        return self._branches.take(2 * nodes + holds)

    def _four_way_step(self, flat: HostArray, offsets: HostArray, nodes: HostArray) -> HostArray:
        feature, split = flat.take(offsets + self.features.take(nodes)), self.splits.take(nodes)
        outcome: HostArray = (feature >= split).astype(np.intp) + (feature > split) + _UNORDERED * np.isnan(feature)
        return self._children.take(4 * nodes + outcome)


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
        children: nodes the true and the false branches lead to; of a leaf, itself.
        nan_is_true: whether NaN takes the true branch; None if it never does so.
        roots: root of each tree.
        members: values of each BRANCH_MEMBER node, in the order of the nodes.

    Raises:
        InvalidGraph: a feature, branch or root does not exist, or the nodes go round in a circle.
    """
    count, is_leaf = features.size, modes == LEAF
    inner = np.flatnonzero(~is_leaf)
    features = np.where(is_leaf, 0, features).astype(np.intp, copy=False)
    _check_range("branch", (*children, roots), count)
    _check_range("feature", (features,))
    _check_acyclic(inner, *children)
    inner_modes = modes[inner]
    has_one_mode = inner.size > 0 and bool((inner_modes == inner_modes[0]).all())
    mode = int(inner_modes[0]) if has_one_mode else None
    ways, nan_goes_own_way = _ways(modes, mode, children, nan_is_true)
    if members:
        features, splits, ways = _with_members(np.flatnonzero(modes == MEMBER), members, features, splits, ways, children[0])
        is_leaf = np.concatenate([is_leaf, np.zeros(features.size - count, np.bool_)])
    return TreeNodes(
        features,
        splits,
        ways,
        mode if has_one_mode and mode in range(len(_TWO_WAY)) else None,
        nan_goes_own_way=nan_goes_own_way,
        is_leaf=is_leaf,
        roots=roots.astype(np.intp, copy=False),
    )


def _check_range(what: str, columns: tuple[HostArray, ...], limit: int | None = None) -> None:
    for values in columns:
        low, high = (int(values.min()), int(values.max())) if values.size else (0, -1)
        if low < 0 or (limit is not None and high >= limit):
            raise InvalidGraph(f"{what} {low if low < 0 else high} of a tree does not exist")


def _ways(
    modes: HostArray, mode: int | None, children: tuple[HostArray, HostArray], nan_is_true: HostArray | None
) -> tuple[Ways, bool]:
    """Where nodes lead, and whether NaN leads elsewhere than where comparisons that are false do."""
    true_child, false_child = children
    if mode is None:
        is_true = [_IS_TRUE[:, outcome][modes] for outcome in range(4)]
        less, equal, greater, unordered = (np.where(each, true_child, false_child) for each in is_true)
        nan_goes_own_way = bool(is_true[_UNORDERED].any())
    else:
        less, equal, greater, unordered = (true_child if each else false_child for each in _IS_TRUE[mode])
        nan_goes_own_way = bool(_IS_TRUE[mode, _UNORDERED])
    if nan_is_true is not None and (nan_is_true & (modes != LEAF)).any():
        unordered, nan_goes_own_way = np.where(nan_is_true, true_child, unordered), True
    return (less, equal, greater, unordered), nan_goes_own_way


def _check_acyclic(inner: HostArray, true_child: HostArray, false_child: HostArray) -> None:
    """Takes away nodes without parents, level by level; what is left is a circle. Branches may meet again.

    Nearly all models have parents before their children, which leaves nothing to do.
    """
    if (np.minimum(true_child[inner], false_child[inner]) > inner).all():
        return
    parents = np.bincount(np.concatenate([true_child[inner], false_child[inner]]), minlength=true_child.size)
    meet = bool(parents.max(initial=0) > 1)
    is_inner = np.zeros(true_child.size, dtype=np.bool_)
    is_inner[inner] = True
    level = inner[parents[inner] == 0]
    seen = 0
    while level.size:
        seen += level.size
        reached = np.concatenate([true_child[level], false_child[level]])
        if meet:
            reached, times = np.unique(reached, return_counts=True)
            parents[reached] -= times
            reached = reached[parents[reached] == 0]
        level = reached[is_inner[reached]]
    if seen < inner.size:
        raise InvalidGraph(f"{inner.size - seen} nodes of a tree ensemble go round in a circle; branches must end at leaves")


def _with_members(
    nodes: HostArray, members: list[HostArray], features: HostArray, splits: HostArray, ways: Ways, true_child: HostArray
) -> tuple[HostArray, HostArray, Ways]:
    """The nodes with each membership test replaced by a binary search over its sorted values."""
    table, splits = np.stack(ways, axis=1), splits.copy()
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
    less, equal, greater, unordered = np.ascontiguousarray(np.concatenate(new_rows).T)
    return np.concatenate(new_features), np.concatenate(new_splits), (less, equal, greater, unordered)


def _search_tree(rows: HostArray, row_numbers: HostArray, start: int, end: int, otherwise: int) -> int:
    """Fills in where smaller and greater features lead for the values in [start, end); returns the row of their root."""
    if start == end:
        return otherwise
    middle = (start + end) // 2
    rows[middle, _LESS] = _search_tree(rows, row_numbers, start, middle, otherwise)
    rows[middle, _GREATER] = _search_tree(rows, row_numbers, middle + 1, end, otherwise)
    return int(row_numbers[middle])
