"""SVMRegressor and SVMClassifier, with libsvm's voting and probability estimates."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np

from ort_sdk.api import Compute, HostArray, InvalidArgument, InvalidGraph, KernelInfo
from ort_sdk.opset.definition import operator

from .scores import class_labels, expand_binary, post_transform, transform_rows

__all__ = ["Coupling", "Kernel", "Machine", "svm_classifier", "svm_regressor"]

DOMAIN = "ai.onnx.ml"
_FEW_SCORES = 1 << 5
"""Scores whose votes are counted before NumPy has begun."""


@operator("SVMRegressor", domain=DOMAIN, host_only=True)
def svm_regressor(info: KernelInfo, xp: Any) -> Compute:
    """Sum of kernel values with the support vectors, weighted, plus rho, as float, (N, 1).

    Without support vectors it is linear. A one-class machine gives 1 above zero and -1 else. ``post_transform`` has no
    effect, as in ONNX Runtime.
    """
    post_transform(info)
    coefficients = _floats(info, "coefficients")
    count = info.attribute("n_supports", 0)
    kernel = Kernel(info, count) if count else _matrix_input(info, coefficients.size)
    if count and coefficients.size != count:
        raise InvalidGraph(f"{info.describe()}: {coefficients.size} coefficients are given for {count} support vectors")
    one_class = bool(info.attribute("one_class", 0))

    def finish(scores: HostArray) -> HostArray:
        return np.where(scores > 0, np.float32(1), np.float32(-1)) if one_class else scores.astype(np.float32)

    return Machine(kernel, coefficients[:, np.newaxis], _floats(info, "rho")[:1], finish, is_one_class=one_class)


@operator("SVMClassifier", domain=DOMAIN, host_only=True)
def svm_classifier(info: KernelInfo, xp: Any) -> Compute:
    """The class with the most votes of pairwise comparisons, and scores as float.

    Scores are probabilities (N, classes); without ``prob_a`` one for each pair of classes (for two classes: one for each);
    without support vectors linear ones (N, classes).
    """
    labels = class_labels(info, "classlabels_ints", "classlabels_strings")
    sizes = info.attribute("vectors_per_class", None) or []
    return _svc(info, labels, sizes) if sizes else _linear_classifier(info, labels)


def _linear_classifier(info: KernelInfo, labels: HostArray) -> Compute:
    coefficients = _floats(info, "coefficients")
    if coefficients.size % labels.size:
        raise InvalidGraph(f"{info.describe()}: {coefficients.size} coefficients do not make rows for {labels.size} classes")
    weights = coefficients.reshape(labels.size, -1).T.astype(np.float32)
    matrix_of = _matrix_input(info, weights.shape[0])
    rho = np.float32(_floats(info, "rho")[0])
    # For two classes ONNX Runtime, which alone defines this mode, lets the second one win above a limit.
    limit = 0.5 if coefficients.min() >= 0 else 0.0
    name = post_transform(info)
    transform = transform_rows(name if labels.size > 1 or name == "PROBIT" else "NONE")

    def compute(x: HostArray) -> tuple[HostArray, HostArray]:
        scores = matrix_of(x).astype(np.float32) @ weights + rho
        winners = scores.argmax(axis=1)
        if labels.size == 2:
            winners = np.where(scores.max(axis=1) > limit, 1, winners)
        return labels[winners], transform(scores)

    return compute


def _svc(info: KernelInfo, labels: HostArray, sizes: list[int]) -> Compute:
    if labels.size != len(sizes) or labels.size < 2:
        raise InvalidGraph(
            f"{info.describe()}: {labels.size} labels and {len(sizes)} vectors_per_class are given; both need one for each class"
        )
    kernel = Kernel(info, sum(sizes))
    pairs = list(combinations(range(labels.size), 2))
    weights = _pair_weights(info, sizes, pairs)
    rho = _per_pair(info, "rho", pairs)
    first, second = (np.array(column, dtype=np.intp) for column in zip(*pairs, strict=True))
    coupling = Coupling(info, labels.size, pairs) if info.attribute("prob_a", None) else None
    name = post_transform(info)
    transform = transform_rows(name)

    def top_of(scores: HostArray) -> HostArray:
        if scores.size <= _FEW_SCORES:
            return np.asarray(labels.take([_elected(row, pairs, labels.size) for row in scores.tolist()]))
        winners = np.where(scores > 0, first, second)
        if labels.size > 2:
            winners = (winners[:, :, np.newaxis] == np.arange(labels.size)).sum(axis=1).argmax(axis=1, keepdims=True)
        return np.asarray(labels[winners[:, 0]])

    def finish(scores: HostArray) -> tuple[HostArray, HostArray]:
        top = top_of(scores)
        if coupling is not None:
            return top, transform(coupling(scores).astype(np.float32))
        scores = scores.astype(np.float32)
        if labels.size == 2:
            return top, expand_binary(scores, name, is_probability=name != "NONE")
        return top, transform(scores)

    return Machine(kernel, weights, rho, finish, coupling, labels=labels, post_transform=name)


def _elected(scores: list[float], pairs: list[tuple[int, int]], classes: int) -> int:
    """The first class of those with the most votes: of each pair, the first has one if the score is above zero."""
    votes = [0] * classes
    for score, (first, second) in zip(scores, pairs, strict=True):
        votes[first if score > 0 else second] += 1
    return votes.index(max(votes))


class Machine:
    """Scores of rows, and what they come to. As a function of x (N, F): the node's outputs.

    Args:
        kernel: from rows to kernel values (N, vectors), in float64; a function that only widens them for a linear machine.
        weights: of each support vector for each score, float64 (vectors, scores).
        rho: what is added, float64 (scores,).
        finish: from scores (N, scores) to outputs.
        coupling: makes probabilities of scores; None if the outputs have none.
        labels: of the classes; None for a regressor.
        post_transform: what is done to a classifier's scores.
        is_one_class: whether a regressor gives only the sign of its score.
    """

    def __init__(
        self,
        kernel: Callable[[HostArray], HostArray],
        weights: HostArray,
        rho: HostArray,
        finish: Callable[[HostArray], Any],
        coupling: Coupling | None = None,
        *,
        labels: HostArray | None = None,
        post_transform: str = "NONE",
        is_one_class: bool = False,
    ) -> None:
        self.kernel, self.weights, self.rho, self.coupling = kernel, weights, rho, coupling
        self.labels, self.post_transform, self.is_one_class = labels, post_transform, is_one_class
        self._finish = finish

    def __call__(self, x: HostArray) -> Any:
        """The node's outputs."""
        return self._finish(self.kernel(x) @ self.weights + self.rho)


def _pair_weights(info: KernelInfo, sizes: list[int], pairs: list[tuple[int, int]]) -> HostArray:
    """Weights of all support vectors for each pair of classes, (vectors, pairs), from libsvm's compact layout."""
    vectors = sum(sizes)
    coefficients = _floats(info, "coefficients")
    if coefficients.size != vectors * (len(sizes) - 1):
        raise InvalidGraph(
            f"{info.describe()}: {coefficients.size} coefficients are given; {len(sizes)} classes with {vectors} support vectors "
            f"need {vectors * (len(sizes) - 1)}"
        )
    rows = coefficients.reshape(len(sizes) - 1, vectors)
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    weights = np.zeros((vectors, len(pairs)))
    for pair, (i, j) in enumerate(pairs):
        of_i, of_j = slice(bounds[i], bounds[i + 1]), slice(bounds[j], bounds[j + 1])
        weights[of_i, pair] = rows[j - 1, of_i]
        weights[of_j, pair] = rows[i, of_j]
    return weights


class Kernel:
    """Kernel values of rows with the support vectors, (N, F) → (N, vectors), in float64.

    Args:
        info: the node.
        vectors: how many support vectors it has.
    """

    def __init__(self, info: KernelInfo, vectors: int) -> None:
        values = _floats(info, "support_vectors")
        if not values.size or values.size % vectors:
            raise InvalidGraph(f"{info.describe()}: {values.size} support_vectors values do not make {vectors} vectors")
        self.supports = values.reshape(vectors, -1).T
        self._matrix_of = _matrix_input(info, self.supports.shape[0])
        self.kind = info.attribute("kernel_type", "LINEAR")
        gamma, coef0, degree = [*(info.attribute("kernel_params", None) or ()), 0.0, 0.0, 0.0][:3]
        self.gamma, self.coef0, self.degree = gamma, coef0, degree
        self._squares = (self.supports * self.supports).sum(axis=0)
        kernels: dict[str, Callable[[HostArray], HostArray]] = {
            "LINEAR": lambda products: products,
            "POLY": lambda products: _power(gamma * products + coef0, degree),
            "RBF": lambda distances: np.exp(-gamma * np.maximum(distances, 0)),
            "SIGMOID": lambda products: np.tanh(gamma * products + coef0),
        }
        if self.kind not in kernels:
            raise InvalidGraph(f"{info.describe()}: kernel_type '{self.kind}' is unknown; allowed are {', '.join(kernels)}")
        self._function = kernels[self.kind]

    def __call__(self, x: HostArray) -> HostArray:
        """The values."""
        wide = self._matrix_of(x)
        values = wide @ self.supports
        if self.kind == "RBF":
            values = (wide * wide).sum(axis=1, keepdims=True) + self._squares - 2 * values
        return self._function(values)


def _power(x: HostArray, exponent: float) -> HostArray:
    """Products for the usual exponent 3: general powers are many times slower. NumPy does so for 2."""
    result: HostArray = x * x * x if exponent == 3 else x**exponent
    return result


def _matrix_input(info: KernelInfo, features: int) -> Callable[[HostArray], HostArray]:
    def matrix_of(x: HostArray) -> HostArray:
        matrix = x.reshape(1, -1) if x.ndim < 2 else x
        if matrix.ndim != 2 or matrix.shape[1] != features:
            raise InvalidArgument(f"{info.describe()}: input of shape {x.shape} must be [N, {features}]")
        wide: HostArray = matrix.astype(np.float64)
        return wide

    return matrix_of


class Coupling:
    """Class probabilities (N, classes) of pair scores (N, pairs).

    Args:
        info: the node.
        classes: how many there are.
        pairs: the classes that scores compare.
    """

    def __init__(self, info: KernelInfo, classes: int, pairs: list[tuple[int, int]]) -> None:
        self.classes = classes
        self.slope, self.shift = _per_pair(info, "prob_a", pairs), _per_pair(info, "prob_b", pairs)
        self._first, self._second = np.array(pairs, dtype=np.intp).T
        self._logistic = transform_rows("LOGISTIC")

    def __call__(self, scores: HostArray) -> HostArray:
        """The probabilities, in float64."""
        pairwise = np.clip(self._logistic(-(scores * self.slope + self.shift)), 1e-7, 1 - 1e-7)
        matrix = np.zeros((len(scores), self.classes, self.classes))
        matrix[:, self._first, self._second] = pairwise
        matrix[:, self._second, self._first] = 1 - pairwise
        return _coupled(matrix)


def _coupled(pairwise: HostArray) -> HostArray:
    """Class probabilities that fit pairwise ones best, by the iteration of Wu, Lin and Weng (2004), all rows at once.

    Args:
        pairwise: probability of the first class against the second, (N, classes, classes), zeros on the diagonal.
    """
    rows, classes = pairwise.shape[:2]
    mixed = -pairwise.transpose(0, 2, 1) * pairwise
    diagonal = np.arange(classes)
    mixed[:, diagonal, diagonal] = (pairwise * pairwise).sum(axis=1)
    estimates = np.full((rows, classes), 1 / classes)
    active = np.arange(rows)
    for _ in range(max(100, classes)):
        q, p = mixed[active], estimates[active]
        qp = np.einsum("nij,nj->ni", q, p)
        pqp = (p * qp).sum(axis=1)
        unfinished = np.abs(qp - pqp[:, np.newaxis]).max(axis=1) >= 0.005 / classes
        if not unfinished.any():
            break
        active = active[unfinished]
        estimates[active] = _coupling_step(q[unfinished], p[unfinished], qp[unfinished], pqp[unfinished])
    return estimates


def _coupling_step(q: HostArray, p: HostArray, qp: HostArray, pqp: HostArray) -> HostArray:
    for index in range(p.shape[1]):
        of_index = q[:, index, index]
        step = (pqp - qp[:, index]) / of_index
        p[:, index] += step
        scale = (1 + step)[:, np.newaxis]
        pqp = (pqp + step * (step * of_index + 2 * qp[:, index])) / (1 + step) ** 2
        qp = (qp + step[:, np.newaxis] * q[:, index, :]) / scale
        p = p / scale
    return p


def _per_pair(info: KernelInfo, name: str, pairs: list[tuple[int, int]]) -> HostArray:
    values = _floats(info, name)
    if values.size != len(pairs):
        raise InvalidGraph(
            f"{info.describe()}: {name} has {values.size} values; it needs one for each of {len(pairs)} pairs of classes"
        )
    return values


def _floats(info: KernelInfo, name: str) -> HostArray:
    return np.asarray(info.attribute(name), dtype=np.float64)
