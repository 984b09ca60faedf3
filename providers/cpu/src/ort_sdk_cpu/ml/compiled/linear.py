"""Linear models of float32: products with coefficients, plus intercepts."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.ml.arguments.linear import LinearModel
from ort_sdk_cpu.simd.arithmetic import (
    add,
    divide,
    fused_multiply_add,
    maximum,
    multiply,
    reduce_add,
    select_less,
    splat_f32,
    subtract,
    zero_f32,
)
from ort_sdk_cpu.simd.math import exp_nonpositive, sigmoid
from ort_sdk_cpu.simd.memory import (
    broadcast_f32,
    load_f32,
    load_f32_masked,
    read_f32,
    read_i64,
    store_f32,
    write_f32,
    write_f64,
    write_i64,
)
from ort_sdk_cpu.simd.shuffles import transpose_rows

from .scores import BINARY, LOGISTIC, SOFTMAX, finish_row

__all__ = ["linear"]

_MIN_ROWS = 8
"""Rows from which on each lane computes one of them. Few features then fill vectors, too, and no lanes are added up at the end;
of fewer rows, more than half of each vector would be empty."""


@inline
def _dot(x: int, y: int, count: int) -> Any:
    # Lanes are features here, and are added up at the end: for few rows.
    total = zero_f32()
    for element in range(0, count, 16):
        left = min(count - element, 16)
        total = fused_multiply_add(load_f32_masked(x + element * 4, left), load_f32_masked(y + element * 4, left), total)
    return reduce_add(total)


@inline
def _scores_of_16(args: LinearModel, x: int, left: int, columns: int, sums: int) -> None:
    """Scores of up to 16 rows: a vector for each score.

    Args:
        args: of the task.
        x: the first row.
        left: rows there are.
        columns: workspace of 16 vectors.
        sums: where the scores go.
    """
    features, scores = args.features, args.score_count
    for score in range(scores):
        store_f32(sums + score * 64, broadcast_f32(args.intercepts + score * 4))
    # Sixteen features of the rows are transposed once, for all scores.
    for first in range(0, features, 16):
        count = min(features - first, 16)
        transpose_rows(x + first * 4, args.x_stride, left, count, columns)
        for score in range(scores):
            factors, total = args.coefficients + (score * features + first) * 4, load_f32(sums + score * 64)
            for column in range(count):
                total = fused_multiply_add(load_f32(columns + column * 64), broadcast_f32(factors + column * 4), total)
            store_f32(sums + score * 64, total)


@inline
def _winners_of_16(args: LinearModel, sums: int, winners: int) -> None:
    """Positions of the classes that win in 16 rows, as float32."""
    # Positions as float32, so that both selections have one type: there are fewer classes than 2**24. Of equal scores, the first
    # wins, as in NumPy's argmax.
    best, found = load_f32(sums), zero_f32()
    if args.decision >= BINARY:
        found = select_less(splat_f32(args.limit), best, splat_f32(np.float32(1)), found)
    else:
        for target in range(1, args.targets):
            score = load_f32(sums + target * 64)
            found = select_less(best, score, splat_f32(np.float32(target)), found)
            best = select_less(best, score, score, best)
    store_f32(winners, found)


@inline
def _transform_16(targets: int, sums: int, transform: int) -> None:
    """Transform the scores of 16 rows, in place."""
    if transform == LOGISTIC:
        for target in range(targets):
            store_f32(sums + target * 64, sigmoid(load_f32(sums + target * 64)))
    elif transform == SOFTMAX:
        largest, total = load_f32(sums), zero_f32()
        for target in range(1, targets):
            largest = maximum(load_f32(sums + target * 64), largest)
        for target in range(targets):
            power = exp_nonpositive(subtract(load_f32(sums + target * 64), largest))
            total = add(total, power)
            store_f32(sums + target * 64, power)
        factor = divide(splat_f32(np.float32(1)), total)
        for target in range(targets):
            store_f32(sums + target * 64, multiply(load_f32(sums + target * 64), factor))


@inline
def _finish_16(args: LinearModel, row: int, left: int, sums: int, winners: int) -> None:
    """Labels and scores of up to 16 rows, as ``finish_row`` writes them."""
    targets, transform, expands = args.targets, args.transform, args.expands
    if args.labels:
        _winners_of_16(args, sums, winners)
        for lane in range(left):
            winner = np.int64(read_f32(winners + lane * 4))
            write_i64(args.labels + (row + lane) * 8, read_i64(args.classes + winner * 8))
    if args.scores:
        # Two scores are made of one: p and 1 - p, or x and -x where the logistic function comes after.
        if expands:
            first = load_f32(sums)
            store_f32(sums + 64, first)
            base = zero_f32() if transform == LOGISTIC else splat_f32(np.float32(1))
            store_f32(sums, subtract(base, first))
        if targets > 1 and not (expands and transform == SOFTMAX):
            _transform_16(targets, sums, transform)
        for lane in range(left):
            for target in range(targets):
                write_f32(args.scores + ((row + lane) * targets + target) * 4, read_f32(sums + target * 64 + lane * 4))


@task
def linear(args: LinearModel, thread: int, threads: int) -> None:
    """Labels and scores of products with coefficients; each thread has a range of rows."""
    x, stride, targets, features = args.x, args.x_stride, args.targets, args.features
    rows, sums = args.rows, args.workspace + thread * (targets + 17) * 64
    first, stop = rows * thread // threads, rows * (thread + 1) // threads
    # By the thread's own rows, not all: each thread alone decides what fills its vectors.
    if stop - first >= _MIN_ROWS:
        winners, columns = sums + targets * 64, sums + (targets + 1) * 64
        for row in range(first, stop, 16):
            left = min(stop - row, 16)
            _scores_of_16(args, x + row * stride, left, columns, sums)
            _finish_16(args, row, left, sums, winners)
        return
    for row in range(first, stop):
        for score in range(args.score_count):
            value = _dot(x + row * stride, args.coefficients + score * features * 4, features)
            write_f64(sums + score * 8, np.float64(value + read_f32(args.intercepts + score * 4)))
        finish_row(args, row, sums)
