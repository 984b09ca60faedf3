"""Support vector machines over rows of float32: scores, 16 support vectors at a time, votes and probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument, number
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, multiply, reduce_add, splat_f32, subtract, zero_f32
from ort_sdk_cpu.simd.math import exp_of_negative, sigmoid, tanh
from ort_sdk_cpu.simd.memory import (
    broadcast_f32,
    load_f32,
    load_f32_first,
    read_f32,
    read_f64,
    read_i64,
    store_f32,
    write_f32,
    write_f64,
    write_i64,
)

__all__ = ["machine"]

_POLY, _RBF, _SIGMOID = 1, 2, 3
_SIGN, _BOTH, _PROBABILITIES = 1, 2, 3
_ROUNDS, _CLOSE, _LEAST = 100, 0.005, 1e-7
_F64 = ir.DoubleType()


@inner
def _values(record: int, x: int, supports: int) -> Any:
    """Kernel values of a row with 16 support vectors."""
    features, step, kind = argument(record, 10), argument(record, 11) * 4, argument(record, 15)
    total = zero_f32()
    for feature in range(features):
        own, other = broadcast_f32(x + feature * 4), load_f32(supports + feature * step)
        if kind == _RBF:
            own = subtract(own, other)
            other = own
        total = fused_multiply_add(own, other, total)
    gamma = splat_f32(number(record, 18))
    if kind == _RBF:
        return exp_of_negative(multiply(total, gamma))
    if kind == _POLY:
        base = fused_multiply_add(total, gamma, splat_f32(number(record, 19)))
        total = base
        for _ in range(1, argument(record, 16)):
            total = multiply(total, base)
    elif kind == _SIGMOID:
        total = tanh(fused_multiply_add(total, gamma, splat_f32(number(record, 19))))
    return total


@inner
def _score(record: int, x: int, values: int, found: int) -> None:
    """Scores of a row: weighted sums of kernel values, and what is added."""
    supports, weights, vectors, scores = argument(record, 3), argument(record, 4), argument(record, 11), argument(record, 12)
    for place in range(0, vectors * 4, 64):
        store_f32(values + place, _values(record, x, supports + place))
    for score in range(scores):
        total = zero_f32()
        for place in range(0, vectors * 4, 64):
            total = fused_multiply_add(load_f32(values + place), load_f32(weights + score * vectors * 4 + place), total)
        own = np.float64(reduce_add(total)) + read_f64(argument(record, 5) + score * 8)
        write_f32(found + score * 4, np.float32(own))


@inner
def _winner(scores: int, classes: int) -> int:
    """The first class of those with the most votes: of each pair, the first has one if the score is above zero."""
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


@inner
def _pairwise(record: int, scores: int, found: int) -> None:
    """How likely the first class of each pair is, beside the second."""
    pairs, slopes = argument(record, 12), argument(record, 7)
    for place in range(0, pairs, 16):
        left = pairs - place
        shift = load_f32_first(slopes + (pairs + place) * 4, left)
        value = fused_multiply_add(load_f32_first(scores + place * 4, left), load_f32_first(slopes + place * 4, left), shift)
        store_f32(found + place * 4, sigmoid(subtract(zero_f32(), value)))


@inner
def _fill(matrix: int, likely: int, classes: int) -> None:
    """The matrix of the products of both likelihoods of each pair, negative, with sums of squares on the diagonal."""
    for place in range(0, classes * classes * 8, 8):
        write_f64(matrix + place, 0.0)
    for first in range(classes):
        for second in range(first + 1, classes):
            share = min(max(np.float64(read_f32(likely)), _LEAST), 1 - _LEAST)
            likely += 4
            write_f64(matrix + (first * classes + second) * 8, -share * (1 - share))
            write_f64(matrix + (second * classes + first) * 8, -share * (1 - share))
            own, other = matrix + first * (classes + 1) * 8, matrix + second * (classes + 1) * 8
            write_f64(own, read_f64(own) + (1 - share) * (1 - share))
            write_f64(other, read_f64(other) + share * share)


@inner
def _product(matrix: int, p: int, qp: int, classes: int) -> float:
    """The matrix times p, and that times p."""
    total = 0.0
    for row in range(classes):
        value = 0.0
        for column in range(classes):
            value += read_f64(matrix + (row * classes + column) * 8) * read_f64(p + column * 8)
        write_f64(qp + row * 8, value)
        total += value * read_f64(p + row * 8)
    return total


@inner
def _improve(matrix: int, p: int, qp: int, total: float, classes: int) -> None:
    """One round: each class in turn."""
    for own in range(classes):
        diagonal, before = read_f64(matrix + own * (classes + 1) * 8), read_f64(qp + own * 8)
        step = (total - before) / diagonal
        write_f64(p + own * 8, read_f64(p + own * 8) + step)
        total = (total + step * (step * diagonal + 2 * before)) / ((1 + step) * (1 + step))
        for other in range(classes):
            moved = read_f64(qp + other * 8) + step * read_f64(matrix + (own * classes + other) * 8)
            write_f64(qp + other * 8, moved / (1 + step))
            write_f64(p + other * 8, read_f64(p + other * 8) / (1 + step))


@inner
def _couple(matrix: int, p: int, qp: int, classes: int) -> None:
    """Probabilities that fit pairwise ones best, by the iteration of Wu, Lin and Weng (2004), as the shared set's."""
    for own in range(classes):
        write_f64(p + own * 8, 1.0 / classes)
    for _ in range(max(_ROUNDS, classes)):
        total, far = _product(matrix, p, qp, classes), 0.0
        for own in range(classes):
            far = max(far, abs(read_f64(qp + own * 8) - total))
        if far < _CLOSE / classes:
            break
        _improve(matrix, p, qp, total, classes)


@inner
def _probabilities(record: int, scores: int, likely: int, out: int) -> None:
    """Probabilities of the classes from a row's pair scores; working memory is behind the pairs' likelihoods."""
    classes = argument(record, 13)
    matrix = likely + (argument(record, 12) + 15) // 16 * 64
    p, qp = matrix + classes * classes * 8, matrix + (classes + 1) * classes * 8
    _pairwise(record, scores, likely)
    _fill(matrix, likely, classes)
    _couple(matrix, p, qp, classes)
    for own in range(classes):
        write_f32(out + own * 4, np.float32(read_f64(p + own * 8)))


@inner
def _finish(record: int, row: int, scores: int, likely: int) -> None:
    """A row's scores as the node gives them."""
    finish, count = argument(record, 17), argument(record, 12)
    if finish == _PROBABILITIES:
        _probabilities(record, scores, likely, argument(record, 1) + row * argument(record, 13) * 4)
    elif finish == _BOTH:
        score = read_f32(scores)
        write_f32(argument(record, 1) + row * 8, -score)
        write_f32(argument(record, 1) + row * 8 + 4, score)
    else:
        for place in range(0, count * 4, 4):
            score = read_f32(scores + place)
            if finish == _SIGN:
                score = np.float32(1) if score > np.float32(0) else np.float32(-1)
            write_f32(argument(record, 1) + row * count * 4 + place, score)


@task
def machine(record: int, part: int, parts: int) -> None:
    """Labels and scores.

    Arguments: addresses of x (rows, features), of the scores and the labels (0 for none), of support vectors (features, vectors),
    weights (scores, vectors), what is added to scores, float64, the classes' labels, slopes and shifts of pairs (2, scores), and
    working memory; rows, features, vectors (a multiple of 16, those that fill it without weight), scores, classes (0 for a
    regressor), bytes of working memory per part: 4 for each vector, twice 4 for each score, whole vectors of 16 each, and for
    probabilities 8 for each of (classes + 2) * classes numbers; the kernel (0: product, 1: power, 2: exponential of the squared
    distance, 3: hyperbolic tangent); the power's exponent, from 1; what scores are given as (0: themselves, 1: their signs,
    2: the one of two classes with its opposite before it, 3: probabilities of classes); gamma (minus gamma for 2), the number
    added to products.
    """
    rows, features, classes = argument(record, 9), argument(record, 10), argument(record, 13)
    values = argument(record, 8) + part * argument(record, 14)
    scores = values + argument(record, 11) * 4
    likely = scores + (argument(record, 12) + 15) // 16 * 64
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        _score(record, argument(record, 0) + row * features * 4, values, scores)
        if classes and argument(record, 2):
            label = argument(record, 6) + _winner(scores, classes) * 8
            write_i64(argument(record, 2) + row * 8, read_i64(label))
        if argument(record, 1):
            _finish(record, row, scores, likely)
