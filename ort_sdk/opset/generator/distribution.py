"""RandomNormal, RandomUniform, their ``Like`` forms, Bernoulli and Multinomial.

Numbers are drawn on the host. A node's generator lives as long as its kernel, so every run goes on where the last ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, InvalidGraph, KernelInfo, TensorElementType
from ort_sdk.opset.definition import operator
from ort_sdk.opset.random_state import new_generator
from ort_sdk.opset.sizes import require_size

__all__: list[str] = []

Draw = Callable[[tuple[int, ...]], Array]


def _draw_normal(info: KernelInfo, xp: Any) -> Draw:
    mean, scale = info.attribute("mean", 0.0), info.attribute("scale", 1.0)
    generator, element_type = new_generator(info.attribute("seed", None)), info.output_element_type(0)
    return lambda shape: xp.astype(xp.from_host(np.asarray(generator.normal(mean, scale, shape))), element_type)


def _draw_uniform(info: KernelInfo, xp: Any) -> Draw:
    low, high = info.attribute("low", 0.0), info.attribute("high", 1.0)
    generator, element_type = new_generator(info.attribute("seed", None)), info.output_element_type(0)
    return lambda shape: xp.astype(xp.from_host(np.asarray(generator.uniform(low, high, shape))), element_type)


def _of_attribute_shape(info: KernelInfo, draw: Draw) -> Compute:
    shape = require_size(info.describe(), info.attribute("shape"), np.dtype(np.float64).itemsize)
    return lambda: draw(shape)


@operator("RandomNormal", deterministic=False)
def random_normal(info: KernelInfo, xp: Any) -> Compute:
    """Normally distributed numbers, in the shape an attribute gives."""
    return _of_attribute_shape(info, _draw_normal(info, xp))


@operator("RandomUniform", deterministic=False)
def random_uniform(info: KernelInfo, xp: Any) -> Compute:
    """Uniformly distributed numbers in [low, high), in the shape an attribute gives."""
    return _of_attribute_shape(info, _draw_uniform(info, xp))


@operator("RandomNormalLike", any_type=True, deterministic=False)
def random_normal_like(info: KernelInfo, xp: Any) -> Compute:
    """Normally distributed numbers, in the shape of the input."""
    draw = _draw_normal(info, xp)
    return lambda like: draw(tuple(like.shape))


@operator("RandomUniformLike", any_type=True, deterministic=False)
def random_uniform_like(info: KernelInfo, xp: Any) -> Compute:
    """Uniformly distributed numbers in [low, high), in the shape of the input."""
    draw = _draw_uniform(info, xp)
    return lambda like: draw(tuple(like.shape))


@operator("Bernoulli", deterministic=False)
def bernoulli(info: KernelInfo, xp: Any) -> Compute:
    """One with the probability the input holds, else zero."""
    generator, element_type = new_generator(info.attribute("seed", None)), info.output_element_type(0)

    def compute(probability: Array) -> Array:
        drawn = xp.from_host(np.asarray(generator.random(tuple(probability.shape))))
        return xp.astype(drawn < xp.astype(probability, TensorElementType.DOUBLE), element_type)

    return compute


@operator("Multinomial", host_inputs=(0,), deterministic=False)
def multinomial(info: KernelInfo, xp: Any) -> Compute:
    """Class indices drawn with probabilities proportional to exp(input), ``sample_size`` per row of (batch, classes)."""
    generator, element_type = new_generator(info.attribute("seed", None)), info.output_element_type(0)
    samples = info.attribute("sample_size", 1)
    if samples < 1:
        raise InvalidGraph(f"{info.describe()}: attribute sample_size must be positive; it is {samples}")

    def compute(log_weights: HostArray) -> Array:
        if log_weights.ndim != 2 or log_weights.shape[1] == 0:
            raise InvalidArgument(
                f"{info.describe()}: the input must be (batch, classes), with a class at least; its shape is {log_weights.shape}"
            )
        size = require_size(info.describe(), (log_weights.shape[0], samples), np.dtype(np.float64).itemsize)
        drawn = generator.random(size)
        return xp.astype(xp.from_host(_sampled(log_weights.astype(np.float64), drawn)), element_type)

    return compute


def _sampled(log_weights: HostArray, drawn: HostArray) -> HostArray:
    """Inverse of each row's cumulative distribution: rows are searched together, shifted by their index."""
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    cumulative = np.cumsum(weights, axis=1)
    cumulative /= cumulative[:, -1:]
    batch, classes = cumulative.shape
    offset = np.arange(batch)[:, None]
    found = np.searchsorted((cumulative + offset).reshape(-1), (drawn + offset).reshape(-1), side="right")
    indices: HostArray = np.minimum(found.reshape(drawn.shape) - offset * classes, classes - 1)
    return indices
