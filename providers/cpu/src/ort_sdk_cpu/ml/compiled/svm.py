"""Support vector machines over rows of float32: scores, votes of pairs of classes, and probabilities.

Kernel values are computed for 16 support vectors at a time, which are packed by features for that: each feature of a row meets a
vector of them. Machines are LIBSVM's (Chang & Lin 2011), one against one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.ml.arguments.svm import SupportVectorMachine
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, multiply, reduce_add, splat_f32, subtract, zero_f32
from ort_sdk_cpu.simd.math import exp_nonpositive, sigmoid, tanh
from ort_sdk_cpu.simd.memory import (
    broadcast_f32,
    load_f32,
    load_f32_masked,
    read_f32,
    read_f64,
    read_i64,
    store_f32,
    write_f32,
    write_f64,
    write_i64,
)

__all__ = ["svm"]

_POLY, _RBF, _SIGMOID = 1, 2, 3
"""Values of ``kernel``."""
_SIGN, _BINARY, _PROBABILITIES = 1, 2, 3
"""Values of ``output``."""
_MAX_ITERATIONS, _TOLERANCE, _MIN_PROBABILITY = 100, 0.005, 1e-7
"""LIBSVM's ``max_iter``, ``eps`` (over the number of classes) and ``min_prob``."""


@inline
def _kernel_values(args: SupportVectorMachine, x: int, supports: int) -> Any:
    """Kernel values of a row with 16 support vectors."""
    # The sum runs over features, with one lane for each support vector: nothing is added across lanes. The kernel is the same for
    # all vectors, so that its tests are predicted.
    stride, kind = args.vectors * 4, args.kernel
    total = zero_f32()
    for feature in range(args.features):
        own, other = broadcast_f32(x + feature * 4), load_f32(supports + feature * stride)
        if kind == _RBF:
            own = subtract(own, other)
            other = own
        total = fused_multiply_add(own, other, total)
    gamma = splat_f32(args.gamma)
    if kind == _RBF:
        return exp_nonpositive(multiply(total, gamma))
    if kind == _POLY:
        base = fused_multiply_add(total, gamma, splat_f32(args.coefficient))
        total = base
        for _ in range(1, args.degree):
            total = multiply(total, base)
    elif kind == _SIGMOID:
        total = tanh(fused_multiply_add(total, gamma, splat_f32(args.coefficient)))
    return total


@inline
def _score(args: SupportVectorMachine, x: int, values: int, scores: int) -> None:
    """Scores of a row: weighted sums of kernel values, plus rho."""
    # The kernel values are kept: each is weighted anew for every pair of classes.
    row_bytes = args.vectors * 4
    for offset in range(0, row_bytes, 64):
        store_f32(values + offset, _kernel_values(args, x, args.supports + offset))
    for score in range(args.score_count):
        total = zero_f32()
        for offset in range(0, row_bytes, 64):
            total = fused_multiply_add(load_f32(values + offset), load_f32(args.weights + score * row_bytes + offset), total)
        own = np.float64(reduce_add(total)) + read_f64(args.rho + score * 8)
        write_f32(scores + score * 4, np.float32(own))


@inline
def _winner(scores: int, classes: int) -> int:
    """The first class of those with the most votes: of each pair, the first has one if the score is above zero."""
    # Votes are counted anew for each class, from the scores of its pairs: an array of votes would need workspace.
    best, most = 0, -1
    for own in range(classes):
        votes = 0
        for other in range(classes):
            first, second = min(own, other), max(own, other)
            if first != second:
                pair = first * (2 * classes - first - 1) // 2 + second - first - 1
                votes += int((read_f32(scores + pair * 4) > np.float32(0)) == (own == first))
        if votes > most:
            best, most = own, votes
    return best


@inline
def _pairwise(args: SupportVectorMachine, scores: int, out: int) -> None:
    """Probabilities of the first class of each pair against the second, by logistic functions of scores (Platt 1999)."""
    pairs, slopes = args.score_count, args.coupling
    for pair in range(0, pairs, 16):
        left = pairs - pair
        shift = load_f32_masked(slopes + (pairs + pair) * 4, left)
        value = fused_multiply_add(load_f32_masked(scores + pair * 4, left), load_f32_masked(slopes + pair * 4, left), shift)
        store_f32(out + pair * 4, sigmoid(subtract(zero_f32(), value)))


@inline
def _fill(matrix: int, pairwise: int, classes: int) -> None:
    """The matrix Q of Wu, Lin and Weng: minus the product of both probabilities of each pair, sums of squares on the diagonal."""
    for offset in range(0, classes * classes * 8, 8):
        write_f64(matrix + offset, 0.0)
    for first in range(classes):
        for second in range(first + 1, classes):
            share = min(max(np.float64(read_f32(pairwise)), _MIN_PROBABILITY), 1 - _MIN_PROBABILITY)
            pairwise += 4
            write_f64(matrix + (first * classes + second) * 8, -share * (1 - share))
            write_f64(matrix + (second * classes + first) * 8, -share * (1 - share))
            own, other = matrix + first * (classes + 1) * 8, matrix + second * (classes + 1) * 8
            write_f64(own, read_f64(own) + (1 - share) * (1 - share))
            write_f64(other, read_f64(other) + share * share)


@inline
def _quadratic_form(matrix: int, p: int, qp: int, classes: int) -> float:
    """Q p, which is written, and p Q p."""
    total = 0.0
    for row in range(classes):
        value = 0.0
        for column in range(classes):
            value += read_f64(matrix + (row * classes + column) * 8) * read_f64(p + column * 8)
        write_f64(qp + row * 8, value)
        total += value * read_f64(p + row * 8)
    return total


@inline
def _iterate(matrix: int, p: int, qp: int, total: float, classes: int) -> None:
    """One iteration: each class in turn."""
    # Each class moves to where its own equation holds, and all are divided by the new sum. Q p is kept up to date, so that a step
    # takes as many operations as there are classes.
    for own in range(classes):
        diagonal, before = read_f64(matrix + own * (classes + 1) * 8), read_f64(qp + own * 8)
        step = (total - before) / diagonal
        write_f64(p + own * 8, read_f64(p + own * 8) + step)
        total = (total + step * (step * diagonal + 2 * before)) / ((1 + step) * (1 + step))
        for other in range(classes):
            moved = read_f64(qp + other * 8) + step * read_f64(matrix + (own * classes + other) * 8)
            write_f64(qp + other * 8, moved / (1 + step))
            write_f64(p + other * 8, read_f64(p + other * 8) / (1 + step))


@inline
def _couple(matrix: int, p: int, qp: int, classes: int) -> None:
    """Probabilities that fit pairwise ones best, by the iteration of Wu, Lin and Weng (2004)."""
    # In float64, and with LIBSVM's bounds: how far the iteration goes is part of a model's results.
    for own in range(classes):
        write_f64(p + own * 8, 1.0 / classes)
    for _ in range(max(_MAX_ITERATIONS, classes)):
        total, far = _quadratic_form(matrix, p, qp, classes), 0.0
        for own in range(classes):
            far = max(far, abs(read_f64(qp + own * 8) - total))
        if far < _TOLERANCE / classes:
            break
        _iterate(matrix, p, qp, total, classes)


@inline
def _probabilities(args: SupportVectorMachine, scores: int, pairwise: int, out: int) -> None:
    """Probabilities of the classes from a row's pair scores; Q, p and Q p are behind the pairwise probabilities."""
    classes = args.classes
    matrix = pairwise + (args.score_count + 15) // 16 * 64
    p, qp = matrix + classes * classes * 8, matrix + (classes + 1) * classes * 8
    _pairwise(args, scores, pairwise)
    _fill(matrix, pairwise, classes)
    _couple(matrix, p, qp, classes)
    for own in range(classes):
        write_f32(out + own * 4, np.float32(read_f64(p + own * 8)))


@inline
def _finish(args: SupportVectorMachine, row: int, scores: int, pairwise: int) -> None:
    """Write a row's scores as the node gives them."""
    output, count = args.output, args.score_count
    if output == _PROBABILITIES:
        _probabilities(args, scores, pairwise, args.scores + row * args.classes * 4)
    elif output == _BINARY:
        score = read_f32(scores)
        write_f32(args.scores + row * 8, -score)
        write_f32(args.scores + row * 8 + 4, score)
    else:
        for index in range(count):
            score = read_f32(scores + index * 4)
            if output == _SIGN:
                score = np.float32(1) if score > np.float32(0) else np.float32(-1)
            write_f32(args.scores + (row * count + index) * 4, score)


@task
def svm(args: SupportVectorMachine, thread: int, threads: int) -> None:
    """Labels and scores; each thread has a range of rows."""
    # Rows are shared, not support vectors: threads that shared those would have to add their scores up for each row.
    rows, features, classes = args.rows, args.features, args.classes
    values = args.workspace + thread * args.workspace_bytes
    scores = values + args.vectors * 4
    pairwise = scores + (args.score_count + 15) // 16 * 64
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        _score(args, args.x + row * features * 4, values, scores)
        if classes and args.labels:
            write_i64(args.labels + row * 8, read_i64(args.class_labels + _winner(scores, classes) * 8))
        if args.scores:
            _finish(args, row, scores, pairwise)
