"""LabelEncoder, CategoryMapper and OneHotEncoder: elements looked up in a list."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import Compute, HostArray, InvalidArgument, InvalidGraph, KernelInfo, Tensor
from ort_sdk.opset.definition import operator

from .lookup import as_vector, element_mapper, position_finder

DOMAIN = "ai.onnx.ml"

_FEW_ELEMENTS = 1 << 4
"""Numbers that are looked up one by one in less time than NumPy takes to be called."""
_FEW_KEYS = 1 << 10
"""For which there may be a dictionary beside a table."""
_DEFAULTS = {"strings": "_Unused", "int64s": -1, "floats": -0.0}


@operator("LabelEncoder", domain=DOMAIN, until=1, host_only=True)
def label_encoder_1(info: KernelInfo, xp: Any) -> Compute:
    """Strings to their positions in a list, or positions to strings; a default where there is none."""
    classes = as_vector(info.attribute("classes_strings"))
    return _between(info, classes, np.arange(len(classes), dtype=np.int64))


@operator("CategoryMapper", domain=DOMAIN, host_only=True)
def category_mapper(info: KernelInfo, xp: Any) -> Compute:
    """Strings to integers or integers to strings, by two parallel lists; a default where there is none."""
    strings, integers = as_vector(info.attribute("cats_strings")), as_vector(info.attribute("cats_int64s"))
    _check_parallel(info, "cats_strings", strings, "cats_int64s", integers)
    return _between(info, strings, integers)


@operator("LabelEncoder", domain=DOMAIN, since=2, host_only=True)
def label_encoder_2(info: KernelInfo, xp: Any) -> Compute:
    """Keys to values by two parallel lists or tensors; a default where there is none. The first of equal keys counts."""
    keys_name, keys = _given_list(info, "keys")
    values_name, values = _given_list(info, "values")
    _check_parallel(info, keys_name, keys, values_name, values)
    return _mapping(keys, values, _default(info, values_name, values))


@operator("OneHotEncoder", domain=DOMAIN, host_only=True)
def one_hot_encoder(info: KernelInfo, xp: Any) -> Compute:
    """For each element a row of zeros with a one at the index of its category (float, one more axis than the input)."""
    categories = categories_of(info)
    find = position_finder(categories)
    allow_unknown = bool(info.attribute("zeros", 1))
    width = categories.size

    def compute(x: HostArray) -> HostArray:
        positions = find(x.astype(np.int64) if x.dtype.kind == "f" else x)
        if not allow_unknown and (positions < 0).any():
            unknown = x[positions < 0].ravel()[0]
            raise InvalidArgument(f"{info.describe()}: {unknown!r} is no known category and zeros = 0 allows no others")
        rows = np.zeros((*positions.shape, width), np.float32)
        set_ones(rows.reshape(-1), positions.reshape(-1), width)
        return rows

    return compute


def set_ones(elements: HostArray, positions: HostArray, width: int) -> None:
    """Set an element of each row of so many to one, where its position is not negative."""
    offsets = np.arange(0, elements.size, width) + positions
    elements[offsets if positions.min(initial=0) >= 0 else offsets[positions >= 0]] = 1


def categories_of(info: KernelInfo) -> HostArray:
    """Those of a OneHotEncoder.

    Raises:
        InvalidGraph: there are none.
    """
    categories = as_vector(info.attribute("cats_strings", None) or info.attribute("cats_int64s", None) or ())
    if not categories.size:
        raise InvalidGraph(f"{info.describe()}: one of cats_strings and cats_int64s must list the categories; neither does")
    return categories


def _between(info: KernelInfo, strings: HostArray, integers: HostArray) -> Compute:
    """Integers to strings if the node's input holds integers, the other way round if it holds strings."""
    if info.input_type(0) == "tensor(string)":
        return _mapping(strings, integers, np.int64(info.attribute("default_int64", -1)))
    return _mapping(integers, strings, info.attribute("default_string", "_Unused"))


def _mapping(keys: HostArray, values: HostArray, default: Any) -> Compute:
    if keys.dtype == object:
        return _one_by_one(keys, values, default)
    find = position_finder(keys)
    choices = np.empty(values.size + 1, dtype=values.dtype)
    choices[:-1] = values
    choices[-1] = default

    def compute(x: HostArray) -> HostArray:
        return np.asarray(choices[find(x)], dtype=choices.dtype)

    # What is no number is one key in a table, and none in a dictionary.
    if keys.size > _FEW_KEYS or np.isnan(keys).any():
        return compute
    few = _one_by_one(keys, values, default)
    return lambda x: few(x) if x.size <= _FEW_ELEMENTS else compute(x)


def _one_by_one(keys: HostArray, values: HostArray, default: Any) -> Compute:
    kept = np.asarray(default, values.dtype).item()
    return element_mapper(keys.tolist(), values.tolist(), kept, values.dtype)


def _given_list(info: KernelInfo, kind: str) -> tuple[str, HostArray]:
    """Name and contents of the one attribute ``kind_*`` that is given.

    Raises:
        InvalidGraph: none or several are given.
    """
    names = [f"{kind}_{suffix}" for suffix in ("strings", "int64s", "floats", "tensor")]
    given = [name for name in names if info.attribute(name, None) not in (None, [])]
    if len(given) != 1:
        raise InvalidGraph(f"{info.describe()}: exactly one of {', '.join(names)} must be given, not {given or 'none'}")
    value = info.attribute(given[0])
    if given[0].endswith("tensor"):
        return given[0], value.numpy().reshape(-1)
    return given[0], np.asarray(value, dtype=np.float32) if given[0].endswith("floats") else as_vector(value)


def _default(info: KernelInfo, values_name: str, values: HostArray) -> Any:
    suffix = values_name.rpartition("_")[2]
    tensor: Tensor | None = info.attribute("default_tensor", None)
    if tensor is not None:
        return tensor.numpy().reshape(-1)[0]
    if suffix == "tensor":
        suffix = {"O": "strings", "f": "floats"}.get(values.dtype.kind, "int64s")
        return _DEFAULTS[suffix]
    return info.attribute(f"default_{suffix.removesuffix('s')}", _DEFAULTS[suffix])


def _check_parallel(info: KernelInfo, first_name: str, first: HostArray, second_name: str, second: HostArray) -> None:
    if first.size != second.size:
        raise InvalidGraph(
            f"{info.describe()}: {first_name} has {first.size} entries and {second_name} {second.size}; "
            "they are parallel and must be equally long"
        )
