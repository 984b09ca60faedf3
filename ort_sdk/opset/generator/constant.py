"""Constant and ConstantOfShape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, InvalidGraph, KernelInfo, TensorElementType
from ort_sdk.opset.definition import operator
from ort_sdk.opset.sizes import item_bytes, require_size

__all__: list[str] = []


def _of_type(element_type: TensorElementType) -> Callable[[Any], HostArray]:
    dtype = element_type.numpy_dtype
    return lambda value: np.array(value, dtype=dtype)


_READERS: dict[str, Callable[[Any], HostArray]] = {
    "value": lambda tensor: tensor.numpy(),
    "sparse_value": lambda tensor: tensor.to_dense(),
    "value_float": _of_type(TensorElementType.FLOAT),
    "value_floats": _of_type(TensorElementType.FLOAT),
    "value_int": _of_type(TensorElementType.INT64),
    "value_ints": _of_type(TensorElementType.INT64),
    "value_string": _of_type(TensorElementType.STRING),
    "value_strings": _of_type(TensorElementType.STRING),
}


@operator("Constant", any_type=True)
def constant(info: KernelInfo, xp: Any) -> Compute:
    """The tensor that the node's only value attribute holds: one shared array, not to be written to."""
    given = [name for name in _READERS if name in info.attributes]
    if len(given) != 1:
        raise InvalidGraph(f"{info.describe()}: exactly one of {', '.join(_READERS)} is needed; the node has {given}")
    value = _READERS[given[0]](info.attribute(given[0]))
    value.flags.writeable = False
    array = xp.from_host(value)
    return lambda: array


@operator("ConstantOfShape", any_type=True, host_inputs=(0,), shape_inputs=(0,))
def constant_of_shape(info: KernelInfo, xp: Any) -> Compute:
    """A tensor of the given shape, filled with attribute ``value``: float zero without one."""
    tensor = info.attribute("value", None)
    value = np.zeros(1, dtype=np.float32) if tensor is None else tensor.numpy()
    if value.size != 1:
        raise InvalidGraph(f"{info.describe()}: attribute value must hold one element; its shape is {value.shape}")
    dtype, fill, full = xp.dtype(info.output_element_type(0)), value.reshape(()).item(), xp.full

    def compute(shape: HostArray) -> Array:
        return full(require_size(info.describe(), shape.tolist(), item_bytes(dtype)), fill, dtype=dtype)

    return compute
