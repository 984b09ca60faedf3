"""GEMM of small integers through floating-point BLAS, where the sums are exact.

Libraries multiply integer matrices without BLAS, which is slow. Sums of products of 8-bit integers are whole numbers, so
float32 is exact while no sum can pass 2**24, and float64 always is for the sizes that occur.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from ort_sdk.api import Array, HostArray, KernelInfo, TensorElementType

__all__ = ["IntegerGemm", "centre", "wrap_to_int32"]

FLOAT32_EXACT = 2**24
CHUNK_ELEMENTS = 1 << 20
"""How many elements of a constant are looked at together."""

_RANGES = {
    TensorElementType.INT8: (-128, 127),
    TensorElementType.UINT8: (0, 255),
    TensorElementType.INT16: (-32768, 32767),
    TensorElementType.UINT16: (0, 65535),
}


class IntegerGemm:
    """Chooses the floating-point type for sums of products of two factors.

    A constant is not read before it is multiplied by: kernels of libraries for integers never ask.

    Args:
        info: the node.
        first: (input, zero point input) of the first factor, or the largest magnitude it can have.
        second: (input, zero point input) of the second factor; if constant, its contents tighten the bound.
        contracted: axis of the second factor, as the node gives it, that is summed over; None for all but the first.
    """

    def __init__(self, info: KernelInfo, first: tuple[int, int] | int, second: tuple[int, int], contracted: int | None) -> None:
        self._largest_first = first if isinstance(first, int) else _largest(info, *first)
        self._largest_second = _largest(info, *second)
        self._info, self._second, self._contracted = info, second, contracted
        self.first_is_centred = not isinstance(first, int) and _has_no_offset(info, first[1])
        """Whether the first factor's zero point is a constant 0, or absent."""
        self.second_is_centred = _has_no_offset(info, second[1])
        """The same of the second."""

    @cached_property
    def _constant_sum(self) -> float | None:
        limit = FLOAT32_EXACT / max(self._largest_first, 1)
        return _largest_sum(self._info, self._second, self._contracted, limit)

    def element_type(self, terms: int) -> TensorElementType:
        """FLOAT if sums of so many products are exact in float32, else DOUBLE."""
        total = terms * self._largest_second if self._constant_sum is None else self._constant_sum
        return TensorElementType.FLOAT if total * self._largest_first < FLOAT32_EXACT else TensorElementType.DOUBLE

    def exact_terms(self) -> int:
        """How many products, whatever the factors' contents, can be summed exactly in float32."""
        return (FLOAT32_EXACT - 1) // max(self._largest_first * self._largest_second, 1)


def centre(xp: Any, values: Array, zero_point: Array | None, element_type: TensorElementType) -> Array:
    """Integers minus their zero point (which broadcasts against them), as floating-point numbers."""
    wide = xp.astype(values, element_type)
    return wide if zero_point is None else wide - xp.astype(zero_point, element_type)


def wrap_to_int32(xp: Any, sums: Array) -> Array:
    """Whole numbers as int32, modulo 2**32 as 32-bit accumulation gives them."""
    if sums.dtype == xp.float32:
        return xp.astype(sums, TensorElementType.INT32)
    return xp.astype(xp.astype(sums, TensorElementType.INT64), TensorElementType.INT32)


def _has_no_offset(info: KernelInfo, zero_point_index: int) -> bool:
    if not info.has_input(zero_point_index):
        return True
    zero_point = info.constant_input(zero_point_index)
    return zero_point is not None and not zero_point.any()


def _largest(info: KernelInfo, index: int, zero_point_index: int) -> int:
    """Largest magnitude of an input minus its zero point, as far as its type and a constant zero point bound it."""
    element_type = info.input_element_type(index)
    low, high = _RANGES.get(element_type, (-65535, 65535)) if element_type is not None else (-65535, 65535)
    if not info.has_input(zero_point_index):
        return max(-low, high)
    zero_point = info.constant_input(zero_point_index)
    if zero_point is None or zero_point.size == 0:
        return high - low
    return max(int(zero_point.max()) - low, high - int(zero_point.min()))


def _largest_sum(info: KernelInfo, second: tuple[int, int], contracted: int | None, limit: float) -> float | None:
    """Largest sum of magnitudes of a constant second factor over the contracted axes; None if it is not constant.

    Contents are looked at only if the type and the number of terms leave room for a sum of ``limit`` or more.
    """
    values = info.constant_input(second[0])
    zero_point = info.constant_input(second[1])
    if values is None or values.size == 0 or (info.has_input(second[1]) and zero_point is None):
        return None
    if values.ndim == 1:
        axes: tuple[int, ...] = (0,)
    else:
        axes = tuple(range(1, values.ndim)) if contracted is None else (contracted % values.ndim,)
    terms = math.prod(values.shape[axis] for axis in axes)
    crude = float(terms * _largest(info, *second))
    if crude < limit:
        return crude
    offset = 0 if zero_point is None or zero_point.size == 0 else int(np.abs(zero_point.astype(np.int64)).max())
    return _largest_magnitude_sum(values, axes) + float(terms) * offset


def _largest_magnitude_sum(values: HostArray, axes: tuple[int, ...]) -> float:
    """Largest sum of magnitudes over some axes, some rows at a time, which keeps memory flat."""
    step = max(1, CHUNK_ELEMENTS * values.shape[0] // values.size)
    chunks = (np.abs(values[start : start + step].astype(np.int32)) for start in range(0, values.shape[0], step))
    sums = [chunk.sum(axis=axes, dtype=np.int64) for chunk in chunks]
    return float(sum(sums).max() if 0 in axes else max(part.max() for part in sums))
