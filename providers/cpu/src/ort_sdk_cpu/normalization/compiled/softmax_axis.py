"""Softmax of float32 along an axis that others follow: sixteen neighbours of each element at a time, as the lanes of a vector."""

from __future__ import annotations

import numpy as np

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.normalization.arguments.softmax_axis import SoftmaxAxis
from ort_sdk_cpu.simd.arithmetic import add, divide, maximum, multiply, splat_f32, subtract, zero_f32
from ort_sdk_cpu.simd.math import exp_nonpositive
from ort_sdk_cpu.simd.memory import load_f32_masked, store_f32_masked

__all__ = ["softmax_axis"]


@inline
def _columns(x: int, x_stride: int, out: int, out_stride: int, size: int, left: int) -> None:
    # As for rows: shifted by the largest element, powers and their sum, quotients; but nothing crosses lanes.
    largest = splat_f32(np.float32(-np.inf))
    for index in range(size):
        largest = maximum(load_f32_masked(x + index * x_stride, left), largest)
    total = zero_f32()
    for index in range(size):
        power = exp_nonpositive(subtract(load_f32_masked(x + index * x_stride, left), largest))
        total = add(total, power)
        store_f32_masked(out + index * out_stride, power, left)
    factor = divide(splat_f32(np.float32(1)), total)
    for index in range(size):
        power = load_f32_masked(out + index * out_stride, left)
        store_f32_masked(out + index * out_stride, multiply(power, factor), left)


@task
def softmax_axis(args: SoftmaxAxis, thread: int, threads: int) -> None:
    """Softmax along an axis that others follow: each thread has a range of vectors of 16 neighbours along the last axis."""
    # Vectors of neighbours are what threads share. Going down an axis, each takes about one cache line of every row.
    vectors = (args.inner + 15) // 16
    units = args.outer * args.middle * vectors
    for unit in range(units * thread // threads, units * (thread + 1) // threads):
        row, column = unit // vectors, unit % vectors * 16
        outer, middle = row // args.middle, row % args.middle
        x = args.x + outer * args.x_outer_stride + middle * args.x_middle_stride + column * 4
        out = args.out + outer * args.out_outer_stride + middle * args.out_middle_stride + column * 4
        _columns(x, args.x_stride, out, args.out_stride, args.size, args.inner - column)
