"""ArgMax and ArgMin."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, InvalidArgument, KernelInfo, TensorElementType
from ort_sdk.opset.axes import normalized_axis
from ort_sdk.opset.definition import operator

__all__: list[str] = []


def _declare(op_type: str, standard_name: str) -> None:
    @operator(op_type)
    def arg(info: KernelInfo, xp: Any) -> Compute:
        """Index of the extreme element along an axis: the first one, or the last if ``select_last_index`` says so."""
        axis, keepdims = info.attribute("axis", 0), bool(info.attribute("keepdims", 1))
        select_last = bool(info.attribute("select_last_index", 0))
        find, flip, astype = getattr(xp, standard_name), xp.flip, xp.astype

        def compute(x: Array) -> Array:
            along = normalized_axis(axis, len(x.shape), info)
            others = [*x.shape[:along], *([1] if keepdims else []), *x.shape[along + 1 :]]
            if 0 in others:
                return xp.zeros(tuple(others), dtype=xp.dtype(TensorElementType.INT64))
            if x.shape[along] == 0:
                raise InvalidArgument(f"{info.describe()}: axis {axis} of shape {tuple(x.shape)} has no elements to compare")
            if not select_last:
                return astype(find(x, axis=along, keepdims=keepdims), TensorElementType.INT64)
            from_end = find(flip(x, axis=along), axis=along, keepdims=keepdims)
            return (x.shape[along] - 1) - astype(from_end, TensorElementType.INT64)

        return compute


_declare("ArgMax", "argmax")
_declare("ArgMin", "argmin")
