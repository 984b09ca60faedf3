"""Constants of a QLinearConv, prepared for its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import dataclass

from .centered_weight import fits_int8

__all__ = [
    "BIAS",
    "W_SCALE",
    "W_ZERO_POINT",
    "X_SCALE",
    "X_ZERO_POINT",
    "Y_SCALE",
    "Y_ZERO_POINT",
    "QLinearConvConstants",
    "W",
    "X",
]

X, X_SCALE, X_ZERO_POINT, W, W_SCALE, W_ZERO_POINT, Y_SCALE, Y_ZERO_POINT, BIAS = range(9)
"""Indices of the inputs."""
_BYTES = (np.dtype(np.uint8), np.dtype(np.int8))
_FLOAT = np.dtype(np.float32)


@dataclass(frozen=True, slots=True)
class QLinearConvConstants:
    """A node's constants, prepared."""

    weight_shape: tuple[int, ...]
    weight_zero_points: HostArray | None
    """int16, (1,) or (M,); None for zeros."""
    is_wide: bool
    """Whether weights less their zero points do not fit into 8 bits."""
    scales: HostArray
    """Of sums divided by that of Y: float32, (1,) or (M,)."""
    bias: HostArray | None
    """In units of Y's scale: float32, (M,), for oneDNN."""
    sum_bias: HostArray | None
    """The same added to sums: int32, (M,)."""
    x_zero_point: HostArray
    """int32, (1,)."""
    y_zero_point: HostArray
    output_dtype: np.dtype[Any]

    @classmethod
    def of(cls, constants: Sequence[Any]) -> QLinearConvConstants | None:
        """From a node's constant inputs by index; None if there is no kernel for them."""
        weight, y_zero_point = constants[W], constants[Y_ZERO_POINT]
        if weight.dtype not in _BYTES or y_zero_point.dtype not in _BYTES or not 3 <= weight.ndim <= 5 or not weight.size:
            return None
        zero_points = constants[W_ZERO_POINT].astype(np.int16).reshape(-1)
        if zero_points.size not in {1, weight.shape[0]}:
            return None
        if constants[X_ZERO_POINT].size != 1 or y_zero_point.size != 1:
            return None
        scales = (constants[X_SCALE].reshape(()) * constants[W_SCALE] / constants[Y_SCALE].reshape(())).reshape(-1)
        scales = np.ascontiguousarray(scales, _FLOAT)
        if scales.size not in {1, weight.shape[0]} or constants[X_SCALE].dtype != _FLOAT or not np.isfinite(scales).all():
            return None
        if constants[BIAS] is not None and constants[BIAS].shape != weight.shape[:1]:
            return None
        bias = None if constants[BIAS] is None else np.ascontiguousarray(constants[BIAS] * scales, _FLOAT)
        return cls(
            tuple(weight.shape),
            zero_points if zero_points.any() else None,
            not fits_int8(weight, zero_points),
            scales,
            bias,
            constants[BIAS],
            _zero_point(constants[X_ZERO_POINT]),
            _zero_point(y_zero_point),
            y_zero_point.dtype,
        )


def _zero_point(value: HostArray) -> HostArray:
    return value.reshape(-1).astype(np.int32)
