"""NumPy as an array namespace: every ONNX element type, and NumPy's own ways where they are faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, TensorElementType

from .namespace import ArrayNamespace

__all__ = ["NumpyNamespace"]


class NumpyNamespace(ArrayNamespace):
    """Adapter over NumPy 2, which follows the standard itself."""

    is_host = True

    def __init__(self) -> None:
        super().__init__(np)

    @property
    def element_types(self) -> frozenset[TensorElementType]:
        return frozenset(TensorElementType) - {TensorElementType.UNDEFINED}

    def dtype(self, element_type: TensorElementType) -> Any:
        return element_type.numpy_dtype

    def astype(self, array: HostArray, element_type: TensorElementType) -> HostArray:
        return array.astype(element_type.numpy_dtype, copy=False)

    def round_and_clip(self, values: HostArray, shift: HostArray | None, low: float, high: float, dtype: Any) -> HostArray:
        buffer = np.asarray(values)
        np.rint(buffer, out=buffer)
        if shift is not None:
            buffer += shift
        return np.clip(buffer, low, high, out=buffer).astype(dtype)

    def sliding_windows(
        self, array: HostArray, kernel_shape: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
    ) -> HostArray:
        outer, steps = array.strides[:2], array.strides[2:]
        output = [
            (size - (kernel - 1) * dilation - 1) // stride + 1
            for size, kernel, dilation, stride in zip(array.shape[2:], kernel_shape, dilations, strides, strict=True)
        ]
        tap_steps = [step * dilation for step, dilation in zip(steps, dilations, strict=True)]
        window_steps = [step * stride for step, stride in zip(steps, strides, strict=True)]
        shape = (*array.shape[:2], *kernel_shape, *output)
        return np.lib.stride_tricks.as_strided(array, shape, (*outer, *tap_steps, *window_steps), writeable=False)

    def to_host(self, array: HostArray) -> HostArray:
        return array

    def from_host(self, array: HostArray) -> HostArray:
        return array
