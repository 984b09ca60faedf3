"""LinearRegressor and LinearClassifier."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import Compute, HostArray, InvalidArgument, InvalidGraph, KernelInfo
from ort_sdk.opset.definition import operator

from .scores import class_labels, expand_binary, post_transform, regression_transform, transform_rows

DOMAIN = "ai.onnx.ml"


@operator("LinearRegressor", domain=DOMAIN, host_only=True)
def linear_regressor(info: KernelInfo, xp: Any) -> Compute:
    """X · coefficients + intercepts as float, (N, targets)."""
    targets = info.attribute("targets", 1)
    linear = _Linear(info, targets, info.attribute("intercepts", None) or [0.0] * targets)
    transform = regression_transform(post_transform(info), targets)
    return lambda x: transform(linear(x))


@operator("LinearClassifier", domain=DOMAIN, host_only=True)
def linear_classifier(info: KernelInfo, xp: Any) -> Compute:
    """The class with the highest score x · coefficients + intercepts, and the scores as float, (N, classes).

    One row of coefficients for two classes scores the second class, which wins with a score above zero.
    """
    labels = class_labels(info, "classlabels_ints", "classlabels_strings")
    intercepts = info.attribute("intercepts", None) or [0.0]
    is_binary = len(intercepts) == 1
    if labels.size != (2 if is_binary else len(intercepts)):
        raise InvalidGraph(
            f"{info.describe()}: {labels.size} class labels and {len(intercepts)} intercepts are given; there must be one "
            "intercept for each class, or one for two classes"
        )
    linear = _Linear(info, len(intercepts), intercepts)
    name = post_transform(info)
    transform = transform_rows(name)

    def compute(x: HostArray) -> tuple[HostArray, HostArray]:
        scores = linear(x)
        if is_binary:
            return labels[(scores[:, 0] > 0).astype(np.intp)], expand_binary(scores, name, is_probability=True)
        return labels[scores.argmax(axis=1)], transform(scores)

    return compute


class _Linear:
    """Scores of rows, (N, F) or (F,) → (N, rows of coefficients), in float."""

    def __init__(self, info: KernelInfo, rows: int, intercepts: list[float]) -> None:
        coefficients = np.asarray(info.attribute("coefficients"), dtype=np.float32)
        if rows < 1 or coefficients.size % rows or not coefficients.size or len(intercepts) != rows:
            raise InvalidGraph(
                f"{info.describe()}: {coefficients.size} coefficients and {len(intercepts)} intercepts are given for {rows} rows "
                "of scores; there must be as many coefficients for each row, and one intercept"
            )
        self._info = info
        features = _declared_features(info)
        if features is not None and rows * features <= coefficients.size:
            # As in ONNX Runtime, a model whose input is narrower than its coefficients uses the first of them.
            coefficients = coefficients[: rows * features]
        self._coefficients = np.ascontiguousarray(coefficients.reshape(rows, -1).T)
        self._intercepts = np.asarray(intercepts, dtype=np.float32)

    def __call__(self, x: HostArray) -> HostArray:
        matrix = x.reshape(1, -1) if x.ndim < 2 else x
        features = self._coefficients.shape[0]
        if matrix.ndim != 2 or matrix.shape[1] != features:
            raise InvalidArgument(f"{self._info.describe()}: input of shape {x.shape} must be [N, {features}]")
        scores: HostArray = matrix.astype(np.float32, copy=False) @ self._coefficients + self._intercepts
        return scores


def _declared_features(info: KernelInfo) -> int | None:
    """Width of rows by the model's declaration of X; None if it gives none."""
    shape = None if info.inputs[0] is None else info.inputs[0].shape
    width = shape[-1] if shape else None
    return width if isinstance(width, int) and width > 0 else None
