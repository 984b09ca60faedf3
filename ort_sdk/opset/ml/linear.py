"""LinearRegressor and LinearClassifier."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import Compute, HostArray, InvalidArgument, InvalidGraph, KernelInfo
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.definition import operator

from .scores import class_labels, expand_binary, post_transform, regression_transform, transform_rows

__all__ = ["Linear", "LinearClassifier", "regressor_of"]

DOMAIN = "ai.onnx.ml"


@operator("LinearRegressor", domain=DOMAIN, host_only=True)
def linear_regressor(info: KernelInfo, xp: Any) -> Compute:
    """X · coefficients + intercepts as float, (N, targets)."""
    linear = regressor_of(info)
    transform = regression_transform(post_transform(info), linear.intercepts.size)
    return lambda x: transform(linear(x))


def regressor_of(info: KernelInfo) -> Linear:
    """What a LinearRegressor computes before its transform.

    Raises:
        InvalidGraph: there are not as many coefficients as it needs.
    """
    targets = info.attribute("targets", 1)
    return Linear(info, targets, info.attribute("intercepts", None) or [0.0] * targets)


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
    return LinearClassifier(Linear(info, len(intercepts), intercepts), labels, post_transform(info))


@dataclass(frozen=True, slots=True)
class LinearClassifier:
    """(N, F) → the winning classes' labels, (N), and the scores, (N, classes)."""

    linear: Linear
    labels: HostArray
    post_transform: str

    @property
    def is_binary(self) -> bool:
        """Whether there is one score for two classes."""
        return bool(self.linear.intercepts.size == 1)

    def __call__(self, x: HostArray) -> tuple[HostArray, HostArray]:
        """Both outputs."""
        scores = self.linear(x)
        if self.is_binary:
            winners = (scores[:, 0] > 0).astype(np.intp)
            return self.labels[winners], expand_binary(scores, self.post_transform, is_probability=True)
        return self.labels[scores.argmax(axis=1)], transform_rows(self.post_transform)(scores)


class Linear:
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
        self.coefficients = np.ascontiguousarray(coefficients.reshape(rows, -1).T)
        self.intercepts = np.asarray(intercepts, dtype=np.float32)

    def __call__(self, x: HostArray) -> HostArray:
        matrix = x.reshape(1, -1) if x.ndim < 2 else x
        features = self.coefficients.shape[0]
        if matrix.ndim != 2 or matrix.shape[1] != features:
            raise InvalidArgument(f"{self._info.describe()}: input of shape {x.shape} must be [N, {features}]")
        scores: HostArray = matrix.astype(np.float32, copy=False) @ self.coefficients + self.intercepts
        return scores


def _declared_features(info: KernelInfo) -> int | None:
    """Width of rows by the model's declaration of X; None if it gives none."""
    shape = None if info.inputs[0] is None else info.inputs[0].shape
    width = shape[-1] if shape else None
    return width if isinstance(width, int) and width > 0 else None
