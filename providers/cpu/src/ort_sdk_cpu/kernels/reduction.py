"""Reductions into a given output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk.opset.axes import normalized_axes

from .bindable import MakeWriter, Writer, bindable
from .copies import CopyWriter

__all__: list[str] = []

_FUNCTIONS: dict[str, Any] = {"ReduceMax": np.max, "ReduceMean": np.mean, "ReduceMin": np.min, "ReduceSum": np.sum}


@bindable(*_FUNCTIONS)
def reduce(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Sum, mean, maximum or minimum; of no elements, and of truth values, by the shared set."""
    element_type = info.input_element_type(0)
    kind = "" if element_type is None else element_type.numpy_dtype.kind
    if element_type is TensorElementType.BOOL or (info.op_type == "ReduceMean" and kind != "f"):
        return None
    function = _FUNCTIONS[info.op_type]
    given, keepdims = info.attribute("axes", None), bool(info.attribute("keepdims", 1))
    noop = bool(info.attribute("noop_with_empty_axes", 0))

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        x, axes_input = (*inputs, None)[:2]
        axes = given if axes_input is None else axes_input.tolist()
        if x.size == 0 or x.ndim == 0 or (not axes and noop):
            return lambda *arrays: np.copyto(arrays[-1], compute(*arrays[:-1]))
        over = normalized_axes(axes or range(x.ndim), x.ndim, info)
        if all(x.shape[axis] == 1 for axis in over):
            return CopyWriter(lambda *arrays: [(arrays[-1], arrays[0].reshape(arrays[-1].shape))])
        return lambda *arrays: function(arrays[0], axis=over, keepdims=keepdims, out=arrays[-1])

    return make
