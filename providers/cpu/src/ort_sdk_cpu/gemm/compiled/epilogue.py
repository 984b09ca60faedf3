"""Epilogue of a GEMM: ``f(alpha * C + beta * D)``, on blocks of the result."""

from __future__ import annotations

import numpy as np

from ort_sdk_cpu.gemm.arguments.sgemm import Gemm
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.kernel.microkernels.activation_codes import ActivationKind
from ort_sdk_cpu.simd import math
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, maximum, minimum, multiply, splat_f32, zero_f32
from ort_sdk_cpu.simd.memory import load_f32_masked, store_f32_masked

__all__ = ["apply_epilogue"]

_LEAKY_RELU, _SIGMOID = int(ActivationKind.LEAKY_RELU), int(ActivationKind.SIGMOID)
_TANH, _GELU = int(ActivationKind.TANH), int(ActivationKind.GELU)


@inline
def _apply(args: Gemm, c: int, rows: int, columns: int, d: int) -> None:
    """Function of alpha * C + beta * D, in place."""
    alpha, beta, slope, activation = splat_f32(args.alpha), splat_f32(args.beta), splat_f32(args.slope), args.activation
    ldc, ldd = args.ldc, args.ldd
    for row in range(rows):
        place = c + row * ldc
        for column in range(0, columns, 16):
            left = columns - column
            value = multiply(load_f32_masked(place + column * 4, left), alpha)
            if d:
                value = fused_multiply_add(load_f32_masked(d + row * ldd + column * 4, left), beta, value)
            # One loop for all functions: the branch goes the same way each time, which processors foresee.
            if activation == _LEAKY_RELU:
                value = fused_multiply_add(minimum(value, zero_f32()), slope, maximum(value, zero_f32()))
            elif activation == _SIGMOID:
                value = math.sigmoid(value)
            elif activation == _TANH:
                value = math.tanh(value)
            elif activation == _GELU:
                value = math.gelu(value)
            store_f32_masked(place + column * 4, value, left)


@inline
def apply_epilogue(args: Gemm, batch: int, first_row: int, rows: int, first: int, columns: int) -> None:
    """The epilogue of some rows and columns of one matrix of the batch."""
    d = args.d
    if d:
        d += first_row * args.ldd + first * 4
    # Most GEMMs have none: then C is not read again.
    if d or args.activation or args.alpha != np.float32(1):
        _apply(args, args.c + batch * args.c_stride + first_row * args.ldc + first * 4, rows, columns, d)
