"""8-bit weights less their zero points, as compiled tasks multiply them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ort_sdk.api import HostArray

__all__ = ["CenteredWeight", "fits_int8"]

_INT8, _UINT8, _INT32 = (np.dtype(kind) for kind in (np.int8, np.uint8, np.int32))
_LARGEST, _LEAST = 127, -128
_SIGN = 128


class CenteredWeight(NamedTuple):
    """An 8-bit weight as the tasks multiply it."""

    values: HostArray
    """int8, (M, C, *kernel)."""
    zero_points: HostArray | None
    """int32, (M,); None for zeros."""

    @classmethod
    def of(cls, weight: HostArray, zero_points: HostArray) -> CenteredWeight:
        """Less its zero points where that fits into 8 bits, so that rows of X need not be summed.

        Args:
            weight: uint8 or int8, (M, C, *kernel).
            zero_points: of its type: (1,) or (M,).
        """
        if fits_int8(weight, zero_points):
            centered = weight.view(_UINT8) - _along_first(zero_points.astype(_UINT8), weight) if zero_points.any() else weight
            return cls(np.ascontiguousarray(centered).view(_INT8), None)
        zeros = np.broadcast_to(zero_points.astype(_INT32), weight.shape[:1])
        if weight.dtype == _UINT8:
            return cls(np.ascontiguousarray(weight ^ _SIGN).view(_INT8), zeros - _SIGN)
        return cls(np.ascontiguousarray(weight), zeros)

    def magnitudes(self) -> HostArray:
        """The sums of absolute values of the weight less its zero points: int64, (M,)."""
        centered = self.values.astype(np.int16)
        if self.zero_points is not None:
            centered -= _along_first(self.zero_points.astype(np.int16), centered)
        found: HostArray = np.abs(centered).reshape(len(centered), -1).sum(axis=1, dtype=np.int64)
        return found

    def sums(self) -> HostArray:
        """Sums of each output channel's weights less their zero points: int32, (M,)."""
        found: HostArray = self.values.reshape(len(self.values), -1).sum(axis=1, dtype=_INT32)
        return found if self.zero_points is None else found - self.values[0].size * self.zero_points


def fits_int8(weight: HostArray, zero_points: HostArray) -> bool:
    """Whether an 8-bit weight less its zero points, (1,) or (M,), fits into int8."""
    if weight.dtype == _INT8 and not zero_points.any():
        return True
    axes = tuple(range(0 if zero_points.size == 1 else 1, weight.ndim))
    least, largest = (found(weight, axis=axes).astype(np.int16) - zero_points.astype(np.int16) for found in (np.min, np.max))
    return bool(least.min() >= _LEAST and largest.max() <= _LARGEST)


def _along_first(values: HostArray, weight: HostArray) -> HostArray:
    """A value for each output channel, to be combined with a weight."""
    return values.reshape(-1, *(1 for _ in weight.shape[1:]))
