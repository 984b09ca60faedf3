"""Functions of each element: (x, out, count) float32, and (x, bias, out, rows, width) with a vector added to each row first."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd import math
from ort_sdk_cpu.simd.arguments import argument, number
from ort_sdk_cpu.simd.arithmetic import add, fused_multiply_add, maximum, minimum, multiply, splat_f32, zero_f32
from ort_sdk_cpu.simd.memory import load_f32, load_f32_first, store_f32, store_f32_first

__all__ = [
    "add_rows",
    "bias_fast_gelu",
    "bias_gelu",
    "clip",
    "erf",
    "exp",
    "fast_gelu",
    "gelu",
    "hard_swish",
    "multiply_rows",
    "quick_gelu_rows",
    "sigmoid",
    "silu",
    "tanh",
]

_SIXTH, _HALF, _ONE = np.float32(1 / 6), np.float32(0.5), np.float32(1)


@inner
def _each(function: Any, record: int, part: int, parts: int) -> None:
    x, out, count = argument(record, 0), argument(record, 1), argument(record, 2)
    vectors = count // 16
    start, stop = vectors * part // parts, vectors * (part + 1) // parts
    for place in range(start * 64, stop * 64, 64):
        store_f32(out + place, function(load_f32(x + place)))
    rest = count - vectors * 16
    if part == parts - 1 and rest:
        place = vectors * 64
        store_f32_first(out + place, function(load_f32_first(x + place, rest)), rest)


@inner
def _each_biased(function: Any, record: int, part: int, parts: int) -> None:
    rows, width = argument(record, 3), argument(record, 4)
    bias = argument(record, 1)
    whole = width // 16 * 16
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        x, out = argument(record, 0) + row * width * 4, argument(record, 2) + row * width * 4
        for place in range(0, whole * 4, 64):
            store_f32(out + place, function(add(load_f32(x + place), load_f32(bias + place))))
        rest = width - whole
        if rest:
            place = whole * 4
            value = add(load_f32_first(x + place, rest), load_f32_first(bias + place, rest))
            store_f32_first(out + place, function(value), rest)


@task
def exp(record: int, part: int, parts: int) -> None:
    """Exponential."""
    _each(math.exp, record, part, parts)


@task
def tanh(record: int, part: int, parts: int) -> None:
    """Hyperbolic tangent."""
    _each(math.tanh, record, part, parts)


@task
def sigmoid(record: int, part: int, parts: int) -> None:
    """1 / (1 + exp(-x))."""
    _each(math.sigmoid, record, part, parts)


@task
def erf(record: int, part: int, parts: int) -> None:
    """Error function."""
    _each(math.erf, record, part, parts)


@task
def gelu(record: int, part: int, parts: int) -> None:
    """X * (1 + erf(x / sqrt 2)) / 2."""
    _each(math.gelu, record, part, parts)


@task
def fast_gelu(record: int, part: int, parts: int) -> None:
    """Gelu approximated with tanh."""
    _each(math.fast_gelu, record, part, parts)


@task
def bias_gelu(record: int, part: int, parts: int) -> None:
    """Gelu of x + bias."""
    _each_biased(math.gelu, record, part, parts)


@task
def bias_fast_gelu(record: int, part: int, parts: int) -> None:
    """The approximated Gelu of x + bias."""
    _each_biased(math.fast_gelu, record, part, parts)


@inner
def _hard_swish(x: Any) -> Any:
    share = fused_multiply_add(x, splat_f32(_SIXTH), splat_f32(_HALF))
    return multiply(x, maximum(minimum(share, splat_f32(_ONE)), zero_f32()))


@task
def hard_swish(record: int, part: int, parts: int) -> None:
    """X * max(0, min(1, x / 6 + 1 / 2))."""
    _each(_hard_swish, record, part, parts)


@task
def clip(record: int, part: int, parts: int) -> None:
    """Bounded by the fourth and fifth argument; NaN stays."""
    x, out, count = argument(record, 0), argument(record, 1), argument(record, 2)
    low, high = splat_f32(number(record, 3)), splat_f32(number(record, 4))
    for vector in range((count + 15) // 16 * part // parts, (count + 15) // 16 * (part + 1) // parts):
        place, rest = vector * 64, count - vector * 16
        store_f32_first(out + place, minimum(high, maximum(low, load_f32_first(x + place, rest))), rest)


@task
def silu(record: int, part: int, parts: int) -> None:
    """X * sigmoid(slope * x); the slope is the fourth argument."""
    x, out, count, slope = argument(record, 0), argument(record, 1), argument(record, 2), number(record, 3)
    for vector in range((count + 15) // 16 * part // parts, (count + 15) // 16 * (part + 1) // parts):
        place, rest = vector * 64, count - vector * 16
        store_f32_first(out + place, math.silu(load_f32_first(x + place, rest), slope), rest)


@task
def quick_gelu_rows(record: int, part: int, parts: int) -> None:
    """Numbers times the sigmoid of them and a factor: (x, out, rows, width, factor)."""
    rows, width, factor = argument(record, 2), argument(record, 3), splat_f32(number(record, 4))
    size = width * 4
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        x, out = argument(record, 0) + row * size, argument(record, 1) + row * size
        for element in range(0, width, 16):
            value = load_f32_first(x + element * 4, width - element)
            gate = math.sigmoid(multiply(value, factor))
            store_f32_first(out + element * 4, multiply(value, gate), width - element)


@inner
def _both(function: Any, record: int, part: int, parts: int) -> None:
    rows, size = argument(record, 3), argument(record, 4) * 4
    start, stop = rows * part // parts * size, rows * (part + 1) // parts * size
    x, y, out = argument(record, 0), argument(record, 1), argument(record, 2)
    for place in range(start, stop, 64):
        left = (stop - place) // 4
        store_f32_first(out + place, function(load_f32_first(x + place, left), load_f32_first(y + place, left)), left)


@task
def add_rows(record: int, part: int, parts: int) -> None:
    """Sums of two arrays: (x, y, out, rows, width)."""
    _both(add, record, part, parts)


@task
def multiply_rows(record: int, part: int, parts: int) -> None:
    """Products of two arrays: (x, y, out, rows, width)."""
    _both(multiply, record, part, parts)
