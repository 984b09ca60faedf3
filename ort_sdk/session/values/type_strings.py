"""ONNX type strings of values that are not described by a model."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import Fail, InvalidArgument, TensorElementType, tensor_type

__all__ = ["given_element_type", "type_of_value"]


def type_of_value(value: Any) -> str:
    """Type of a host value: array, list, dict; what it is not known to be is said in Python's words."""
    if isinstance(value, (np.ndarray, np.generic)):
        return _type_of_array(value)
    if isinstance(value, (list, tuple)):
        return f"seq({type_of_value(value[0])})" if value else "seq(tensor(float))"
    if isinstance(value, dict):
        return _type_of_map(value)
    return "optional(tensor(float))" if value is None else type(value).__name__


def _type_of_array(array: Any) -> str:
    try:
        return tensor_type(TensorElementType.from_numpy_dtype(array.dtype))
    except InvalidArgument:
        return f"NumPy array of {array.dtype}"


def _type_of_map(value: dict[Any, Any]) -> str:
    key = "string" if all(isinstance(name, str) for name in value) else "int64"
    sample = next(iter(value.values()), 0.0)
    kind = "string" if isinstance(sample, str) else "int64" if isinstance(sample, (int, np.integer)) else "float"
    return f"map({key},tensor({kind}))"


def given_element_type(element_type: Any) -> TensorElementType:
    """Element type for a NumPy type or ONNX's code.

    Raises:
        Fail: it is neither.
    """
    try:
        if isinstance(element_type, (int, np.integer)) and not isinstance(element_type, bool):
            return TensorElementType(int(element_type))
        return TensorElementType.from_numpy_dtype(element_type)
    except (TypeError, ValueError) as error:
        raise Fail(f"Not a valid numpy type or ONNX Tensor data type: {element_type!r}") from error
