"""CastMap, DictVectorizer and ZipMap: between dictionaries and tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ort_sdk.api import Compute, HostArray, InvalidArgument, InvalidGraph, KernelInfo, TensorElementType
from ort_sdk.opset.definition import operator

from .scores import class_labels

DOMAIN = "ai.onnx.ml"

_CASTS: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    "TO_FLOAT": (float, np.dtype(np.float32), 0.0),
    "TO_STRING": (lambda value: value if isinstance(value, str) else f"{value:f}", np.dtype(object), ""),
    "TO_INT64": (lambda value: int(float(value)), np.dtype(np.int64), 0),
}
"""cast_to → conversion of one value, dtype, padding."""


@operator("CastMap", domain=DOMAIN, shape_inputs=None, host_only=True)
def cast_map(info: KernelInfo, xp: Any) -> Compute:
    """Values of a map in the order of its int64 keys, (1, count); or each at its key's index among zeros, (1, max_map).

    Raises:
        InvalidGraph: an attribute is unknown.
    """
    cast_to, map_form = info.attribute("cast_to", "TO_FLOAT"), info.attribute("map_form", "DENSE")
    if cast_to not in _CASTS or map_form not in ("DENSE", "SPARSE"):
        raise InvalidGraph(
            f"{info.describe()}: cast_to '{cast_to}' must be one of {', '.join(_CASTS)}, and map_form '{map_form}' DENSE or "
            "SPARSE"
        )
    cast, dtype, padding = _CASTS[cast_to]
    max_map = info.attribute("max_map", 1)

    def compute(x: Mapping[int, Any]) -> HostArray:
        keys = sorted(x)
        if keys and keys[0] < 0:
            raise InvalidArgument(f"{info.describe()}: key {keys[0]} of the map is negative")
        if map_form == "SPARSE" and keys and keys[-1] >= max_map:
            raise InvalidArgument(f"{info.describe()}: key {keys[-1]} of the map is not below max_map = {max_map}")
        result = np.full((1, max_map if map_form == "SPARSE" else len(keys)), padding, dtype=dtype)
        result[0, keys if map_form == "SPARSE" else slice(None)] = [_converted(info, cast, x[key]) for key in keys]
        return result

    return compute


@operator("DictVectorizer", domain=DOMAIN, shape_inputs=None, host_only=True)
def dict_vectorizer(info: KernelInfo, xp: Any) -> Compute:
    """Values of a map at the indices of their keys in a vocabulary, zeros elsewhere; (1, length of the vocabulary)."""
    vocabulary = info.attribute("string_vocabulary", None) or info.attribute("int64_vocabulary", None)
    if not vocabulary:
        raise InvalidGraph(f"{info.describe()}: one of string_vocabulary and int64_vocabulary must be given; neither is")
    element_type = info.output_element_type(0)
    dtype = np.dtype(np.float32) if element_type is None else element_type.numpy_dtype
    padding = "" if element_type is TensorElementType.STRING else 0

    def compute(x: Mapping[Any, Any]) -> HostArray:
        values = [x.get(key, padding) for key in vocabulary]
        result = np.empty((1, len(vocabulary)), dtype=dtype)
        result[0, :] = values
        return result

    return compute


@operator("ZipMap", domain=DOMAIN, shape_inputs=None, host_only=True)
def zip_map(info: KernelInfo, xp: Any) -> Compute:
    """For each row of scores a map from class label to score, as a list."""
    labels = class_labels(info, "classlabels_strings", "classlabels_int64s").tolist()
    maps = _zipped(labels)

    def compute(x: HostArray) -> list[dict[Any, float]]:
        rows = x.reshape(1, -1) if x.ndim == 1 else x
        if rows.ndim != 2 or rows.shape[1] != len(labels):
            raise InvalidArgument(
                f"{info.describe()}: input of shape {x.shape} must have one column for each of the {len(labels)} labels"
            )
        return maps(rows.tolist())

    return compute


def _zipped(labels: list[Any]) -> Callable[[list[list[float]]], list[dict[Any, float]]]:
    """Function that makes maps of rows, in their keys' order as ONNX Runtime's are; of a few scores in a third of the time."""
    order = sorted(range(len(labels)), key=labels.__getitem__)
    if order == [0, 1]:
        a, b = labels
        return lambda rows: [{a: x, b: y} for x, y in rows]
    if order == [1, 0]:
        a, b = labels
        return lambda rows: [{b: y, a: x} for x, y in rows]
    if order == [0, 1, 2]:
        a, b, c = labels
        return lambda rows: [{a: x, b: y, c: z} for x, y, z in rows]
    keys = [labels[index] for index in order]
    if order == [*range(len(labels))]:
        return lambda rows: [dict(zip(keys, row, strict=True)) for row in rows]
    return lambda rows: [dict(zip(keys, map(row.__getitem__, order), strict=True)) for row in rows]


def _converted(info: KernelInfo, cast: Callable[[Any], Any], value: Any) -> Any:
    try:
        return cast(value)
    except ValueError as error:
        raise InvalidArgument(f"{info.describe()}: value {value!r} of the map is no number: {error}") from error
