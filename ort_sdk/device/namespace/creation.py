"""The standard's functions that make arrays: numbers everywhere and counted numbers take no memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import TensorElementType
from ort_sdk.device import arithmetic, indexing
from ort_sdk.device.array import DeviceArray
from ort_sdk.device.context import DeviceContext, constant_of
from ort_sdk.device.expressions.nodes import Constant, Strided

__all__ = ["Creation"]

_FLOAT, _INT64, _BOOL = TensorElementType.FLOAT, TensorElementType.INT64, TensorElementType.BOOL


def _type(dtype: Any, default: TensorElementType) -> TensorElementType:
    return default if dtype is None else TensorElementType.from_numpy_dtype(np.dtype(dtype))


class Creation:
    """Makes arrays of one device.

    Args:
        context: of the device.
    """

    def __init__(self, context: DeviceContext) -> None:
        self._context = context

    def _array(self, node: Any) -> DeviceArray:
        return DeviceArray(self._context, node)

    def asarray(self, obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> DeviceArray:
        """An array of numbers, of nested sequences, of a host array, or of a device's array."""
        if isinstance(obj, DeviceArray):
            converted = obj if dtype is None else arithmetic.cast(obj, _type(dtype, obj.element_type))
            if copy and converted is obj:
                return self._array(self._context.copied(obj.node))
            return converted
        host = np.asarray(obj)
        if dtype is None and not isinstance(obj, np.ndarray | np.generic) and host.dtype == np.float64:
            host = host.astype(np.float32)
        if dtype is not None:
            host = host.astype(np.dtype(dtype))
        element_type = TensorElementType.from_numpy_dtype(host.dtype)
        constant = constant_of(host, element_type)
        return self._array(self._context.upload(host, element_type) if constant is None else constant)

    def full(self, shape: int | Sequence[int], fill_value: float, *, dtype: Any = None, device: Any = None) -> DeviceArray:
        """The same number everywhere."""
        default = _BOOL if isinstance(fill_value, bool) else _INT64 if isinstance(fill_value, int) else _FLOAT
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        element_type = _type(dtype, default)
        value = fill_value.node if isinstance(fill_value, DeviceArray) else None
        if value is not None:
            cast = arithmetic.cast_node(self._context, value, element_type)
            return self._array(indexing.broadcast(self._context, cast, sizes))
        number = np.asarray(fill_value).astype(element_type.numpy_dtype).item()
        return self._array(Constant(number, sizes, element_type))

    def zeros(self, shape: int | Sequence[int], *, dtype: Any = None, device: Any = None) -> DeviceArray:
        """Zeros."""
        return self.full(shape, 0.0, dtype=dtype)

    def ones(self, shape: int | Sequence[int], *, dtype: Any = None, device: Any = None) -> DeviceArray:
        """Ones."""
        return self.full(shape, 1.0, dtype=dtype)

    def empty(self, shape: int | Sequence[int], *, dtype: Any = None, device: Any = None) -> DeviceArray:
        """Memory with undefined contents, to be written to."""
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        return self._array(self._context.new(sizes, _type(dtype, _FLOAT)))

    def full_like(self, x: DeviceArray, /, fill_value: float, *, dtype: Any = None, device: Any = None) -> DeviceArray:
        """The same number everywhere, of an array's shape and type."""
        return self.full(x.shape, fill_value, dtype=x.dtype if dtype is None else dtype)

    def zeros_like(self, x: DeviceArray, /, *, dtype: Any = None, device: Any = None) -> DeviceArray:
        """Zeros of an array's shape and type."""
        return self.full_like(x, 0, dtype=dtype)

    def ones_like(self, x: DeviceArray, /, *, dtype: Any = None, device: Any = None) -> DeviceArray:
        """Ones of an array's shape and type."""
        return self.full_like(x, 1, dtype=dtype)

    def empty_like(self, x: DeviceArray, /, *, dtype: Any = None, device: Any = None) -> DeviceArray:
        """Memory for an array's shape and type."""
        return self.empty(x.shape, dtype=x.dtype if dtype is None else dtype)

    def arange(
        self, start: float, /, stop: float | None = None, step: float = 1, *, dtype: Any = None, device: Any = None
    ) -> DeviceArray:
        """Counted numbers."""
        first, last = (0, start) if stop is None else (start, stop)
        whole = all(isinstance(each, int) for each in (first, last, step))
        count = max(0, math.ceil((last - first) / step))
        element_type = _type(dtype, _INT64 if whole else _FLOAT)
        if whole:
            counted = Strided(None, (count,), _INT64, (int(step),), int(first))
            return arithmetic.cast(self._array(counted), element_type)
        index = arithmetic.cast(self._array(Strided(None, (count,), _INT64, (1,), 0)), element_type)
        return index * step + first

    def linspace(
        self, start: float, stop: float, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True
    ) -> DeviceArray:
        """Numbers at equal distances."""
        return self.asarray(np.linspace(start, stop, num, endpoint=endpoint).astype(np.dtype(dtype or np.float32)))

    def eye(self, n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> DeviceArray:
        """Ones on a diagonal."""
        columns = n_rows if n_cols is None else n_cols
        row = self._array(Strided(None, (n_rows, 1), _INT64, (1, 0), k))
        column = self._array(Strided(None, (1, columns), _INT64, (0, 1), 0))
        return arithmetic.cast(row == column, _type(dtype, _FLOAT))

    def meshgrid(self, *arrays: DeviceArray, indexing: str = "xy") -> list[DeviceArray]:
        """Coordinates of a grid."""
        from .movement import broadcast_arrays, reshape

        count = len(arrays)
        order = list(range(count))
        if indexing == "xy" and count > 1:
            order[0], order[1] = 1, 0
        placed = [
            reshape(each, [each.size if axis == order[position] else 1 for axis in range(count)])
            for position, each in enumerate(arrays)
        ]
        return broadcast_arrays(*placed)
