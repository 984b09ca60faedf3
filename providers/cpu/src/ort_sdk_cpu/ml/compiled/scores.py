"""Labels and scores of rows, which tree ensembles and linear models have in common."""

from __future__ import annotations

import numpy as np

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.ml.arguments.scores import ScoredRows
from ort_sdk_cpu.simd.arithmetic import add, mask_lanes, maximum, multiply, reduce_add, reduce_max, splat_f32, subtract, zero_f32
from ort_sdk_cpu.simd.math import exp_nonpositive, sigmoid
from ort_sdk_cpu.simd.memory import (
    load_f32_masked,
    load_f32_masked_or,
    read_f32,
    read_f64,
    read_i64,
    store_f32_masked,
    write_f32,
    write_i64,
)

__all__ = ["BINARY", "LOGISTIC", "SOFTMAX", "finish_row"]

SOFTMAX, LOGISTIC = 1, 2
"""Values of ``transform``."""
BINARY, _BINARY_PROBABILITY = 2, 3
"""Values of ``decision``: from the first on, one score decides between two classes."""


@inline
def _winner(args: ScoredRows, sums: int) -> int:
    """The class of the highest score, or what the one score decides."""
    # In float64, before scores are rounded to float32, which would make nearly equal ones equal.
    if args.decision >= BINARY:
        return int(read_f64(sums + args.decision_score * 8) > args.limit)
    best = 0
    for target in range(1, args.targets):
        if read_f64(sums + target * 8) > read_f64(sums + best * 8):
            best = target
    return best


@inline
def _softmax(out: int, count: int) -> None:
    # Shifted by the largest score, so that no power overflows.
    largest, total = splat_f32(np.float32(-np.inf)), zero_f32()
    for element in range(0, count, 16):
        largest = maximum(load_f32_masked_or(out + element * 4, min(count - element, 16), largest), largest)
    shift = splat_f32(reduce_max(largest))
    for element in range(0, count, 16):
        left = min(count - element, 16)
        power = exp_nonpositive(subtract(load_f32_masked(out + element * 4, left), shift))
        total = add(total, mask_lanes(power, left))
        store_f32_masked(out + element * 4, power, left)
    factor = splat_f32(np.float32(1) / reduce_add(total))
    for element in range(0, count, 16):
        left = min(count - element, 16)
        store_f32_masked(out + element * 4, multiply(load_f32_masked(out + element * 4, left), factor), left)


@inline
def _transform(out: int, count: int, transform: int) -> None:
    if transform == SOFTMAX:
        _softmax(out, count)
    elif transform == LOGISTIC:
        for element in range(0, count, 16):
            scores = load_f32_masked(out + element * 4, count - element)
            store_f32_masked(out + element * 4, sigmoid(scores), count - element)


@inline
def finish_row(args: ScoredRows, row: int, sums: int) -> None:
    """Write the label and the scores of a row, whose float64 scores are at ``sums``."""
    if args.decision and args.labels:
        winner = _winner(args, sums)
        write_i64(args.labels + row * 8, read_i64(args.classes + winner * 8))
    if args.scores:
        targets, transform = args.targets, args.transform
        out = args.scores + row * targets * 4
        for target in range(targets):
            write_f32(out + target * 4, np.float32(read_f64(sums + target * 8)))
        if args.expands:
            first, is_probability = read_f32(out), args.decision == _BINARY_PROBABILITY and transform != LOGISTIC
            write_f32(out + 4, first)
            write_f32(out, np.float32(1) - first if is_probability else -first)
        # ONNX Runtime leaves one score as it is, and does not take the softmax of two that are made of one.
        if targets > 1 and not (args.expands and transform == SOFTMAX):
            _transform(out, targets, transform)
