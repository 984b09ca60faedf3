"""HannWindow, HammingWindow and BlackmanWindow: sums of cosines."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator
from ort_sdk.opset.sizes import require_size

__all__: list[str] = []

_COEFFICIENTS = {
    "HannWindow": (0.5, -0.5),
    "HammingWindow": (25 / 46, -21 / 46),
    "BlackmanWindow": (0.42, -0.5, 0.08),
}


def _declare(op_type: str, coefficients: tuple[float, ...]) -> None:
    @operator(op_type, host_inputs=(0,), shape_inputs=(0,))
    def window(info: KernelInfo, xp: Any) -> Compute:
        element_type = info.output_element_type(0)
        is_periodic = bool(info.attribute("periodic", 1))

        def compute(size: HostArray) -> Array:
            length = int(size.reshape(()))
            if length < 0:
                raise InvalidArgument(f"{info.describe()}: size must not be negative; it is {length}")
            require_size(info.describe(), (length,), np.dtype(np.float64).itemsize)
            return xp.astype(xp.from_host(_window(length, coefficients, is_periodic)), element_type)

        return compute


def _window(length: int, coefficients: tuple[float, ...], is_periodic: bool) -> HostArray:
    """Sum of a_k·cos(2πkn/N); a symmetric window of one sample is its peak."""
    if length == 1 and not is_periodic:
        return np.ones(1)
    angles = np.arange(length) * (2 * math.pi / (length if is_periodic else length - 1)) if length else np.zeros(0)
    return np.asarray(sum(factor * np.cos(k * angles) for k, factor in enumerate(coefficients)))


for _op_type, _coefficients in _COEFFICIENTS.items():
    _declare(_op_type, _coefficients)
