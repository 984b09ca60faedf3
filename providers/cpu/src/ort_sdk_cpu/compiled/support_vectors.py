"""Support vector machines over rows of float32: 16 support vectors at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit import inner
from ort_sdk_cpu.machine_code import task
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, multiply, reduce_add, splat_f32, subtract, zero_f32
from ort_sdk_cpu.simd.functions import exp_of_negative, tanh
from ort_sdk_cpu.simd.memory import broadcast_f32, load_f32, store_f32, write_f32
from ort_sdk_cpu.simd.records import argument, number

__all__ = ["machine_scores"]

_POLY, _RBF, _SIGMOID = 1, 2, 3


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
