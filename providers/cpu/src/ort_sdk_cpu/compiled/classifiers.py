"""Ensembles of decision trees, and linear classifiers, over rows of float32: labels of the classes that win, and scores.

Trees are walked eight at a time, as each step of a walk waits for the one before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from ort_sdk_cpu.jit import inner
from ort_sdk_cpu.machine_code import task
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
from ort_sdk_cpu.simd.functions import exp_of_negative, sigmoid
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
from ort_sdk_cpu.simd.records import argument, number
from ort_sdk_cpu.simd.rests import first_lanes, load_f32_first_or, select_less
from ort_sdk_cpu.simd.shuffles import transpose_rows

__all__ = ["linear_classifier", "trees"]

_NODE, _LAST, _FEATURE, _SPLIT, _VOTE = 24, 12, 16, 20, 16
"""Bytes of a node, up to its last child, its feature and its split; bytes of a vote."""
_FEWEST_COLUMNS = 8
"""Rows from which a vector holds a number of each of them, for linear classifiers."""
_ROWS = 32
"""Rows for which votes are put together at a time."""
_SUM, _AVERAGE, _MIN = 0, 1, 2
_SOFTMAX, _LOGISTIC = 1, 2
_COMPARED, _DECIDED, _FROM_PROBABILITY = 1, 2, 3
_I64, _F64 = ir.IntType(64), ir.DoubleType()


@inner
def _next(nodes: int, x: int, node: int) -> int:
    """Where a node leads a row; a leaf leads to itself."""
    place = nodes + node * _NODE
    feature, split = read_f32(x + read_i32(place + _FEATURE) * 4), read_f32(place + _SPLIT)
    outcome = int(feature >= split) + int(feature > split) + 3 * int(feature != feature)  # noqa: PLR0124 - not a number
    following: int = read_i32(place + outcome * 4)
    return following


@inner
def _next_of_two(nodes: int, x: int, node: int) -> int:
    """The same where all nodes ask whether a feature is at most the split: if not, or if it is no number, the last child."""
    place = nodes + node * _NODE
    is_less = int(read_f32(x + read_i32(place + _FEATURE) * 4) <= read_f32(place + _SPLIT))
    following: int = read_i32(place + _LAST - is_less * _LAST)
    return following


@inner
def _steps(nodes: int, two_way: bool, xs: Any, at: Any) -> Any:
    if two_way:
        return (
            _next_of_two(nodes, xs[0], at[0]),
            _next_of_two(nodes, xs[1], at[1]),
            _next_of_two(nodes, xs[2], at[2]),
            _next_of_two(nodes, xs[3], at[3]),
            _next_of_two(nodes, xs[4], at[4]),
            _next_of_two(nodes, xs[5], at[5]),
            _next_of_two(nodes, xs[6], at[6]),
            _next_of_two(nodes, xs[7], at[7]),
        )
    return (
        _next(nodes, xs[0], at[0]),
        _next(nodes, xs[1], at[1]),
        _next(nodes, xs[2], at[2]),
        _next(nodes, xs[3], at[3]),
        _next(nodes, xs[4], at[4]),
        _next(nodes, xs[5], at[5]),
        _next(nodes, xs[6], at[6]),
        _next(nodes, xs[7], at[7]),
    )


@inner
def _leaves(nodes: int, two_way: bool, xs: Any, at: Any) -> Any:
    """Where eight walks end; looked at after every second step."""
    before = at
    at = _steps(nodes, two_way, xs, _steps(nodes, two_way, xs, at))
    while at != before:
        before = at
        at = _steps(nodes, two_way, xs, _steps(nodes, two_way, xs, at))
    return at


@inner
def _put(vote_starts: int, votes: int, leaf: int, aggregate: int, sums: int) -> None:
    """Add a leaf's votes, or keep the least or the largest."""
    for vote in range(read_i32(vote_starts + leaf * 4), read_i32(vote_starts + leaf * 4 + 4)):
        place = sums + read_i32(votes + vote * _VOTE) * 8
        before, weight = read_f64(place), read_f64(votes + vote * _VOTE + 8)
        if aggregate <= _AVERAGE:
            write_f64(place, before + weight)
        elif aggregate == _MIN:
            write_f64(place, min(before, weight))
        else:
            write_f64(place, max(before, weight))


@inner
def _row(record: int, x: int, rows: int, job: int) -> int:
    found: int = x + job % rows * argument(record, 11)
    return found


@inner
def _root(record: int, rows: int, job: int) -> int:
    found: int = read_i32(argument(record, 4) + job // rows * 4)
    return found


@inner
def _walk(record: int, x: int, rows: int, aggregate: int, sums: int) -> None:
    """The votes of all trees for some rows: eight walks at a time, of rows in one tree, or of trees for few rows."""
    nodes, starts, votes, two_way = argument(record, 3), argument(record, 5), argument(record, 6), argument(record, 20) != 0
    count, targets = argument(record, 12) * rows, argument(record, 13)
    for job in range(0, count, 8):
        a, b, c, d = job, min(job + 1, count - 1), min(job + 2, count - 1), min(job + 3, count - 1)
        e, f, g, h = min(job + 4, count - 1), min(job + 5, count - 1), min(job + 6, count - 1), min(job + 7, count - 1)
        xs = (
            _row(record, x, rows, a),
            _row(record, x, rows, b),
            _row(record, x, rows, c),
            _row(record, x, rows, d),
            _row(record, x, rows, e),
            _row(record, x, rows, f),
            _row(record, x, rows, g),
            _row(record, x, rows, h),
        )
        roots = (
            _root(record, rows, a),
            _root(record, rows, b),
            _root(record, rows, c),
            _root(record, rows, d),
            _root(record, rows, e),
            _root(record, rows, f),
            _root(record, rows, g),
            _root(record, rows, h),
        )
        leaves = _leaves(nodes, two_way, xs, roots)
        for lane in range(min(8, count - job)):
            _put(starts, votes, leaves[lane], aggregate, sums + (job + lane) % rows * targets * 8)


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
    3: and scores are probabilities); that score; whether both scores are made of the first; the limit; whether all nodes ask
    whether a feature is at most the split, and have but a first and a last child.
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
        _walk(record, x + first * x_row, count, aggregate, sums)
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
