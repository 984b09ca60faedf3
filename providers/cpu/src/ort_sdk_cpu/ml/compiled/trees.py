"""Ensembles of decision trees over rows of float32, by walking from node to node.

float64 features come as their ranks among splits (``ranks``), which compare as they do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.ml.arguments.trees import TreeEnsemble
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, reduce_add, zero_f32
from ort_sdk_cpu.simd.memory import load_f32_masked, read_f32, read_f64, read_i32, read_i64, write_f64

from .scores import finish_row

__all__ = ["tree_ensemble"]

_FOUR_WAY_NODE, _FEATURE, _SPLIT, _VOTE = 24, 16, 20, 16
"""Bytes of a node of four ways, up to its feature and its split; bytes of a vote."""
_TWO_WAY_NODE, _OFFSET, _CHILDREN = 16, 4, 8
"""Bytes of a node of two ways, up to its feature and its children, behind its split: four of them fill a cache line."""
_FOUR_WAY, _TWO_WAY = 0, 1
_IN_LEAVES, _IN_TABLE = -1, 0
"""Values of ``leaf_votes``."""
_ROWS = 32
"""Rows whose votes are added up at a time: they and their sums stay in the first cache, while each tree is read once for all."""
_AVERAGE, _MIN = 1, 2
"""Values of ``aggregate``; below the first is the sum, above the second the maximum."""


@inline
def _next_of_four(x: int, node: int, _nodes: int, _flags: int) -> int:
    """Where a node of four ways leads: less, equal, greater, NaN. A leaf leads to itself."""
    feature, split = read_f32(x + read_i32(node + _FEATURE)), read_f32(node + _SPLIT)
    outcome = int(feature >= split) + int(feature > split) + 3 * int(feature != feature)  # noqa: PLR0124 - NaN
    following: int = node + read_i32(node + outcome * 4)
    return following


@inline
def _next_of_two(x: int, node: int, _nodes: int, _flags: int) -> int:
    """Where a node of two ways leads: to its first child if the feature is at most the split; else, or for NaN, to the second."""
    # The outcome is an index, not a branch: which way a row goes cannot be predicted.
    outcome = int(not (read_f32(x + read_i32(node + _OFFSET)) <= read_f32(node)))
    following: int = node + read_i32(node + outcome * 4 + _CHILDREN)
    return following


@inline
def _next_by_flag(x: int, node: int, nodes: int, flags: int) -> int:
    """The same where a flag of each node says whether NaN leads to the first child."""
    feature = read_f32(x + read_i32(node + _OFFSET))
    outcome = int(feature > read_f32(node))
    if feature != feature:  # noqa: PLR0124 - NaN
        outcome = 1 - read_i32(flags + (node - nodes) // _TWO_WAY_NODE * 4)
    following: int = node + read_i32(node + outcome * 4 + _CHILDREN)
    return following


@inline
def _eight(step: Any, xs: Any, at: Any, nodes: int, flags: int) -> Any:
    """A step of eight walks."""
    # Each step of a walk waits for the load of the one before, some five cycles from the first cache and more from others: eight
    # walks at a time hide that.
    return (
        step(xs[0], at[0], nodes, flags),
        step(xs[1], at[1], nodes, flags),
        step(xs[2], at[2], nodes, flags),
        step(xs[3], at[3], nodes, flags),
        step(xs[4], at[4], nodes, flags),
        step(xs[5], at[5], nodes, flags),
        step(xs[6], at[6], nodes, flags),
        step(xs[7], at[7], nodes, flags),
    )


@inline
def _ends(step: Any, xs: Any, at: Any, nodes: int, flags: int) -> Any:
    """Where eight walks end."""
    # Leaves lead to themselves, so that walks that are done wait for the others without a test of their own. All are compared
    # after every second step only, at the price of a step more for ends at an odd depth.
    before = at
    at = _eight(step, xs, _eight(step, xs, at, nodes, flags), nodes, flags)
    while at != before:
        before = at
        at = _eight(step, xs, _eight(step, xs, at, nodes, flags), nodes, flags)
    return at


@inline
def _leaves(args: TreeEnsemble, ways: int, xs: Any, at: Any) -> Any:
    """Addresses of the leaves that eight walks come to."""
    if ways == _TWO_WAY:
        return _ends(_next_of_two, xs, at, args.nodes, args.flags)
    if ways == _FOUR_WAY:
        return _ends(_next_of_four, xs, at, args.nodes, args.flags)
    return _ends(_next_by_flag, xs, at, args.nodes, args.flags)


@inline
def _has_nan(x: int, count: int) -> bool:
    """Whether some numbers are NaN, or infinite."""
    # x * 0 is 0 but for those, and NaN stays in a sum.
    total = zero_f32()
    for element in range(0, count, 16):
        total = fused_multiply_add(load_f32_masked(x + element * 4, count - element), zero_f32(), total)
    found: bool = reduce_add(total) != 0
    return found


@inline
def _add_vote(total: int, weight: float, aggregate: int) -> None:
    """Add a vote, or keep the least or the largest."""
    before = read_f64(total)
    if aggregate <= _AVERAGE:
        write_f64(total, before + weight)
    elif aggregate == _MIN:
        write_f64(total, min(before, weight))
    else:
        write_f64(total, max(before, weight))


@inline
def _leaf_weight(leaf: int) -> float:
    """The vote that stands in place of a leaf's split."""
    return np.float64(read_f32(leaf))


@inline
def _add_votes(args: TreeEnsemble, leaf: int, sums: int) -> None:
    """Add a leaf's votes."""
    if args.leaf_votes == _IN_LEAVES:
        _add_vote(sums, _leaf_weight(leaf), args.aggregate)
        return
    if args.leaf_votes == _IN_TABLE:
        size = _FOUR_WAY_NODE if args.ways == _FOUR_WAY else _TWO_WAY_NODE
        starts = args.starts + (leaf - args.nodes) // size * 4
        first, end = read_i32(starts), read_i32(starts + 4)
    else:
        first = read_i32(leaf)
        end = first + args.leaf_votes
    for vote in range(args.votes + first * _VOTE, args.votes + end * _VOTE, _VOTE):
        _add_vote(sums + read_i64(vote) * 8, read_f64(vote + 8), args.aggregate)


@inline
def _root(args: TreeEnsemble, tree: int) -> int:
    """Address of a tree's first node; the last tree's if there is none."""
    found: int = args.nodes + read_i32(args.roots + min(tree, args.trees - 1) * 4)
    return found


@inline
def _walk_row(args: TreeEnsemble, x: int, ways: int, sums: int) -> None:
    """Add the votes of all trees for a row: eight trees at a time."""
    trees, adds = args.trees, args.leaf_votes == _IN_LEAVES and args.aggregate <= _AVERAGE
    for tree in range(0, trees, 8):
        a, b, c, d = _root(args, tree), _root(args, tree + 1), _root(args, tree + 2), _root(args, tree + 3)
        e, f, g, h = _root(args, tree + 4), _root(args, tree + 5), _root(args, tree + 6), _root(args, tree + 7)
        leaves = _leaves(args, ways, (x, x, x, x, x, x, x, x), (a, b, c, d, e, f, g, h))
        if adds and trees - tree >= 8:
            # As a tree of sums, so that eight additions do not wait for each other.
            first = (_leaf_weight(leaves[0]) + _leaf_weight(leaves[1])) + (_leaf_weight(leaves[2]) + _leaf_weight(leaves[3]))
            second = (_leaf_weight(leaves[4]) + _leaf_weight(leaves[5])) + (_leaf_weight(leaves[6]) + _leaf_weight(leaves[7]))
            write_f64(sums, read_f64(sums) + (first + second))
        else:
            for lane in range(min(8, trees - tree)):
                _add_votes(args, leaves[lane], sums)


@inline
def _following(row: int, rows: int, x: int, stride: int) -> Any:
    """The row that follows one, and its address: after the last comes the first, in the next tree."""
    if row + 1 < rows:
        return row + 1, x + stride
    return 0, x - row * stride


@inline
def _walk_rows(args: TreeEnsemble, x: int, rows: int, ways: int, sums: int) -> None:
    """Add the votes of all trees for some rows: eight rows in one tree at a time, the last along with the next tree's first."""
    # One tree for all rows, and then the next: its nodes are loaded from memory once. Lanes that are over at the end of a tree go
    # on with the next one, so that few rows keep all eight busy, too.
    row_bytes, stride = args.targets * 8, args.x_stride
    row, tree = 0, 0
    left = args.trees * rows
    while left > 0:
        at = row
        b, xb = _following(row, rows, x, stride)
        c, xc = _following(b, rows, xb, stride)
        d, xd = _following(c, rows, xc, stride)
        e, xe = _following(d, rows, xd, stride)
        f, xf = _following(e, rows, xe, stride)
        g, xg = _following(f, rows, xf, stride)
        h, xh = _following(g, rows, xg, stride)
        tb = tree + int(b == 0)
        tc = tb + int(c == 0)
        td = tc + int(d == 0)
        te = td + int(e == 0)
        tf = te + int(f == 0)
        tg = tf + int(g == 0)
        th = tg + int(h == 0)
        roots = (
            _root(args, tree),
            _root(args, tb),
            _root(args, tc),
            _root(args, td),
            _root(args, te),
            _root(args, tf),
            _root(args, tg),
            _root(args, th),
        )
        leaves = _leaves(args, ways, (x, xb, xc, xd, xe, xf, xg, xh), roots)
        for lane in range(min(8, left)):
            _add_votes(args, leaves[lane], sums + at * row_bytes)
            at = at + 1 if at + 1 < rows else 0
        row, x = _following(h, rows, xh, stride)
        tree = th + int(row == 0)
        left -= 8


@inline
def _walk(args: TreeEnsemble, x: int, rows: int, sums: int) -> None:
    """Add the votes of all trees for some rows."""
    ways = args.ways
    # Without NaN the flags need not be read, which are apart from the nodes. Whether there is one is seen by whole vectors.
    if ways > _TWO_WAY and not _has_nan(x, rows * args.x_stride // 4):
        ways = _TWO_WAY
    if rows == 1:
        _walk_row(args, x, ways, sums)
    else:
        _walk_rows(args, x, rows, ways, sums)


@inline
def _aggregate(args: TreeEnsemble, sums: int) -> None:
    """What the votes of a row come to, with the base of its scores."""
    for target in range(args.targets):
        value = read_f64(sums + target * 8)
        if args.aggregate == _AVERAGE:
            value /= args.trees
        elif args.aggregate >= _MIN and np.isinf(value):
            value = 0.0
        write_f64(sums + target * 8, value + read_f64(args.base + target * 8))


@task
def tree_ensemble(args: TreeEnsemble, thread: int, threads: int) -> None:
    """Labels and scores; each thread has a range of rows."""
    x, stride, targets, rows = args.x, args.x_stride, args.targets, args.rows
    sums = args.workspace + thread * _ROWS * targets * 8
    neutral = 0.0
    if args.aggregate >= _MIN:
        neutral = np.inf if args.aggregate == _MIN else -np.inf
    stop = rows * (thread + 1) // threads
    for first in range(rows * thread // threads, stop, _ROWS):
        count = min(stop - first, _ROWS)
        for offset in range(0, count * targets * 8, 8):
            write_f64(sums + offset, neutral)
        _walk(args, x + first * stride, count, sums)
        for row in range(count):
            _aggregate(args, sums + row * targets * 8)
            finish_row(args, first + row, sums + row * targets * 8)
