"""TopK."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo, TensorElementType
from ort_sdk.opset.axes import normalized_axis
from ort_sdk.opset.definition import operator

__all__: list[str] = []


@operator("TopK", until=1)
def top_k_of_attribute(info: KernelInfo, xp: Any) -> Compute:
    """Largest ``k`` elements along an axis, and their indices."""
    k, select = int(info.attribute("k")), _selection(info, xp)
    return lambda x: select(x, k)


@operator("TopK", since=10, host_inputs=(1,), shape_inputs=(1,))
def top_k(info: KernelInfo, xp: Any) -> Compute:
    """Largest or smallest k elements along an axis, and their indices."""
    select = _selection(info, xp)

    def compute(x: Array, k: HostArray) -> tuple[Array, Array]:
        if k.size != 1:
            raise InvalidArgument(f"{info.describe()}: K must hold one element; its shape is {k.shape}")
        selected: tuple[Array, Array] = select(x, int(k.reshape(())))
        return selected

    return compute


def _selection(info: KernelInfo, xp: Any) -> Compute:
    """Values and indices, ordered; of equal elements the one with the lower index first. ``sorted=0`` allows any order."""
    axis, is_largest = info.attribute("axis", -1), bool(info.attribute("largest", 1))
    is_float = xp.isdtype(xp.dtype(info.input_element_type(0)), "real floating")

    def compute(x: Array, k: int) -> tuple[Array, Array]:
        along = normalized_axis(axis, len(x.shape), info)
        if not 0 <= k <= x.shape[along]:
            raise InvalidArgument(
                f"{info.describe()}: k is {k}; axis {axis} of shape {tuple(x.shape)} allows 0 to {x.shape[along]}"
            )
        rows = xp.moveaxis(x, along, -1)
        indices = xp.smallest_indices(_ascending(rows), k)
        values = xp.take_along_axis(rows, indices, axis=-1)
        indices = xp.astype(indices, TensorElementType.INT64)
        return xp.moveaxis(values, -1, along), xp.moveaxis(indices, -1, along)

    def _ascending(rows: Array) -> Array:
        """Keys whose ascending order is the order wanted; inverting an integer's bits cannot overflow as negating can."""
        if not is_largest:
            return rows
        return -rows if is_float else ~rows

    return compute
