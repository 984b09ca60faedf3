"""8-bit weights as compiled tasks multiply them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ort_sdk.api import HostArray

__all__ = ["ZeroedWeight"]

_INT8, _UINT8, _INT32 = (np.dtype(kind) for kind in (np.int8, np.uint8, np.int32))
_LARGEST, _LEAST = 127, -128
_SIGN = 128


class ZeroedWeight(NamedTuple):
    """An 8-bit weight as the tasks multiply it."""

    numbers: HostArray
    """int8, (M, C, *kernel)."""
    zero_points: HostArray | None
    """int32, (M,); None for zeros."""

    @classmethod
    def of(cls, weight: HostArray, zero_points: HostArray) -> ZeroedWeight:
        """Less its zero points where that fits into 8 bits.

        Args:
            weight: uint8 or int8, (M, C, *kernel).
            zero_points: of its type: (1,) or (M,).
        """
        zeros = np.broadcast_to(zero_points.astype(np.int16), weight.shape[:1])
        centred = weight - zeros.reshape(-1, *(1 for _ in weight.shape[1:]))
        if centred.min() >= _LEAST and centred.max() <= _LARGEST:
            return cls(np.ascontiguousarray(centred, _INT8), None)
        if weight.dtype == _UINT8:
            return cls(np.ascontiguousarray(weight ^ _SIGN).view(_INT8), zeros.astype(_INT32) - _SIGN)
        return cls(np.ascontiguousarray(weight), zeros.astype(_INT32))

    def centred(self) -> HostArray:
        """The weight less its zero points: int16, (M, C, *kernel)."""
        if self.zero_points is None:
            return self.numbers.astype(np.int16)
        found: HostArray = self.numbers - self.zero_points.astype(np.int16).reshape(-1, *(1 for _ in self.numbers.shape[1:]))
        return found

    def sums(self) -> HostArray:
        """Of what is multiplied with each output: int32, (M,)."""
        found: HostArray = self.numbers.reshape(len(self.numbers), -1).sum(axis=1, dtype=_INT32)
        return found if self.zero_points is None else found - self.numbers[0].size * self.zero_points
