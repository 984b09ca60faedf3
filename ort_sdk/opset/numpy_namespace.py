"""NumPy as an array namespace: every ONNX element type, and NumPy's own ways where they are faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, TensorElementType

from .half_precision import LEAST_ELEMENTS, to_single
from .namespace import ArrayNamespace, known_type, scatter_rows
from .strided_views import strided_view

__all__ = ["NumpyNamespace"]

_Axes = int | tuple[int, ...] | None

_BLOCK = 32768
"""Elements of a long formula computed at a time, so that its temporaries stay in cache."""

_PARTITION_SIZE = 1024
"""Row length from which selecting by partition beats sorting."""


_SPREADS: dict[int, tuple[Any, tuple[int, ...], int]] = {
    4: (np.dtype("<u2").type, (4,), 0x0F0F),
    2: (np.dtype("<u4").type, (6, 12, 18), 0x03030303),
}
"""Bits of a field → (word, shifts, mask) that spread a byte's fields over a word, see ``unpack_bits``."""


class NumpyNamespace(ArrayNamespace):
    """Adapter over NumPy 2, which follows the standard itself."""

    is_host = True

    def __init__(self) -> None:
        super().__init__(np)

    @property
    def element_types(self) -> frozenset[TensorElementType]:
        return frozenset(TensorElementType) - {TensorElementType.UNDEFINED}

    def dtype(self, element_type: TensorElementType | None) -> Any:
        return known_type(element_type).numpy_dtype

    def element_type(self, array: HostArray) -> TensorElementType:
        return TensorElementType.from_numpy_dtype(array.dtype)

    def astype(self, array: HostArray, element_type: TensorElementType) -> HostArray:
        if element_type is TensorElementType.FLOAT and array.dtype == np.float16 and array.size >= LEAST_ELEMENTS:
            return to_single(array)
        return array.astype(element_type.numpy_dtype, copy=False)

    def reshape(self, x: HostArray, shape: Sequence[int], *, copy: bool | None = None) -> HostArray:
        # NumPy's functions of these names look for the methods, which takes longer than making a view.
        return x.reshape(shape) if copy is None else np.reshape(x, shape, copy=copy)

    def permute_dims(self, x: HostArray, axes: Sequence[int]) -> HostArray:
        return x.transpose(axes)

    def mean(self, x: HostArray, *, axis: _Axes = None, keepdims: bool = False) -> HostArray:
        return _statistic(np.mean, x, axis, keepdims=keepdims)

    def var(self, x: HostArray, *, axis: _Axes = None, keepdims: bool = False) -> HostArray:
        return _statistic(np.var, x, axis, keepdims=keepdims)

    def round_and_clip(self, values: HostArray, shift: HostArray | None, low: float, high: float, dtype: Any) -> HostArray:
        buffer = np.asarray(values)
        np.rint(buffer, out=buffer)
        if shift is not None:
            buffer += shift
        np.clip(buffer, low, high, out=buffer)
        if buffer.size and np.isnan(buffer.max()):
            np.copyto(buffer, low, where=np.isnan(buffer))
        return buffer.astype(dtype)

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
        return strided_view(array, shape, (*outer, *tap_steps, *window_steps))

    def frames(self, signal: HostArray, length: int, step: int, count: int) -> HostArray:
        if count == 1:
            return signal[:, None, :length]
        outer, along, inner = signal.strides
        shape = (signal.shape[0], count, length, signal.shape[2])
        return strided_view(signal, shape, (outer, step * along, along, inner))

    def complex_parts(self, z: HostArray) -> HostArray:
        return np.ascontiguousarray(z).view(z.real.dtype).reshape(*z.shape, 2)

    def erf(self, x: HostArray) -> HostArray:
        flat = np.ascontiguousarray(x).reshape(-1)
        out: HostArray = np.empty_like(flat)
        for start in range(0, flat.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            out[block] = super().erf(flat[block])
        return out.reshape(x.shape)

    def clamp(self, x: HostArray, low: HostArray, high: HostArray) -> HostArray:
        result: HostArray = np.asarray(np.maximum(x, low))
        np.minimum(result, high, out=result)
        return result

    def softmax(self, x: HostArray, axis: int) -> HostArray:
        if 0 in x.shape:
            return x.copy()
        result: HostArray = np.asarray(x - np.max(x, axis=axis, keepdims=True))
        np.exp(result, out=result)
        result /= np.sum(result, axis=axis, keepdims=True)
        return result

    def smallest_indices(self, keys: HostArray, k: int) -> HostArray:
        size = keys.shape[-1]
        if size < _PARTITION_SIZE or k * 8 > size or k == 0:
            return _smallest_by_sorting(keys, k)
        rows = keys.reshape(-1, size)
        threshold = np.partition(rows, k - 1, axis=-1)[:, k - 1 : k]
        if keys.dtype.kind == "f" and np.isnan(threshold).any():
            return _smallest_by_sorting(keys, k)
        below, ties = rows < threshold, rows == threshold
        missing = k - np.count_nonzero(below, axis=-1, keepdims=True)
        chosen = below | (ties & (np.cumsum(ties, axis=-1) <= missing))
        columns = np.nonzero(chosen)[1].reshape(-1, k)
        order = np.argsort(np.take_along_axis(rows, columns, axis=-1), axis=-1, stable=True)
        indices: HostArray = np.take_along_axis(columns, order, axis=-1)
        return indices.reshape(*keys.shape[:-1], k)

    def gather(self, array: HostArray, indices: HostArray, axis: int) -> HostArray:
        return np.asarray(np.take(array, indices, axis=axis), dtype=array.dtype)

    def scatter(self, array: HostArray, positions: HostArray, updates: HostArray, reduction: str = "none") -> HostArray:
        rows = np.array(array)
        scatter_rows(rows, positions, updates, reduction)
        return rows

    def unpack_bits(self, packed: HostArray, bits: int) -> HostArray:
        if bits == 8:
            return packed
        # Each byte is spread over a word of 8 / bits bytes: shifted copies put every field at the bottom of its own byte.
        wide, shifts, mask = _SPREADS[bits]
        words = packed.astype(wide)
        spread = words.copy()
        for shift in shifts:
            spread |= words << wide(shift)
        spread &= wide(mask)
        return spread.view(np.uint8)

    def to_host(self, array: HostArray) -> HostArray:
        return array

    def from_host(self, array: HostArray) -> HostArray:
        return array


def _statistic(function: Callable[..., Any], x: HostArray, axis: _Axes, *, keepdims: bool) -> HostArray:
    """A mean or variance; of nothing it is NaN, as NumPy has it, which warns."""
    if x.size:
        return np.asarray(function(x, axis=axis, keepdims=keepdims))
    return np.full_like(np.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype), np.nan)


def _smallest_by_sorting(keys: HostArray, k: int) -> HostArray:
    indices: HostArray = np.argsort(keys, axis=-1, stable=True)
    return indices[..., :k]
