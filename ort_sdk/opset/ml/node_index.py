"""Finding the nodes of an ensemble by tree and node id, which is how its attributes name them."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ort_sdk.api import HostArray, InvalidGraph, KernelInfo

__all__ = ["NodeIndex", "node_index"]

_PLACES_PER_NODE = 4
"""Places of a table of all ids that trees may have, for each node that there is; where ids are sparser, they are sorted."""


class NodeIndex(Protocol):
    """Finds nodes."""

    tree_count: int

    def find(self, tree_ids: HostArray, *node_ids: HostArray) -> tuple[HostArray, ...]:
        """Positions of nodes, -1 where there is none.

        Args:
            tree_ids: tree of each.
            node_ids: ids of nodes in these trees.
        """
        ...


def node_index(info: KernelInfo, tree_ids: HostArray, node_ids: HostArray) -> NodeIndex:
    """An index of all nodes.

    Args:
        info: the operator's node, for messages.
        tree_ids: tree of each node.
        node_ids: id of each in its tree.

    Raises:
        InvalidGraph: an id is negative or there twice.
    """
    if node_ids.size and int(node_ids.min()) < 0:
        raise InvalidGraph(f"{info.describe()}: nodes_nodeids must not be negative; found {int(node_ids.min())}")
    runs = _Runs(tree_ids)
    sizes = runs.sizes_for(node_ids)
    found = _SortedNodes(tree_ids, node_ids) if sizes is None else _NodeTable(runs, sizes, node_ids)
    if found.twice is not None:
        raise InvalidGraph(f"{info.describe()}: node {node_ids[found.twice]} of tree {tree_ids[found.twice]} is given twice")
    return found


class _Runs:
    """Neighbours of one tree: most files have the nodes of a tree one behind the other, so trees are looked up once for all.

    Args:
        tree_ids: tree of each node.
    """

    def __init__(self, tree_ids: HostArray) -> None:
        is_first = np.ones(tree_ids.size, np.bool_)
        np.not_equal(tree_ids[1:], tree_ids[:-1], out=is_first[1:])
        self.firsts = np.flatnonzero(is_first)
        self.trees = tree_ids[self.firsts]
        self._counts = np.diff(self.firsts, append=tree_ids.size)

    def sizes_for(self, node_ids: HostArray) -> HostArray | None:
        """How many places a table of each tree's nodes needs; None if trees are in pieces, or have few of so many ids."""
        if not node_ids.size or np.unique(self.trees).size < self.trees.size:
            return None
        highest = np.maximum.reduceat(node_ids, self.firsts)
        most = _PLACES_PER_NODE * node_ids.size
        # Each is looked at by itself, too, as their sum may be larger than its type holds.
        if int(highest.max()) >= most or int(highest.sum()) + highest.size > most:
            return None
        sizes: HostArray = highest + 1
        return sizes

    def of_nodes(self, of_runs: HostArray) -> HostArray:
        """What each node's run has."""
        return np.repeat(of_runs, self._counts)  # noqa: TID251 - as many as there are nodes


class _NodeTable:
    """A table with a place for each id that a tree may have."""

    def __init__(self, runs: _Runs, sizes: HostArray, node_ids: HostArray) -> None:
        self.tree_count = sizes.size
        order = np.argsort(runs.trees)
        starts = np.cumsum(sizes) - sizes
        self._trees, self._starts, self._sizes = runs.trees[order], starts[order], sizes[order]
        places, nodes = runs.of_nodes(starts) + node_ids, np.arange(node_ids.size)
        self._nodes: HostArray | None = None
        """Node at each place; None if it is that of the same number."""
        self.twice: int | None = None
        """A node whose id is there twice."""
        if not np.array_equal(places, nodes):
            self._nodes = np.full(int(sizes.sum()), -1)
            self._nodes[places] = nodes
            is_lost = self._nodes[places] != nodes
            self.twice = int(is_lost.argmax()) if is_lost.any() else None

    def find(self, tree_ids: HostArray, *node_ids: HostArray) -> tuple[HostArray, ...]:
        """As ``NodeIndex`` has it."""
        runs = _Runs(tree_ids)
        at = np.minimum(np.searchsorted(self._trees, runs.trees), self.tree_count - 1)
        starts = runs.of_nodes(self._starts[at])
        sizes = runs.of_nodes(np.where(self._trees[at] == runs.trees, self._sizes[at], 0))
        return tuple(self._at(starts, sizes, each) for each in node_ids)

    def _at(self, starts: HostArray, sizes: HostArray, node_ids: HostArray) -> HostArray:
        exists = (node_ids >= 0) & (node_ids < sizes)
        if exists.all():
            return starts + node_ids if self._nodes is None else self._nodes[starts + node_ids]
        places = np.where(exists, starts + node_ids, 0)
        return np.where(exists, places if self._nodes is None else self._nodes[places], -1)


class _SortedNodes:
    """All nodes in the order of trees and ids."""

    def __init__(self, tree_ids: HostArray, node_ids: HostArray) -> None:
        self._order = np.lexsort((node_ids, tree_ids))
        trees, nodes = tree_ids[self._order], node_ids[self._order]
        self._trees = np.unique(trees)
        self.tree_count = self._trees.size
        self._ids = np.unique(nodes)
        self._keys = np.searchsorted(self._trees, trees) * self._ids.size + np.searchsorted(self._ids, nodes)
        is_double = np.diff(self._keys) == 0
        self.twice = int(self._order[is_double.argmax()]) if is_double.any() else None

    def find(self, tree_ids: HostArray, *node_ids: HostArray) -> tuple[HostArray, ...]:
        """As ``NodeIndex`` has it."""
        return tuple(self._found(tree_ids, each) for each in node_ids)

    def _found(self, tree_ids: HostArray, node_ids: HostArray) -> HostArray:
        if not self._keys.size:
            return np.full(tree_ids.shape, -1, dtype=np.intp)
        tree, node = (
            np.minimum(np.searchsorted(known, given), known.size - 1)
            for known, given in ((self._trees, tree_ids), (self._ids, node_ids))
        )
        keys = tree * self._ids.size + node
        position = np.minimum(np.searchsorted(self._keys, keys), self._keys.size - 1)
        exists = (self._trees[tree] == tree_ids) & (self._ids[node] == node_ids) & (self._keys[position] == keys)
        return np.where(exists, self._order[position], -1)
