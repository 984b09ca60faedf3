"""What the classifiers and regressors of ai.onnx.ml do to their scores after computing them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ort_sdk.api import HostArray, InvalidGraph, KernelInfo

__all__ = ["POST_TRANSFORMS", "class_labels", "expand_binary", "post_transform", "regression_transform", "transform_rows"]

ScoreFunction = Callable[[HostArray], HostArray]

POST_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""Names in the order of TreeEnsemble's numbers for them."""

_ZERO = 1e-7
"""Scores not larger than this are no scores to SOFTMAX_ZERO, as in ONNX Runtime."""


def post_transform(info: KernelInfo) -> str:
    """The attribute ``post_transform``, by name.

    Raises:
        InvalidGraph: it is unknown.
    """
    value = info.attribute("post_transform", "NONE")
    if isinstance(value, int) and 0 <= value < len(POST_TRANSFORMS):
        return POST_TRANSFORMS[value]
    if value not in POST_TRANSFORMS:
        raise InvalidGraph(f"{info.describe()}: post_transform {value!r} is unknown; allowed are {', '.join(POST_TRANSFORMS)}")
    name: str = value
    return name


def transform_rows(name: str) -> ScoreFunction:
    """Function that transforms scores of several classes, row by row: (N, C) → (N, C)."""
    return _TRANSFORMS[name]


def regression_transform(name: str, targets: int) -> ScoreFunction:
    """Function that transforms scores of a regressor: (N, targets) → (N, targets).

    A single score is only transformed by PROBIT, as in ONNX Runtime.
    """
    return transform_rows(name if targets > 1 or name == "PROBIT" else "NONE")


def expand_binary(score: HostArray, name: str, *, is_probability: bool) -> HostArray:
    """Transformed scores of both classes, (N, 2), from the score of the second one, (N, 1).

    Args:
        score: the second class's.
        name: post transform; SOFTMAX and SOFTMAX_ZERO change nothing here, as in ONNX Runtime.
        is_probability: whether both scores add up to one, or to zero.
    """
    if name == "LOGISTIC":
        return _logistic(np.concatenate([-score, score], axis=1))
    both = np.concatenate([1 - score if is_probability else -score, score], axis=1)
    return _probit(both) if name == "PROBIT" else both


def class_labels(info: KernelInfo, *names: str) -> HostArray:
    """The attribute of class labels that is given, as a vector of int64 or of strings (object).

    Raises:
        InvalidGraph: none or several of the attributes are given.
    """
    given = [info.attribute(name) for name in names if info.attribute(name, None)]
    if len(given) != 1:
        raise InvalidGraph(f"{info.describe()}: exactly one of {' and '.join(names)} must be given, not {len(given)}")
    labels = np.empty(len(given[0]), dtype=object if isinstance(given[0][0], str) else np.int64)
    labels[:] = given[0]
    return labels


def _unchanged(scores: HostArray) -> HostArray:
    return scores


def _softmax(scores: HostArray) -> HostArray:
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    result: HostArray = exponentials / exponentials.sum(axis=1, keepdims=True)
    return result


def _softmax_zero(scores: HostArray) -> HostArray:
    """Softmax of the scores that are not zero; the others stay zero."""
    is_score = np.abs(scores) > _ZERO
    exponentials = np.where(is_score, np.exp(scores - scores.max(axis=1, keepdims=True)), 0)
    total = exponentials.sum(axis=1, keepdims=True)
    result: HostArray = np.divide(exponentials, total, out=np.zeros_like(exponentials), where=total > 0)
    return result


def _logistic(scores: HostArray) -> HostArray:
    small = np.exp(-np.abs(scores))
    result: HostArray = np.where(scores >= 0, 1, small) / (1 + small)
    return result


def _probit(scores: HostArray) -> HostArray:
    """Quantile of the normal distribution by Winitzki's formula (error below 0.005), which ONNX Runtime uses too."""
    x = 2 * scores.astype(np.float64) - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithm = np.log((1 - x) * (1 + x))
        half = 2 / (np.pi * 0.147) + logarithm / 2
        inverse = np.sqrt(np.sqrt(half * half - logarithm / 0.147) - half)
        result: HostArray = np.copysign(inverse, x) * np.sqrt(2.0)
    return result.astype(scores.dtype)


_TRANSFORMS: dict[str, ScoreFunction] = {
    "NONE": _unchanged,
    "SOFTMAX": _softmax,
    "LOGISTIC": _logistic,
    "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": _probit,
}
