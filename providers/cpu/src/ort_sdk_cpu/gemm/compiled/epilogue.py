"""What follows a product: ``f(alpha * C + beta * D)``, on parts of the result. Records are those of the tasks of ``products``."""

from __future__ import annotations

import numpy as np

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.kernel.microkernels.activation_codes import ActivationKind
from ort_sdk_cpu.simd import math
from ort_sdk_cpu.simd.arguments import argument, number
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, maximum, minimum, multiply, splat_f32, zero_f32
from ort_sdk_cpu.simd.memory import load_f32_first, store_f32_first

__all__ = ["finish_part"]

_LEAKY_RELU, _SIGMOID = int(ActivationKind.LEAKY_RELU), int(ActivationKind.SIGMOID)
_TANH, _GELU = int(ActivationKind.TANH), int(ActivationKind.GELU)


@inner
def _finish(record: int, c: int, c_row: int, rows: int, columns: int, addend: int, addend_row: int) -> None:
    """Function of alpha * C + beta * addend, in place."""
    factors, shares = splat_f32(number(record, 17)), splat_f32(number(record, 18))
    activation, slopes = argument(record, 16), splat_f32(number(record, 19))
    for row in range(rows):
        place = c + row * c_row
        for column in range(0, columns, 16):
            left = columns - column
            value = multiply(load_f32_first(place + column * 4, left), factors)
            if addend:
                value = fused_multiply_add(load_f32_first(addend + row * addend_row + column * 4, left), shares, value)
            if activation == _LEAKY_RELU:
                value = fused_multiply_add(minimum(value, zero_f32()), slopes, maximum(value, zero_f32()))
            elif activation == _SIGMOID:
                value = math.sigmoid(value)
            elif activation == _TANH:
                value = math.tanh(value)
            elif activation == _GELU:
                value = math.gelu(value)
            store_f32_first(place + column * 4, value, left)


@inner
def finish_part(record: int, batch: int, first_row: int, rows: int, first: int, columns: int) -> None:
    """What follows, of some rows and columns of one matrix of a stack: nothing, in many products."""
    c, c_row = argument(record, 2) + batch * argument(record, 13), argument(record, 10)
    addend, addend_row = argument(record, 3), argument(record, 14)
    if addend:
        addend += first_row * addend_row + first * 4
    if addend or argument(record, 16) or number(record, 17) != np.float32(1):
        _finish(record, c + first_row * c_row + first * 4, c_row, rows, columns, addend, addend_row)
