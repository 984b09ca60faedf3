"""BatchNormalization, all versions."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, KernelInfo
from ort_sdk.opset.definition import operator
from ort_sdk.opset.input_shapes import InputShapes

__all__ = ["batch_normalization", "batch_normalization_7", "batch_normalization_test_attribute"]

MOMENTUM = 0.9
EPSILON = 1e-5


def _statistics_shapes(info: KernelInfo, shapes: InputShapes) -> None:
    """Data, and four vectors with an element for each channel, or for each element of a sample."""
    shapes.match(0, "X", ("batch",), ("batch", "channels", ...))
    data = shapes.of(0) or ()
    wanted = data[1:2] if info.attribute("spatial", 1) else data[1:]
    for index, name in enumerate(("scale", "B", "mean", "var"), 1):
        shapes.match(index, name, wanted if len(data) > 1 else (1,))


@operator("BatchNormalization", since=14, shapes=_statistics_shapes)
def batch_normalization(info: KernelInfo, xp: Any) -> Compute:
    """Normalization per channel; with ``training_mode`` by the batch's own statistics, and running ones updated."""
    return _kernel(info, xp, training=bool(info.attribute("training_mode", 0)))


@operator("BatchNormalization", since=7, until=9, shapes=_statistics_shapes)
def batch_normalization_7(info: KernelInfo, xp: Any) -> Compute:
    """Training is what asks for statistics as outputs."""
    return _kernel(info, xp, training=any(info.wants_output(index) for index in range(1, 5)))


@operator("BatchNormalization", until=6, shapes=_statistics_shapes)
def batch_normalization_test_attribute(info: KernelInfo, xp: Any) -> Compute:
    """Training unless ``is_test`` is set."""
    return _kernel(info, xp, training=not info.attribute("is_test", 0))


def _kernel(info: KernelInfo, xp: Any, *, training: bool) -> Compute:
    epsilon = float(info.attribute("epsilon", EPSILON))
    momentum = float(info.attribute("momentum", MOMENTUM))
    spatial = bool(info.attribute("spatial", 1))
    cast = xp.module.astype

    def infer(x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> Array:
        shape = _parameter_shape(x, spatial)
        factor = scale / xp.sqrt(variance + epsilon)
        shift = bias - mean * factor
        y = x * cast(xp.reshape(factor, shape), x.dtype, copy=False)
        y += cast(xp.reshape(shift, shape), x.dtype, copy=False)
        return y

    def train(x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> tuple[Array, ...]:
        axes = tuple(axis for axis in range(x.ndim) if axis != 1) if spatial and x.ndim > 1 else (0,)
        batch_mean = xp.reshape(xp.mean(x, axis=axes), mean.shape)
        batch_variance = xp.reshape(xp.var(x, axis=axes), mean.shape)
        y = infer(x, scale, bias, batch_mean, batch_variance)
        running_mean = mean * momentum + cast(batch_mean, mean.dtype) * (1 - momentum)
        running_variance = variance * momentum + cast(batch_variance, variance.dtype) * (1 - momentum)
        return y, running_mean, running_variance, batch_mean, batch_variance

    return train if training else infer


def _parameter_shape(x: Array, spatial: bool) -> tuple[int, ...]:
    """Shape in which the parameters broadcast against X."""
    channels = tuple(x.shape[1:] if not spatial else x.shape[1:2])
    return (1, *channels, *(1 for _ in x.shape[2:])) if spatial and x.ndim > 1 else (1, *channels)
