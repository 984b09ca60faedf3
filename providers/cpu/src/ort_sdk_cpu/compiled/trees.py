"""Ensembles of decision trees over rows of float32: four trees are walked at a time, as each step waits for the one before."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit import inner
from ort_sdk_cpu.machine_code import task
from ort_sdk_cpu.simd.arithmetic import add, maximum, multiply, reduce_add, reduce_max, splat_f32, subtract, zero_f32
from ort_sdk_cpu.simd.functions import exp_of_negative, sigmoid
from ort_sdk_cpu.simd.memory import (
    emit_load,
    emit_store,
    load_f32_first,
    read_f32,
    store_f32_first,
    write_f32,
    write_i64,
)
from ort_sdk_cpu.simd.records import argument, number
from ort_sdk_cpu.simd.rests import first_lanes, load_f32_first_or
from ort_sdk_cpu.simd.vector_types import I32, operation

__all__ = ["trees"]

_NODE, _FEATURE, _SPLIT, _VOTE = 24, 16, 20, 16
"""Bytes of a node, up to its feature and its split; bytes of a vote."""
_SUM, _AVERAGE, _MIN = 0, 1, 2
_SOFTMAX, _LOGISTIC = 1, 2
_COMPARED, _DECIDED, _FROM_PROBABILITY = 1, 2, 3
_I64, _F64 = ir.IntType(64), ir.DoubleType()


@operation(types.intp, types.intp)
def _read_i32(builder: Any, address: Any) -> Any:
    return builder.sext(emit_load(builder, address, I32), _I64)


@operation(types.intp, types.intp)
def _read_i64(builder: Any, address: Any) -> Any:
    return emit_load(builder, address, _I64)


@operation(types.float64, types.intp)
def _read_f64(builder: Any, address: Any) -> Any:
    return emit_load(builder, address, _F64)


@operation(types.none, types.intp, types.float64)
def _write_f64(builder: Any, address: Any, value: Any) -> None:
    emit_store(builder, address, value)


@inner
def _next(nodes: int, x: int, node: int) -> int:
    """Where a node leads a row; a leaf leads to itself."""
    place = nodes + node * _NODE
    feature, split = read_f32(x + _read_i32(place + _FEATURE) * 4), read_f32(place + _SPLIT)
    outcome = int(feature >= split) + int(feature > split) + 3 * int(feature != feature)  # noqa: PLR0124 - not a number
    following: int = _read_i32(place + outcome * 4)
    return following


@inner
def _put(vote_starts: int, votes: int, leaf: int, aggregate: int, sums: int) -> None:
    """Add a leaf's votes, or keep the least or the largest."""
    for vote in range(_read_i32(vote_starts + leaf * 4), _read_i32(vote_starts + leaf * 4 + 4)):
        place = sums + _read_i32(votes + vote * _VOTE) * 8
        before, weight = _read_f64(place), _read_f64(votes + vote * _VOTE + 8)
        if aggregate <= _AVERAGE:
            _write_f64(place, before + weight)
        elif aggregate == _MIN:
            _write_f64(place, min(before, weight))
        else:
            _write_f64(place, max(before, weight))


@inner
def _walk(record: int, x: int, aggregate: int, sums: int) -> None:
    """The votes of all trees for a row."""
    nodes, roots, starts, votes = argument(record, 3), argument(record, 4), argument(record, 5), argument(record, 6)
    count = argument(record, 12)
    for tree in range(0, count, 4):
        last = count - 1
        first, second = _read_i32(roots + tree * 4), _read_i32(roots + min(tree + 1, last) * 4)
        third, fourth = _read_i32(roots + min(tree + 2, last) * 4), _read_i32(roots + min(tree + 3, last) * 4)
        goes_on = True
        while goes_on:
            before = (first, second, third, fourth)
            first, second = _next(nodes, x, first), _next(nodes, x, second)
            third, fourth = _next(nodes, x, third), _next(nodes, x, fourth)
            goes_on = (first, second, third, fourth) != before
        _put(starts, votes, first, aggregate, sums)
        if tree + 1 < count:
            _put(starts, votes, second, aggregate, sums)
        if tree + 2 < count:
            _put(starts, votes, third, aggregate, sums)
        if tree + 3 < count:
            _put(starts, votes, fourth, aggregate, sums)


@inner
def _together(record: int, aggregate: int, targets: int, sums: int) -> None:
    """What the votes come to, with what each row starts with."""
    base = argument(record, 7)
    for target in range(targets):
        value = _read_f64(sums + target * 8)
        if aggregate == _AVERAGE:
            value /= argument(record, 12)
        elif aggregate >= _MIN and np.isinf(value):
            value = 0.0
        _write_f64(sums + target * 8, value + _read_f64(base + target * 8))


@inner
def _winner(record: int, kind: int, targets: int, sums: int) -> int:
    """The class of the highest score, or what the one score decides."""
    if kind >= _DECIDED:
        return int(_read_f64(sums + argument(record, 17) * 8) > number(record, 19))
    best = 0
    for target in range(1, targets):
        if _read_f64(sums + target * 8) > _read_f64(sums + best * 8):
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


@task
def trees(record: int, part: int, parts: int) -> None:
    """Labels and scores.

    Arguments: addresses of x, of the scores and of the labels (0 for none); of nodes, roots, where each node's votes begin,
    votes, what rows start with, the classes' labels; of room for ``targets`` float64 per part; rows, bytes from row to row of
    x, trees, targets; what is done with votes (0: added, 1: averaged, 2: the least, 3: the largest); what follows (1: softmax,
    2: logistic function); the winner (0: none, 1: the highest, 2: if one score is above the limit, 3: and scores are
    probabilities); that score; whether both scores are made of the first; the limit.
    """
    x, scores, labels = argument(record, 0), argument(record, 1), argument(record, 2)
    rows, x_row, targets, aggregate = argument(record, 10), argument(record, 11), argument(record, 13), argument(record, 14)
    transform, kind, expands = argument(record, 15), argument(record, 16), argument(record, 18)
    sums = argument(record, 9) + part * targets * 8
    empty = 0.0
    if aggregate >= _MIN:
        empty = np.inf if aggregate == _MIN else -np.inf
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        for target in range(targets):
            _write_f64(sums + target * 8, empty)
        _walk(record, x + row * x_row, aggregate, sums)
        _together(record, aggregate, targets, sums)
        if kind and labels:
            winner = _winner(record, kind, targets, sums)
            write_i64(labels + row * 8, _read_i64(argument(record, 8) + winner * 8))
        if scores:
            out = scores + row * targets * 4
            for target in range(targets):
                write_f32(out + target * 4, np.float32(_read_f64(sums + target * 8)))
            if expands:
                first = read_f32(out)
                write_f32(out + 4, first)
                other = np.float32(1) - first if kind == _FROM_PROBABILITY and transform != _LOGISTIC else -first
                write_f32(out, other)
            if targets > 1 and not (expands and transform == _SOFTMAX):
                _transform(out, targets, transform)
