"""Arguments of tree ensembles.

Which node follows another, and which votes a leaf has, are contents. They come from a model's attributes and are checked where
the tables are made; that the tables are as long is checked here.
"""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer
from ort_sdk_cpu.jit.extents.declaration import Extents, accesses, reads, require_at_most, uses_workspace
from ort_sdk_cpu.jit.extents.sizes import FLOAT

from .scores import ScoredRows

__all__ = ["MODULE", "TreeEnsemble"]

MODULE = "ml.trees"
_DOUBLE, _INT32 = 8, 4
_FOUR_WAY_NODE, _TWO_WAY_NODE, _VOTE = 24, 16, 16
"""Bytes of each."""
_ROWS = 32
"""Rows whose votes are added up at a time."""
_IN_LEAVES, _IN_TABLE = -1, 0
_BY_FLAG = 2


class TreeEnsemble(ScoredRows, module=MODULE, tasks=("tree_ensemble",)):
    """Scores are sums, means, minima or maxima of the votes of the leaves that trees lead a row to.

    ``x`` has the ranks of features among splits where these need float64; see ``ml.ranks``. The workspace has 32 rows of
    ``targets`` float64 for each thread.
    """

    nodes: Pointer
    """``node_count`` nodes; see ``ml.tree_layout``."""
    roots: Pointer
    """int32 (trees): bytes from the first node to the root of each tree."""
    starts: Pointer
    """int32 (node_count + 1): where the votes of each node begin; only if ``leaf_votes`` is 0."""
    votes: Pointer
    """``vote_count`` pairs of target, int64, and weight, float64; not if ``leaf_votes`` is -1."""
    base: Pointer
    """float64 (targets): what is added to each score."""
    trees: int
    aggregate: int
    """Of votes, 0: sum; 1: mean; 2: minimum; 3: maximum."""
    ways: int
    """Nodes, 0: of four ways; 1: of two, NaN goes the second; 2: of two, NaN goes the way that the node's flag says."""
    leaf_votes: int
    """Of each leaf, -1: one, which stands in place of its split; 0: any number, see ``starts``; else this number."""
    flags: Pointer
    """int32 (node_count): whether NaN goes the first way; only if ``ways`` is 2."""
    node_count: int
    features: int
    vote_count: int

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        require_at_most("trees less than one", 1 - self.trees, 0)
        rows = self.rows
        # With flags, a task first looks for NaN in all that is between the first and the last row's end.
        if self.ways >= _BY_FLAG:
            row = self.features * FLOAT
            yield reads(self.x, max(rows * self.x_stride, (rows - 1) * self.x_stride + row) if rows else 0)
        else:
            yield accesses(self.x, (rows,), (self.x_stride,), self.features * FLOAT)
        yield from self.outputs(self.decided_classes() if self.decision and self.labels.is_given else 0)
        yield reads(self.nodes, self.node_count * (_TWO_WAY_NODE if self.ways else _FOUR_WAY_NODE))
        yield reads(self.roots, self.trees * _INT32)
        yield reads(self.base, self.targets * _DOUBLE)
        yield uses_workspace(self.workspace, threads * _ROWS * self.targets * _DOUBLE)
        if self.leaf_votes == _IN_TABLE:
            yield reads(self.starts, (self.node_count + 1) * _INT32)
        if self.leaf_votes != _IN_LEAVES:
            yield reads(self.votes, self.vote_count * _VOTE)
        if self.ways >= _BY_FLAG:
            yield reads(self.flags, self.node_count * _INT32)
