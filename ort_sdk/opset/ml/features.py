"""Feature preparation, over any array library: selecting, joining, imputing, scaling and normalizing columns."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, InvalidGraph, KernelInfo, TensorElementType
from ort_sdk.opset.definition import operator

DOMAIN = "ai.onnx.ml"

_FLOATING = (TensorElementType.FLOAT, TensorElementType.DOUBLE)


@operator("ArrayFeatureExtractor", domain=DOMAIN, host_inputs=(1,), any_type=True, alias=((0, 0),))
def array_feature_extractor(info: KernelInfo, xp: Any) -> Compute:
    """Elements of the last axis at given indices; a vector is taken for a matrix of one row.

    Constant indices that follow each other give a view.
    """
    known = info.constant_input(1)
    known_bounds = None if known is None else _bounds(known)
    follow_each_other = known is not None and known.size > 0 and (np.diff(known.reshape(-1)) == 1).all()

    def compute(x: Array, y: HostArray) -> Array:
        length = x.shape[-1] if x.ndim else 0
        least, greatest = known_bounds or _bounds(y)
        if not 0 <= least <= greatest < length:
            raise InvalidArgument(f"{info.describe()}: indices {y.tolist()} must be one or more in [0, {length})")
        if follow_each_other and x.ndim > 1:
            return x[..., least : greatest + 1]
        indices = y.reshape(-1)
        taken = xp.take(x, xp.from_host(indices), axis=x.ndim - 1)
        return xp.reshape(taken, (1, -1)) if x.ndim == 1 else taken

    return compute


def _bounds(indices: HostArray) -> tuple[int, int]:
    """The least and the greatest; -1 if there are none."""
    return (int(indices.min()), int(indices.max())) if indices.size else (-1, -1)


@operator("Binarizer", domain=DOMAIN)
def binarizer(info: KernelInfo, xp: Any) -> Compute:
    """1 where an element is greater than the threshold, else 0, in the input's type."""
    element_type = info.input_element_type(0)
    threshold = info.attribute("threshold", 0.0)
    dtype = xp.dtype(element_type)
    # For integers, greater than 1.5 is greater than 1.
    limit = xp.asarray(threshold if element_type in _FLOATING else math.floor(threshold), dtype=dtype)
    return lambda x: xp.astype(x > limit, element_type)


@operator("FeatureVectorizer", domain=DOMAIN)
def feature_vectorizer(info: KernelInfo, xp: Any) -> Compute:
    """Columns of all inputs side by side as float, each input cut or filled with zeros to its size in ``inputdimensions``."""
    sizes = info.attribute("inputdimensions", None)
    if sizes is not None and (len(sizes) != len(info.inputs) or any(size < 0 for size in sizes)):
        raise InvalidGraph(
            f"{info.describe()}: inputdimensions {sizes} must give a size >= 0 for each of {len(info.inputs)} inputs"
        )
    to_type = xp.astype
    widths = sizes or [None] * len(info.inputs)
    are_float = info.element_types() == {TensorElementType.FLOAT}

    def columns(x: Array, size: int | None) -> Array:
        if are_float and x.ndim == 2 and size in (None, x.shape[1]):
            return x
        rows = x.shape[0] if x.ndim > 1 else 1
        matrix = to_type(xp.reshape(x, (rows, -1)), TensorElementType.FLOAT)
        missing = 0 if size is None else size - matrix.shape[1]
        if missing > 0:
            return xp.concat([matrix, xp.zeros((rows, missing), dtype=xp.float32)], axis=1)
        return matrix if size is None else matrix[:, :size]

    def compute(*inputs: Array) -> Array:
        matrices = [columns(x, size) for x, size in zip(inputs, widths, strict=True)]
        if len({matrix.shape[0] for matrix in matrices}) > 1:
            shapes = [tuple(x.shape) for x in inputs]
            raise InvalidArgument(f"{info.describe()}: inputs of shapes {shapes} must all have the same number of rows")
        return xp.concat(matrices, axis=1)

    return compute


@operator("Imputer", domain=DOMAIN)
def imputer(info: KernelInfo, xp: Any) -> Compute:
    """One value (NaN too) replaced by another, one for all features or one for each."""
    element_type = info.input_element_type(0)
    is_float = element_type in _FLOATING
    imputed = info.attribute("imputed_value_floats" if is_float else "imputed_value_int64s", None)
    if not imputed:
        raise InvalidGraph(
            f"{info.describe()}: {'imputed_value_floats' if is_float else 'imputed_value_int64s'} must be given for this "
            "type of input"
        )
    replaced = info.attribute("replaced_value_float", 0.0) if is_float else info.attribute("replaced_value_int64", 0)
    dtype = xp.dtype(element_type)
    values = xp.asarray(imputed, dtype=dtype)
    marker = xp.asarray(replaced, dtype=dtype)
    is_missing = xp.isnan if is_float and math.isnan(replaced) else lambda x: x == marker

    def compute(x: Array) -> Array:
        _check_features(info, x, len(imputed), "imputed values")
        return xp.where(is_missing(x), values, x)

    return compute


@operator("Normalizer", domain=DOMAIN)
def normalizer(info: KernelInfo, xp: Any) -> Compute:
    """Rows divided by their maximum, sum of magnitudes or Euclidean norm, as float; a row of zeros stays as it is."""
    norm = info.attribute("norm", "MAX")
    if norm not in ("MAX", "L1", "L2"):
        raise InvalidGraph(f"{info.describe()}: norm '{norm}' is unknown; allowed are MAX, L1 and L2")
    divisors: dict[str, Callable[[Array], Array]] = {
        "MAX": lambda x: xp.max(x, axis=-1, keepdims=True),
        "L1": lambda x: xp.sum(xp.abs(x), axis=-1, keepdims=True),
        "L2": lambda x: xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True)),
    }
    divisor = divisors[norm]
    to_type = xp.astype
    one = xp.asarray(1.0, dtype=xp.float32)

    def compute(x: Array) -> Array:
        if x.ndim not in (1, 2):
            raise InvalidArgument(f"{info.describe()}: input of shape {tuple(x.shape)} is not [C] or [N, C]")
        values = to_type(x, TensorElementType.FLOAT)
        by = divisor(values)
        return values / xp.where(by == 0, one, by)

    return compute


@operator("Scaler", domain=DOMAIN)
def scaler(info: KernelInfo, xp: Any) -> Compute:
    """(x - offset) * scale as float, with one offset and scale for all features or one for each."""
    scale, offset = info.attribute("scale"), info.attribute("offset")
    if len(scale) != len(offset) or not scale:
        raise InvalidGraph(
            f"{info.describe()}: {len(scale)} scales and {len(offset)} offsets are given; there must be equally many, at "
            "least one"
        )
    factor, shift = xp.asarray(scale, dtype=xp.float32), xp.asarray(offset, dtype=xp.float32)
    to_type = xp.astype

    def compute(x: Array) -> Array:
        _check_features(info, x, len(scale), "scales and offsets")
        return (to_type(x, TensorElementType.FLOAT) - shift) * factor

    return compute


def _check_features(info: KernelInfo, x: Array, count: int, what: str) -> None:
    if count != 1 and (x.ndim == 0 or x.shape[-1] != count):
        raise InvalidArgument(
            f"{info.describe()}: input of shape {tuple(x.shape)} must have {count} features in its last axis, one for each of "
            f"the {what}"
        )
