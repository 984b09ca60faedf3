"""The layout of a tree ensemble: arrays of nodes and votes as the compiled task reads them."""

from __future__ import annotations

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.opset.ml.tree_ensemble import TreeSums
from ort_sdk.opset.ml.tree_nodes import TreeNodes, Ways

__all__ = ["Ranks", "TreeTable"]

_FOUR_WAYS = np.dtype([("children", np.int32, 4), ("feature", np.int32), ("split", np.float32)])
_TWO_WAYS = np.dtype([("split", np.float32), ("feature", np.int32), ("children", np.int32, 2)])
_VOTE = np.dtype([("target", np.int64), ("weight", np.float64)])
_LESS, _EQUAL, _GREATER, _UNORDERED = range(4)
_IN_LEAVES, _IN_TABLE, _BY_FLAG = -1, 0, 2
"""As in the compiled module."""
_LARGEST_RANK = 1 << 24
"""From which not every integer is a float32."""


class Ranks:
    """The splits of each feature in ascending order.

    A feature's rank is twice the count of those below it, and one more if it is one itself. Ranks compare as
    the features do in float64, and float32 holds them.

    Args:
        nodes: of the ensemble.
    """

    def __init__(self, nodes: TreeNodes) -> None:
        inner = np.flatnonzero(~nodes.is_leaf)
        features, splits = nodes.features[inner], nodes.splits[inner].astype(np.float64)
        order = np.lexsort((splits, features))
        features, splits = features[order], splits[order]
        is_new = np.ones(order.size, dtype=np.bool_)
        is_new[1:] = (features[1:] != features[:-1]) | (splits[1:] != splits[:-1])
        self.splits = splits[is_new]
        self.features = nodes.feature_count
        self.starts = np.searchsorted(features[is_new], np.arange(nodes.feature_count + 1)).astype(np.int64)
        """Where each feature's splits begin, and where the last one's end."""
        ranks = 2 * (np.cumsum(is_new) - 1 - self.starts[features]) + 1
        self.are_exact = ranks.max(initial=0) < _LARGEST_RANK
        self.of_nodes = np.zeros(nodes.splits.size, np.float32)
        """The rank of each node's split."""
        self.of_nodes[inner[order]] = np.where(np.isnan(splits), np.nan, ranks)


class TreeTable:
    """An ensemble's arrays. Features and roots are offsets in bytes from the first, children from their node.

    Args:
        sums: the ensemble.
        base: what each row starts with.
        splits: what its nodes compare with, float32.
    """

    def __init__(self, sums: TreeSums, base: HostArray, splits: HostArray) -> None:
        trees, nodes = sums.trees, sums.trees.nodes
        is_below, self.ways = _ways(splits, nodes.ways)
        """0 for nodes of four ways; of two: 1 if NaN always goes the second, else 2."""
        self.nodes = np.zeros(nodes.features.size, _TWO_WAYS if self.ways else _FOUR_WAYS)
        self._fill_nodes(nodes, splits, is_below)
        self.flags = (nodes.ways[_UNORDERED] == nodes.ways[_LESS] if self.ways == _BY_FLAG else np.zeros(1)).astype(np.int32)
        """Of each node: whether NaN goes the first way; only if ``ways`` is 2."""
        self.roots = (nodes.roots * self.nodes.itemsize).astype(np.int32)
        order = _order(trees.vote_nodes)
        self.votes = np.zeros(trees.vote_nodes.size, _VOTE)
        self.votes["target"], self.votes["weight"] = trees.vote_targets[order], trees.vote_weights[order]
        counts = np.bincount(trees.vote_nodes, minlength=nodes.features.size)
        self.starts = np.zeros(nodes.features.size + 1, np.int32)
        np.cumsum(counts, out=self.starts[1:])
        self.leaf_votes = self._leaf_votes(nodes.is_leaf, counts) if self.ways else _IN_TABLE
        """How many votes each leaf has, 0 if that differs; -1 if the nodes themselves have them."""
        if self.leaf_votes != _IN_TABLE:
            first = self.starts[:-1][nodes.is_leaf]
            own = self.votes["weight"][first].astype(np.float32) if self.leaf_votes == _IN_LEAVES else first.view(np.float32)
            self.nodes["split"][nodes.is_leaf] = own
        self.base = np.ascontiguousarray(base, np.float64)

    def _fill_nodes(self, nodes: TreeNodes, splits: HostArray, is_below: HostArray | None) -> None:
        at, children = np.arange(nodes.features.size), self.nodes["children"]
        ways = (nodes.ways[_LESS], nodes.ways[_GREATER]) if self.ways else nodes.ways
        for column, way in enumerate(ways):
            children[:, column] = (way - at) * self.nodes.itemsize
        self.nodes["feature"] = nodes.features * 4
        # Nodes of two ways ask for at most a split: "below" is "at most the number before".
        if self.ways and is_below is not None:
            splits = np.where(is_below, np.nextafter(splits, np.float32(-np.inf)), splits)
        self.nodes["split"] = splits

    def _leaf_votes(self, is_leaf: HostArray, counts: HostArray) -> int:
        of_leaves = counts[is_leaf]
        if not of_leaves.size or counts[~is_leaf].any() or (of_leaves != of_leaves[0]).any():
            return _IN_TABLE
        weights = self.votes["weight"]
        fits = not self.votes["target"].any() and np.array_equal(weights.astype(np.float32), weights)
        return _IN_LEAVES if of_leaves[0] == 1 and fits else int(of_leaves[0])


def _ways(splits: HostArray, ways: Ways) -> tuple[HostArray | None, int]:
    """Which nodes ask whether a feature is below a split, None for none, and ``TreeTable.ways``.

    Nodes of two ways ask whether a feature is at most a split, or can do so.
    """
    less, equal, greater, unordered = ways
    is_below = None
    if less is not equal:
        differ = less != equal
        is_below = differ if equal is greater else differ & (equal == greater)
        if (differ != is_below).any() or np.isneginf(splits[is_below]).any():
            return is_below, 0
    return is_below, 1 if unordered is greater or (unordered == greater).all() else _BY_FLAG


def _order(vote_nodes: HostArray) -> HostArray | slice:
    """What puts votes in the order of their nodes, which they mostly have."""
    is_sorted = bool((vote_nodes[1:] >= vote_nodes[:-1]).all())
    return slice(None) if is_sorted else np.argsort(vote_nodes, kind="stable")
