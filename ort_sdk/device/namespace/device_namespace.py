"""A device as an array namespace: the shared operators run on it, with a kernel where several functions make one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from ort_sdk.api import Compute, HostArray, InvalidArgument, KernelInfo, TensorElementType
from ort_sdk.device import arithmetic
from ort_sdk.device.array import DeviceArray
from ort_sdk.device.attention import attend
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.element_types import HALF_TYPES
from ort_sdk.device.expressions.nodes import Strided
from ort_sdk.device.rows.program import SOFTMAX
from ort_sdk.device.rows.result import row_result
from ort_sdk.opset.namespace import ArrayNamespace, known_type

from . import gathering, movement, narrowing, scattering, sorting
from .creation import Creation
from .elementwise import ELEMENTWISE
from .fourier import fourier
from .gathering import GATHERING
from .linalg import LINALG
from .movement import MOVEMENT
from .products import PRODUCTS
from .reductions import REDUCTIONS
from .sorting import SORTING

__all__ = ["DeviceNamespace", "Override"]

_CREATION = (
    *("asarray", "full", "zeros", "ones", "empty", "full_like", "zeros_like", "ones_like", "empty_like"),
    *("arange", "linspace", "eye", "meshgrid"),
)


def _astype(x: DeviceArray, dtype: Any, /, **_ignored: Any) -> DeviceArray:
    return arithmetic.cast(x, TensorElementType.from_numpy_dtype(np.dtype(dtype)))


def _finfo(dtype: Any, /) -> Any:
    return ml_dtypes.finfo(getattr(dtype, "dtype", dtype))


def _iinfo(dtype: Any, /) -> Any:
    return np.iinfo(getattr(dtype, "dtype", dtype))


def _result_type(*values: Any) -> Any:
    return np.result_type(*[getattr(value, "dtype", value) for value in values])


def _nonzero(x: DeviceArray, /) -> tuple[DeviceArray, ...]:
    """Positions of elements that are not zero; reads them on the host, since their number is not known before."""
    found = np.nonzero(x.context.download(x.node))
    return tuple(DeviceArray(x.context, x.context.upload(each, TensorElementType.INT64)) for each in found)


def device_module(context: DeviceContext) -> SimpleNamespace:
    """The standard's functions and types over arrays of one device."""
    creation = Creation(context)
    names: dict[str, Any] = {**ELEMENTWISE, **MOVEMENT, **GATHERING, **PRODUCTS, **REDUCTIONS, **SORTING}
    names |= {name: getattr(creation, name) for name in _CREATION}
    names |= {name: np.dtype(name) for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")}
    names |= {"bool": np.dtype(np.bool), "float32": np.dtype(np.float32), "float64": np.dtype(np.float64)}
    names |= {"astype": _astype, "isdtype": np.isdtype, "finfo": _finfo, "iinfo": _iinfo, "result_type": _result_type}
    names |= {"nonzero": _nonzero, "inf": np.inf, "nan": np.nan, "pi": np.pi, "e": np.e, "newaxis": None, "linalg": LINALG}
    return SimpleNamespace(__name__="device", **names)


class DeviceNamespace(ArrayNamespace):
    """Adapter over one device's arrays.

    Args:
        context: of the device.
    """

    def __init__(self, context: DeviceContext) -> None:
        self.module: Any = device_module(context)
        self.context = context

    @property
    def element_types(self) -> frozenset[TensorElementType]:
        return self.context.device.element_types

    def dtype(self, element_type: TensorElementType | None) -> Any:
        return known_type(element_type).numpy_dtype

    def element_type(self, array: DeviceArray) -> TensorElementType:
        return array.element_type

    def compute_type(self, element_type: TensorElementType) -> TensorElementType:
        return TensorElementType.FLOAT if element_type in HALF_TYPES else super().compute_type(element_type)

    def astype(self, array: DeviceArray, element_type: TensorElementType) -> DeviceArray:
        return arithmetic.cast(array, element_type)

    def converted(
        self, array: DeviceArray, element_type: TensorElementType, *, saturate: bool = True, round_mode: str = "up"
    ) -> DeviceArray:
        return narrowing.converted(array, element_type, saturate=saturate, round_mode=round_mode)

    def with_bits_of(self, array: DeviceArray, element_type: TensorElementType) -> DeviceArray:
        return array.made(Strided(array.dense().held, array.shape, element_type))

    def sliding_windows(
        self, array: DeviceArray, kernel_shape: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
    ) -> DeviceArray:
        return movement.sliding_windows(array, kernel_shape, strides, dilations)

    def fourier(
        self, parts: DeviceArray, length: int, axis: int, *, inverse: bool = False, onesided: bool = False
    ) -> DeviceArray:
        return fourier(parts, length, axis, inverse=inverse, onesided=onesided, upload=self.from_host)

    def erf(self, x: DeviceArray) -> DeviceArray:
        return arithmetic.unary("erf", x)

    def softmax(self, x: DeviceArray, axis: int) -> DeviceArray:
        return x if 0 in x.shape else arithmetic.cast(row_result(x, SOFTMAX, [axis % x.ndim]), x.element_type)

    def smallest_indices(self, keys: DeviceArray, k: int) -> DeviceArray:
        return sorting.smallest_indices(keys, k)

    def gather(self, array: DeviceArray, indices: DeviceArray, axis: int) -> DeviceArray:
        return gathering.gather(array, indices, axis)

    def scatter(self, array: DeviceArray, positions: DeviceArray, updates: DeviceArray, reduction: str = "none") -> DeviceArray:
        return scattering.scatter(array, positions, updates, reduction)

    def scatter_flat(self, size: int, indices: DeviceArray, values: DeviceArray) -> DeviceArray:
        return scattering.scatter_flat(size, indices, values)

    def attention(
        self, q: DeviceArray, k: DeviceArray, v: DeviceArray, biases: Sequence[DeviceArray], scale: float
    ) -> DeviceArray | None:
        return attend(q, k, v, biases, scale)

    def to_host(self, array: DeviceArray) -> HostArray:
        return self.context.download(array.node)

    def from_host(self, array: HostArray) -> DeviceArray:
        if array.dtype.hasobject:
            raise InvalidArgument(f"bringing strings of shape {list(array.shape)} to a device: strings stay on the host")
        converted: DeviceArray = self.module.asarray(np.asarray(array))
        return converted


Override = Callable[[KernelInfo, DeviceNamespace, Compute], Compute | None]
"""Makes a node's function over a device's arrays: ``override(info, namespace, shared)``.

``info`` has the node's own types: inputs may be float16, which expressions widen without a kernel (``namespace.astype``), and
outputs must have the types of ``info``. Inputs and outputs that the shared operator keeps on the host stay there. ``shared`` is
the operator set's function, for arrays that the kernels do not take. None leaves the node to it altogether, as for a type.
"""
