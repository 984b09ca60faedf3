"""Softmax of float32 along an axis that others follow: sixteen columns at a time."""

from __future__ import annotations

import numpy as np

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.arithmetic import add, divide, maximum, multiply, splat_f32, subtract, zero_f32
from ort_sdk_cpu.simd.math import exp_of_negative
from ort_sdk_cpu.simd.memory import load_f32_first, store_f32_first

__all__ = ["softmax_columns"]


@inner
def _columns(x: int, x_step: int, out: int, out_step: int, size: int, left: int) -> None:
    largest = splat_f32(np.float32(-np.inf))
    for index in range(size):
        largest = maximum(load_f32_first(x + index * x_step, left), largest)
    total = zero_f32()
    for index in range(size):
        power = exp_of_negative(subtract(load_f32_first(x + index * x_step, left), largest))
        total = add(total, power)
        store_f32_first(out + index * out_step, power, left)
    factor = divide(splat_f32(np.float32(1)), total)
    for index in range(size):
        place = out + index * out_step
        store_f32_first(place, multiply(load_f32_first(place, left), factor), left)


@task
def softmax_columns(record: int, part: int, parts: int) -> None:
    """Softmax of columns.

    Arguments: addresses of x and out; elements of a column, bytes between them in x and in out; sizes of three axes, the last
    of which is contiguous in both; bytes between elements along the first two in x, and in out.
    """
    size, x_step, out_step = argument(record, 2), argument(record, 3), argument(record, 4)
    middle, width = argument(record, 6), argument(record, 7)
    pieces = (width + 15) // 16
    units = argument(record, 5) * middle * pieces
    for unit in range(units * part // parts, units * (part + 1) // parts):
        row, column = unit // pieces, unit % pieces * 16
        first, second = row // middle, row % middle
        x = argument(record, 0) + first * argument(record, 8) + second * argument(record, 9) + column * 4
        out = argument(record, 1) + first * argument(record, 10) + second * argument(record, 11) + column * 4
        _columns(x, x_step, out, out_step, size, width - column)
