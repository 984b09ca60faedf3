"""NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, InvalidArgument, InvalidGraph, KernelInfo, TensorElementType
from ort_sdk.opset.definition import operator

__all__ = ["negative_log_likelihood_loss", "softmax_cross_entropy_loss"]

REDUCTIONS = ("none", "sum", "mean")


@operator("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(info: KernelInfo, xp: Any) -> Compute:
    """Loss of log-probabilities (N, C, ...) for target classes (N, ...)."""
    return _loss(info, xp)


@operator("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(info: KernelInfo, xp: Any) -> Compute:
    """Loss of unnormalized scores (N, C, ...) for target classes (N, ...); also gives log-probabilities."""
    loss = _loss(info, xp)

    def compute(scores: Array, labels: Array, weights: Array | None = None) -> tuple[Array, Array]:
        shifted = scores - xp.max(scores, axis=1, keepdims=True)
        log_prob = shifted - xp.log(xp.sum(xp.exp(shifted), axis=1, keepdims=True))
        return loss(log_prob, labels, weights), log_prob

    return compute


def _loss(info: KernelInfo, xp: Any) -> Compute:
    reduction = info.attribute("reduction", "mean")
    if reduction not in REDUCTIONS:
        raise InvalidGraph(f"{info.describe()}: reduction is '{reduction}'; it must be one of {', '.join(REDUCTIONS)}")
    ignore_index = info.attribute("ignore_index", None)

    def compute(log_prob: Array, target: Array, weight: Array | None = None) -> Array:
        target = xp.astype(target, TensorElementType.INT64)
        kept = None if ignore_index is None else target != ignore_index
        classes = target if kept is None else xp.where(kept, target, xp.zeros_like(target))
        _check(info, xp, log_prob, classes, weight)
        loss = -xp.squeeze(xp.take_along_axis(log_prob, xp.expand_dims(classes, axis=1), axis=1), axis=1)
        weights = _sample_weights(xp, loss, classes, weight, kept)
        if weights is not None:
            loss = loss * weights
        if reduction == "none":
            return loss
        if reduction == "sum":
            return xp.sum(loss)
        return xp.mean(loss) if weights is None else xp.sum(loss) / xp.sum(weights)

    return compute


def _sample_weights(xp: Any, loss: Array, classes: Array, weight: Array | None, kept: Array | None) -> Array | None:
    """Weight of each sample, zero where it is ignored; None if all count the same."""
    if weight is None and kept is None:
        return None
    if weight is None:
        weights = xp.ones_like(loss)
    else:
        weights = xp.reshape(xp.take(weight, xp.reshape(classes, (-1,)), axis=0), loss.shape)
    return weights if kept is None else xp.where(kept, weights, xp.zeros_like(weights))


def _check(info: KernelInfo, xp: Any, log_prob: Array, classes: Array, weight: Array | None) -> None:
    count = log_prob.shape[1] if log_prob.ndim > 1 else 0
    if log_prob.ndim < 2 or (log_prob.shape[0], *log_prob.shape[2:]) != tuple(classes.shape):
        raise InvalidArgument(
            f"{info.describe()}: scores have shape {list(log_prob.shape)} and targets {list(classes.shape)};"
            " they must be (N, C, ...) and (N, ...)"
        )
    if weight is not None and tuple(weight.shape) != (count,):
        raise InvalidArgument(f"{info.describe()}: weight has shape {list(weight.shape)}; it must be [{count}]")
    if bool(xp.any((classes < 0) | (classes >= count))):
        raise InvalidArgument(f"{info.describe()}: a target class is outside [0, {count}) and is not ignore_index")
