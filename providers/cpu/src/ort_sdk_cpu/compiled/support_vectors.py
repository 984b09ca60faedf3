"""Support vector machines over rows of float32: 16 support vectors at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from ort_sdk_cpu.jit import inner
from ort_sdk_cpu.machine_code import task
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, multiply, reduce_add, splat_f32, subtract, zero_f32
from ort_sdk_cpu.simd.functions import exp_of_negative, sigmoid, tanh
from ort_sdk_cpu.simd.memory import (
    broadcast_f32,
    load_f32,
    load_f32_first,
    read_f32,
    read_f64,
    store_f32,
    write_f32,
    write_f64,
)
from ort_sdk_cpu.simd.records import argument, number

__all__ = ["class_probabilities", "machine_scores"]

_POLY, _RBF, _SIGMOID = 1, 2, 3
_ROUNDS, _CLOSE, _LEAST = 100, 0.005, 1e-7
_F64 = ir.DoubleType()


@inner
def _values(record: int, x: int, supports: int) -> Any:
    """Kernel values of a row with 16 support vectors."""
    features, step, kind = argument(record, 6), argument(record, 7) * 4, argument(record, 9)
    total = zero_f32()
    for feature in range(features):
        own, other = broadcast_f32(x + feature * 4), load_f32(supports + feature * step)
        if kind == _RBF:
            own = subtract(own, other)
            other = own
        total = fused_multiply_add(own, other, total)
    gamma = splat_f32(number(record, 11))
    if kind == _RBF:
        return exp_of_negative(multiply(total, gamma))
    if kind == _POLY:
        base = fused_multiply_add(total, gamma, splat_f32(number(record, 12)))
        total = base
        for _ in range(1, argument(record, 10)):
            total = multiply(total, base)
    elif kind == _SIGMOID:
        total = tanh(fused_multiply_add(total, gamma, splat_f32(number(record, 12))))
    return total


@task
def machine_scores(record: int, part: int, parts: int) -> None:
    """Weighted sums of kernel values.

    Arguments: addresses of x (rows, features), the scores (rows, scores), support vectors (features, vectors), weights (scores,
    vectors) and working memory, 4 bytes for each vector and part; rows, features, vectors (a multiple of 16, those that fill it
    without weight), scores; the kernel (0: product, 1: power, 2: exponential of the squared distance, 3: hyperbolic tangent);
    the power's exponent, from 1; gamma (minus gamma for 2), the number added to products.
    """
    rows, features, vectors, scores = argument(record, 5), argument(record, 6), argument(record, 7), argument(record, 8)
    values = argument(record, 4) + part * vectors * 4
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        x = argument(record, 0) + row * features * 4
        for place in range(0, vectors * 4, 64):
            store_f32(values + place, _values(record, x, argument(record, 2) + place))
        for score in range(scores):
            weights, total = argument(record, 3) + score * vectors * 4, zero_f32()
            for place in range(0, vectors * 4, 64):
                total = fused_multiply_add(load_f32(values + place), load_f32(weights + place), total)
            write_f32(argument(record, 1) + (row * scores + score) * 4, np.float32(reduce_add(total)))


@inner
def _pairwise(record: int, scores: int, found: int) -> None:
    """How likely the first class of each pair is, beside the second."""
    pairs, slopes = argument(record, 5), argument(record, 1)
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


@task
def class_probabilities(record: int, part: int, parts: int) -> None:
    """Probabilities of classes from pair scores.

    Arguments: addresses of scores (rows, pairs), slopes and shifts (2, pairs), the output (rows, classes) and working memory;
    rows, pairs, classes, bytes of working memory per part.
    """
    rows, classes = argument(record, 4), argument(record, 6)
    matrix = argument(record, 3) + part * argument(record, 7)
    p, qp = matrix + classes * classes * 8, matrix + (classes + 1) * classes * 8
    likely = qp + classes * 8
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        _pairwise(record, argument(record, 0) + row * argument(record, 5) * 4, likely)
        _fill(matrix, likely, classes)
        _couple(matrix, p, qp, classes)
        for own in range(classes):
            write_f32(argument(record, 2) + (row * classes + own) * 4, np.float32(read_f64(p + own * 8)))
