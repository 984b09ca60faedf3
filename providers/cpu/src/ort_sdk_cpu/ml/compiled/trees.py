"""Ensembles of decision trees, and linear classifiers, over rows of float32: labels of the classes that win, and scores.

Numbers of float64 come to ensembles as the `ranks` among splits, which compare as they do.

Trees are walked eight at a time, as each step of a walk waits for the one before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument, number
from ort_sdk_cpu.simd.arithmetic import (
    add,
    divide,
    fused_multiply_add,
    maximum,
    multiply,
    reduce_add,
    reduce_max,
    splat_f32,
    subtract,
    zero_f32,
)
from ort_sdk_cpu.simd.math import exp_of_negative, sigmoid
from ort_sdk_cpu.simd.memory import (
    broadcast_f32,
    load_f32,
    load_f32_first,
    read_f32,
    read_f64,
    read_i32,
    read_i64,
    store_f32,
    store_f32_first,
    write_f32,
    write_f64,
    write_i64,
)
from ort_sdk_cpu.simd.remainder import first_lanes, load_f32_first_or, select_less
from ort_sdk_cpu.simd.shuffles import transpose_rows

__all__ = ["linear_classifier", "trees"]

_NODE, _FEATURE, _SPLIT, _VOTE = 24, 16, 20, 16
"""Bytes of a node of four ways, up to its feature and its split; bytes of a vote."""
_TWO_WAYS, _OFFSET, _CHILDREN = 16, 4, 8
"""Bytes of a node of two ways, up to its feature and its children, behind its split."""
_FOUR_WAY, _TWO_WAY = 0, 1
_IN_LEAVES, _IN_TABLE = -1, 0
"""Where votes are: one in each leaf, in place of a split; or where a table says. Else, how many each leaf has."""
_FEWEST_COLUMNS = 8
"""Rows from which a vector holds a number of each of them, for linear classifiers."""
_ROWS = 32
"""Rows for which votes are put together at a time."""
_SUM, _AVERAGE, _MIN = 0, 1, 2
_SOFTMAX, _LOGISTIC = 1, 2
_COMPARED, _DECIDED, _FROM_PROBABILITY = 1, 2, 3
_I64, _F64 = ir.IntType(64), ir.DoubleType()


@inner
def _next(x: int, node: int, _nodes: int, _flags: int) -> int:
    """Where a node of four ways leads a row; a leaf leads to itself."""
    feature, split = read_f32(x + read_i32(node + _FEATURE)), read_f32(node + _SPLIT)
    outcome = int(feature >= split) + int(feature > split) + 3 * int(feature != feature)  # noqa: PLR0124 - not a number
    following: int = node + read_i32(node + outcome * 4)
    return following


@inner
def _next_of_two(x: int, node: int, _nodes: int, _flags: int) -> int:
    """Where one of two ways leads: if the feature is at most the split, to its first child; if not, or if it is no number, on."""
    outcome = int(not (read_f32(x + read_i32(node + _OFFSET)) <= read_f32(node)))
    following: int = node + read_i32(node + outcome * 4 + _CHILDREN)
    return following


@inner
def _next_by_flag(x: int, node: int, nodes: int, flags: int) -> int:
    """The same where a flag of each node says whether what is no number leads to the first child."""
    feature = read_f32(x + read_i32(node + _OFFSET))
    outcome = int(feature > read_f32(node))
    if feature != feature:  # noqa: PLR0124 - not a number
        outcome = 1 - read_i32(flags + (node - nodes) // _TWO_WAYS * 4)
    following: int = node + read_i32(node + outcome * 4 + _CHILDREN)
    return following


@inner
def _eight(step: Any, xs: Any, at: Any, nodes: int, flags: int) -> Any:
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


@inner
def _ends(step: Any, xs: Any, at: Any, nodes: int, flags: int) -> Any:
    """Where eight walks end; looked at after every second step."""
    before = at
    at = _eight(step, xs, _eight(step, xs, at, nodes, flags), nodes, flags)
    while at != before:
        before = at
        at = _eight(step, xs, _eight(step, xs, at, nodes, flags), nodes, flags)
    return at


@inner
def _leaves(record: int, ways: int, xs: Any, at: Any) -> Any:
    """Addresses of the leaves that eight walks come to."""
    nodes, flags = argument(record, 3), argument(record, 22)
    if ways == _TWO_WAY:
        return _ends(_next_of_two, xs, at, nodes, flags)
    if ways == _FOUR_WAY:
        return _ends(_next, xs, at, nodes, flags)
    return _ends(_next_by_flag, xs, at, nodes, flags)


@inner
def _has_nan(x: int, count: int) -> bool:
    """Whether some numbers are none, or infinite."""
    total = zero_f32()
    for place in range(0, count, 16):
        total = fused_multiply_add(load_f32_first(x + place * 4, count - place), zero_f32(), total)
    found: bool = reduce_add(total) != 0
    return found


@inner
def _add(place: int, weight: float, aggregate: int) -> None:
    """Add a vote, or keep the least or the largest."""
    before = read_f64(place)
    if aggregate <= _AVERAGE:
        write_f64(place, before + weight)
    elif aggregate == _MIN:
        write_f64(place, min(before, weight))
    else:
        write_f64(place, max(before, weight))


@inner
def _weight(leaf: int) -> float:
    """The vote that stands in place of a leaf's split."""
    return np.float64(read_f32(leaf))


@inner
def _put(record: int, leaf: int, sums: int) -> None:
    """Count a leaf's votes."""
    aggregate, form = argument(record, 14), argument(record, 21)
    if form == _IN_LEAVES:
        _add(sums, _weight(leaf), aggregate)
        return
    if form == _IN_TABLE:
        size = _NODE if argument(record, 20) == _FOUR_WAY else _TWO_WAYS
        starts = argument(record, 5) + (leaf - argument(record, 3)) // size * 4
        first, end = read_i32(starts), read_i32(starts + 4)
    else:
        first = read_i32(leaf)
        end = first + form
    for place in range(argument(record, 6) + first * _VOTE, argument(record, 6) + end * _VOTE, _VOTE):
        _add(sums + read_i64(place) * 8, read_f64(place + 8), aggregate)


@inner
def _root(record: int, tree: int) -> int:
    """Address of a tree's first node; the last tree's if there is none."""
    found: int = argument(record, 3) + read_i32(argument(record, 4) + min(tree, argument(record, 12) - 1) * 4)
    return found


@inner
def _walk_row(record: int, x: int, ways: int, sums: int) -> None:
    """The votes of all trees for a row: eight trees at a time."""
    trees, adds = argument(record, 12), argument(record, 21) == _IN_LEAVES and argument(record, 14) <= _AVERAGE
    for tree in range(0, trees, 8):
        a, b, c, d = _root(record, tree), _root(record, tree + 1), _root(record, tree + 2), _root(record, tree + 3)
        e, f, g, h = _root(record, tree + 4), _root(record, tree + 5), _root(record, tree + 6), _root(record, tree + 7)
        leaves = _leaves(record, ways, (x, x, x, x, x, x, x, x), (a, b, c, d, e, f, g, h))
        if adds and trees - tree >= 8:
            first = (_weight(leaves[0]) + _weight(leaves[1])) + (_weight(leaves[2]) + _weight(leaves[3]))
            second = (_weight(leaves[4]) + _weight(leaves[5])) + (_weight(leaves[6]) + _weight(leaves[7]))
            write_f64(sums, read_f64(sums) + (first + second))
        else:
            for lane in range(min(8, trees - tree)):
                _put(record, leaves[lane], sums)


@inner
def _behind(row: int, rows: int, x: int, x_row: int) -> Any:
    """The row behind one, and its address: behind the last comes the first, in the next tree."""
    if row + 1 < rows:
        return row + 1, x + x_row
    return 0, x - row * x_row


@inner
def _walk_rows(record: int, x: int, rows: int, ways: int, sums: int) -> None:
    """The votes of all trees for some rows: eight rows in one tree at a time, the last along with the next tree's first."""
    targets, x_row = argument(record, 13) * 8, argument(record, 11)
    row, tree = 0, 0
    left = argument(record, 12) * rows
    while left > 0:
        at = row
        b, xb = _behind(row, rows, x, x_row)
        c, xc = _behind(b, rows, xb, x_row)
        d, xd = _behind(c, rows, xc, x_row)
        e, xe = _behind(d, rows, xd, x_row)
        f, xf = _behind(e, rows, xe, x_row)
        g, xg = _behind(f, rows, xf, x_row)
        h, xh = _behind(g, rows, xg, x_row)
        tb = tree + int(b == 0)
        tc = tb + int(c == 0)
        td = tc + int(d == 0)
        te = td + int(e == 0)
        tf = te + int(f == 0)
        tg = tf + int(g == 0)
        th = tg + int(h == 0)
        roots = (
            _root(record, tree),
            _root(record, tb),
            _root(record, tc),
            _root(record, td),
            _root(record, te),
            _root(record, tf),
            _root(record, tg),
            _root(record, th),
        )
        leaves = _leaves(record, ways, (x, xb, xc, xd, xe, xf, xg, xh), roots)
        for lane in range(min(8, left)):
            _put(record, leaves[lane], sums + at * targets)
            at = at + 1 if at + 1 < rows else 0
        row, x = _behind(h, rows, xh, x_row)
        tree = th + int(row == 0)
        left -= 8


@inner
def _walk(record: int, x: int, rows: int, sums: int) -> None:
    """The votes of all trees for some rows."""
    ways = argument(record, 20)
    if ways > _TWO_WAY and not _has_nan(x, rows * argument(record, 11) // 4):
        ways = _TWO_WAY
    if rows == 1:
        _walk_row(record, x, ways, sums)
    else:
        _walk_rows(record, x, rows, ways, sums)


@inner
def _together(record: int, aggregate: int, targets: int, sums: int) -> None:
    """What the votes come to, with what each row starts with."""
    base = argument(record, 7)
    for target in range(targets):
        value = read_f64(sums + target * 8)
        if aggregate == _AVERAGE:
            value /= argument(record, 12)
        elif aggregate >= _MIN and np.isinf(value):
            value = 0.0
        write_f64(sums + target * 8, value + read_f64(base + target * 8))


@inner
def _winner(record: int, kind: int, targets: int, sums: int) -> int:
    """The class of the highest score, or what the one score decides."""
    if kind >= _DECIDED:
        return int(read_f64(sums + argument(record, 17) * 8) > number(record, 19))
    best = 0
    for target in range(1, targets):
        if read_f64(sums + target * 8) > read_f64(sums + best * 8):
            best = target
    return best


@inner
def _softmax(out: int, count: int) -> None:
    largest, total = splat_f32(np.float32(-np.inf)), zero_f32()
    for element in range(0, count, 16):
        largest = maximum(load_f32_first_or(out + element * 4, min(count - element, 16), largest), largest)
    shift = splat_f32(reduce_max(largest))
    for element in range(0, count, 16):
        left = min(count - element, 16)
        power = exp_of_negative(subtract(load_f32_first(out + element * 4, left), shift))
        total = add(total, first_lanes(power, left))
        store_f32_first(out + element * 4, power, left)
    factor = splat_f32(np.float32(1) / reduce_add(total))
    for element in range(0, count, 16):
        left = min(count - element, 16)
        store_f32_first(out + element * 4, multiply(load_f32_first(out + element * 4, left), factor), left)


@inner
def _transform(out: int, count: int, transform: int) -> None:
    if transform == _SOFTMAX:
        _softmax(out, count)
    elif transform == _LOGISTIC:
        for place in range(0, count, 16):
            scores = load_f32_first(out + place * 4, count - place)
            store_f32_first(out + place * 4, sigmoid(scores), count - place)


@inner
def _finish(record: int, row: int, targets: int, sums: int) -> None:
    """A row's label and scores."""
    scores, labels, transform = argument(record, 1), argument(record, 2), argument(record, 15)
    kind, expands = argument(record, 16), argument(record, 18)
    if kind and labels:
        winner = _winner(record, kind, targets, sums)
        write_i64(labels + row * 8, read_i64(argument(record, 8) + winner * 8))
    if scores:
        out = scores + row * targets * 4
        for target in range(targets):
            write_f32(out + target * 4, np.float32(read_f64(sums + target * 8)))
        if expands:
            first = read_f32(out)
            write_f32(out + 4, first)
            write_f32(out, np.float32(1) - first if kind == _FROM_PROBABILITY and transform != _LOGISTIC else -first)
        if targets > 1 and not (expands and transform == _SOFTMAX):
            _transform(out, targets, transform)


@task
def trees(record: int, part: int, parts: int) -> None:
    """Labels and scores.

    Arguments: addresses of x, of the scores and of the labels (0 for none); of nodes, roots, where each node's votes begin,
    votes, what rows start with, the classes' labels; of room for 32 rows of ``targets`` float64 per part; rows, bytes from
    row to row of x, trees, targets; what is done with votes (0: added, 1: averaged, 2: the least, 3: the largest); what
    follows (1: softmax, 2: logistic function); the winner (0: none, 1: the highest, 2: if one score is above the limit,
    3: and scores are probabilities); that score; whether both scores are made of the first; the limit; the kind of nodes
    (0: of four ways; 1: of two, of which what is no number goes the second; 2: the one that a flag says); votes of each leaf
    (-1: one, of the first target, in place of its split; 0: any number, from where a table says; else there is the number of
    its first); address of the flags, 4 bytes for each node.
    """
    x, x_row, targets, aggregate = argument(record, 0), argument(record, 11), argument(record, 13), argument(record, 14)
    rows, sums = argument(record, 10), argument(record, 9) + part * _ROWS * targets * 8
    empty = 0.0
    if aggregate >= _MIN:
        empty = np.inf if aggregate == _MIN else -np.inf
    stop = rows * (part + 1) // parts
    for first in range(rows * part // parts, stop, _ROWS):
        count = min(stop - first, _ROWS)
        for place in range(0, count * targets * 8, 8):
            write_f64(sums + place, empty)
        _walk(record, x + first * x_row, count, sums)
        for row in range(count):
            _together(record, aggregate, targets, sums + row * targets * 8)
            _finish(record, first + row, targets, sums + row * targets * 8)


@inner
def _dot(x: int, y: int, count: int) -> Any:
    total = zero_f32()
    for element in range(0, count, 16):
        left = min(count - element, 16)
        total = fused_multiply_add(load_f32_first(x + element * 4, left), load_f32_first(y + element * 4, left), total)
    return reduce_add(total)


@inner
def _add_up(record: int, x: int, left: int, columns: int, sums: int) -> None:
    """Scores of up to 16 rows: a vector for each.

    Args:
        record: of the task.
        x: the first row.
        left: rows there are.
        columns: working memory of 16 vectors.
        sums: where the scores go.
    """
    features, scores = argument(record, 5), argument(record, 6)
    for score in range(scores):
        store_f32(sums + score * 64, broadcast_f32(argument(record, 4) + score * 4))
    for first in range(0, features, 16):
        count = min(features - first, 16)
        transpose_rows(x + first * 4, argument(record, 11), left, count, columns)
        for score in range(scores):
            factors, total = argument(record, 3) + (score * features + first) * 4, load_f32(sums + score * 64)
            for column in range(count):
                total = fused_multiply_add(load_f32(columns + column * 64), broadcast_f32(factors + column * 4), total)
            store_f32(sums + score * 64, total)


@inner
def _choose(record: int, targets: int, sums: int, chosen: int) -> None:
    """Positions of the winners of 16 rows, as float32."""
    best, found = load_f32(sums), zero_f32()
    if argument(record, 16) >= _DECIDED:
        found = select_less(splat_f32(number(record, 19)), best, splat_f32(np.float32(1)), found)
    else:
        for target in range(1, targets):
            score = load_f32(sums + target * 64)
            found = select_less(best, score, splat_f32(np.float32(target)), found)
            best = select_less(best, score, score, best)
    store_f32(chosen, found)


@inner
def _transform_columns(targets: int, sums: int, transform: int) -> None:
    """As ``_transform``, of 16 rows at a time."""
    if transform == _LOGISTIC:
        for target in range(targets):
            store_f32(sums + target * 64, sigmoid(load_f32(sums + target * 64)))
    elif transform == _SOFTMAX:
        largest, total = load_f32(sums), zero_f32()
        for target in range(1, targets):
            largest = maximum(load_f32(sums + target * 64), largest)
        for target in range(targets):
            power = exp_of_negative(subtract(load_f32(sums + target * 64), largest))
            total = add(total, power)
            store_f32(sums + target * 64, power)
        factor = divide(splat_f32(np.float32(1)), total)
        for target in range(targets):
            store_f32(sums + target * 64, multiply(load_f32(sums + target * 64), factor))


@inner
def _finish_columns(record: int, row: int, left: int, targets: int, sums: int, chosen: int) -> None:
    """Labels and scores of up to 16 rows."""
    scores, labels, transform, expands = argument(record, 1), argument(record, 2), argument(record, 15), argument(record, 18)
    if labels:
        _choose(record, targets, sums, chosen)
        for lane in range(left):
            winner = np.int64(read_f32(chosen + lane * 4))
            write_i64(labels + (row + lane) * 8, read_i64(argument(record, 8) + winner * 8))
    if scores:
        if expands:
            first = load_f32(sums)
            store_f32(sums + 64, first)
            base = zero_f32() if transform == _LOGISTIC else splat_f32(np.float32(1))
            store_f32(sums, subtract(base, first))
        if targets > 1 and not (expands and transform == _SOFTMAX):
            _transform_columns(targets, sums, transform)
        for lane in range(left):
            for target in range(targets):
                write_f32(scores + ((row + lane) * targets + target) * 4, read_f32(sums + target * 64 + lane * 4))


@task
def linear_classifier(record: int, part: int, parts: int) -> None:
    """Labels and scores of products with coefficients.

    Arguments: as for trees, but for coefficients (a row for each score), intercepts, features and scores in place of what is
    said of trees, and room for ``8 * (targets + 17)`` float64 per part.
    """
    x, x_row, targets, features = argument(record, 0), argument(record, 11), argument(record, 13), argument(record, 5)
    rows, sums = argument(record, 10), argument(record, 9) + part * (targets + 17) * 64
    first, stop = rows * part // parts, rows * (part + 1) // parts
    if stop - first >= _FEWEST_COLUMNS:
        chosen, columns = sums + targets * 64, sums + (targets + 1) * 64
        for row in range(first, stop, 16):
            left = min(stop - row, 16)
            _add_up(record, x + row * x_row, left, columns, sums)
            _finish_columns(record, row, left, targets, sums, chosen)
        return
    for row in range(first, stop):
        for score in range(argument(record, 6)):
            value = _dot(x + row * x_row, argument(record, 3) + score * features * 4, features)
            write_f64(sums + score * 8, np.float64(value + read_f32(argument(record, 4) + score * 4)))
        _finish(record, row, targets, sums)
