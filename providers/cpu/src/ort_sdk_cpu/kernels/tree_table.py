"""The nodes and votes of an ensemble of trees as the compiled task reads them."""

from __future__ import annotations

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.opset.ml.tree_ensemble import TreeSums
from ort_sdk_cpu.addresses import address_of

__all__ = ["TreeTable"]

_NODE = np.dtype([("children", np.int32, 4), ("feature", np.int32), ("split", np.float32)])
_VOTE = np.dtype([("target", np.int64), ("weight", np.float64)])


class TreeTable:
    """An ensemble's arrays.

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
