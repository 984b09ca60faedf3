"""Functions of each element of float32, and of the sums of each row with a bias."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.elementwise.arguments.functions import BiasActivation, BinaryRows, Clip, QuickGeluRows, Silu, Unary
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.simd import math
from ort_sdk_cpu.simd.arithmetic import add, fused_multiply_add, maximum, minimum, multiply, splat_f32, zero_f32
from ort_sdk_cpu.simd.memory import load_f32, load_f32_masked, store_f32, store_f32_masked

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


@inline
def _unary(function: Any, args: Unary, thread: int, threads: int) -> None:
    # The remainder comes after the loop, and once for all threads, so that the loop has no masks.
    vectors = args.count // 16
    start, stop = vectors * thread // threads, vectors * (thread + 1) // threads
    for offset in range(start * 64, stop * 64, 64):
        store_f32(args.out + offset, function(load_f32(args.x + offset)))
    left = args.count - vectors * 16
    if thread == threads - 1 and left:
        offset = vectors * 64
        store_f32_masked(args.out + offset, function(load_f32_masked(args.x + offset, left)), left)


@inline
def _biased(function: Any, args: BiasActivation, thread: int, threads: int) -> None:
    # The sum is never stored: read and written once, where an addition and a function would do so twice.
    rows, width, bias = args.rows, args.width, args.bias
    whole = width // 16 * 64
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        x, out = args.x + row * width * 4, args.out + row * width * 4
        for offset in range(0, whole, 64):
            store_f32(out + offset, function(add(load_f32(x + offset), load_f32(bias + offset))))
        left = width % 16
        if left:
            value = add(load_f32_masked(x + whole, left), load_f32_masked(bias + whole, left))
            store_f32_masked(out + whole, function(value), left)


@task
def exp(args: Unary, thread: int, threads: int) -> None:
    """Exponential; each thread has a range of vectors, as in all tasks of ``Unary``."""
    _unary(math.exp, args, thread, threads)


@task
def tanh(args: Unary, thread: int, threads: int) -> None:
    """Hyperbolic tangent."""
    _unary(math.tanh, args, thread, threads)


@task
def sigmoid(args: Unary, thread: int, threads: int) -> None:
    """1 / (1 + exp(-x))."""
    _unary(math.sigmoid, args, thread, threads)


@task
def erf(args: Unary, thread: int, threads: int) -> None:
    """Error function."""
    _unary(math.erf, args, thread, threads)


@task
def gelu(args: Unary, thread: int, threads: int) -> None:
    """Gelu, x * (1 + erf(x / sqrt 2)) / 2 (Hendrycks & Gimpel 2016)."""
    _unary(math.gelu, args, thread, threads)


@task
def fast_gelu(args: Unary, thread: int, threads: int) -> None:
    """Gelu approximated with tanh, from the same paper."""
    _unary(math.fast_gelu, args, thread, threads)


@task
def bias_gelu(args: BiasActivation, thread: int, threads: int) -> None:
    """Gelu of x + bias; each thread has a range of rows."""
    _biased(math.gelu, args, thread, threads)


@task
def bias_fast_gelu(args: BiasActivation, thread: int, threads: int) -> None:
    """Gelu of x + bias, approximated with tanh; each thread has a range of rows."""
    _biased(math.fast_gelu, args, thread, threads)


@inline
def _hard_swish(x: Any) -> Any:
    gate = fused_multiply_add(x, splat_f32(_SIXTH), splat_f32(_HALF))
    return multiply(x, maximum(minimum(gate, splat_f32(_ONE)), zero_f32()))


@task
def hard_swish(args: Unary, thread: int, threads: int) -> None:
    """HardSwish, x * max(0, min(1, x / 6 + 1 / 2)) (Howard et al. 2019)."""
    _unary(_hard_swish, args, thread, threads)


@task
def clip(args: Clip, thread: int, threads: int) -> None:
    """Elements bounded from below and above; NaN stays NaN."""
    low, high, vectors = splat_f32(args.low), splat_f32(args.high), (args.count + 15) // 16
    for vector in range(vectors * thread // threads, vectors * (thread + 1) // threads):
        offset, left = vector * 64, args.count - vector * 16
        # ``maximum`` and ``minimum`` give their second operand where one is NaN: x stands there both times.
        store_f32_masked(args.out + offset, minimum(high, maximum(low, load_f32_masked(args.x + offset, left))), left)


@task
def silu(args: Silu, thread: int, threads: int) -> None:
    """Swish, x * sigmoid(alpha * x) (Ramachandran et al. 2017); SiLU and QuickGelu are Swish for one alpha each."""
    vectors = (args.count + 15) // 16
    for vector in range(vectors * thread // threads, vectors * (thread + 1) // threads):
        offset, left = vector * 64, args.count - vector * 16
        store_f32_masked(args.out + offset, math.silu(load_f32_masked(args.x + offset, left), args.alpha), left)


@task
def quick_gelu_rows(args: QuickGeluRows, thread: int, threads: int) -> None:
    """QuickGelu, x * sigmoid(alpha * x); each thread has a range of rows."""
    # By rows, though it is of elements, for the same reason as the functions of two arrays below.
    rows, width, alpha = args.rows, args.width, splat_f32(args.alpha)
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        x, out = args.x + row * width * 4, args.out + row * width * 4
        for element in range(0, width, 16):
            value = load_f32_masked(x + element * 4, width - element)
            gate = math.sigmoid(multiply(value, alpha))
            store_f32_masked(out + element * 4, multiply(value, gate), width - element)


@inline
def _binary(function: Any, args: BinaryRows, thread: int, threads: int) -> None:
    # A range of whole rows, though rows do not matter here: the thread that made a row with the task before goes on with it, so
    # that a sequence needs no barrier between.
    row_bytes = args.width * 4
    start, stop = args.rows * thread // threads * row_bytes, args.rows * (thread + 1) // threads * row_bytes
    for offset in range(start, stop, 64):
        left = (stop - offset) // 4
        value = function(load_f32_masked(args.x + offset, left), load_f32_masked(args.y + offset, left))
        store_f32_masked(args.out + offset, value, left)


@task
def add_rows(args: BinaryRows, thread: int, threads: int) -> None:
    """Sums of two arrays; each thread has a range of rows."""
    _binary(add, args, thread, threads)


@task
def multiply_rows(args: BinaryRows, thread: int, threads: int) -> None:
    """Products of two arrays, element by element; each thread has a range of rows."""
    _binary(multiply, args, thread, threads)
