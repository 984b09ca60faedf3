"""Adagrad, Adam and Momentum of ai.onnx.preview.training.

Inputs are the learning rate, the update count (both on the host), then all optimized tensors, then all their gradients,
then all their states, in that order. Outputs are all new tensors, then all new states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, InvalidGraph, KernelInfo
from ort_sdk.opset.definition import operator

DOMAIN = "ai.onnx.preview.training"

Update = Callable[..., tuple[Array, ...]]
"""``update(rate, count, x, gradient, *states)`` gives the new tensor and its new states."""


@operator("Adagrad", domain=DOMAIN, host_inputs=(0, 1))
def adagrad(info: KernelInfo, xp: Any) -> Compute:
    """Steps scaled down by the root of the accumulated squared gradient."""
    norm = info.attribute("norm_coefficient", 0.0)
    decay = info.attribute("decay_factor", 0.0)
    epsilon = info.attribute("epsilon", 1e-6)
    sqrt = xp.sqrt

    def update(rate: float, count: int, x: Array, gradient: Array, squared: Array) -> tuple[Array, ...]:
        regularized = norm * x + gradient
        new_squared = squared + regularized * regularized
        step = rate / (1 + count * decay)
        return x - step * regularized / (sqrt(new_squared) + epsilon), new_squared

    return _for_each_tensor(info, update, states=1)


@operator("Adam", domain=DOMAIN, host_inputs=(0, 1))
def adam(info: KernelInfo, xp: Any) -> Compute:
    """Steps along the averaged gradient, scaled down by the root of the averaged squared gradient."""
    norm = info.attribute("norm_coefficient", 0.0)
    norm_post = info.attribute("norm_coefficient_post", 0.0)
    alpha = info.attribute("alpha", 0.9)
    beta = info.attribute("beta", 0.999)
    epsilon = info.attribute("epsilon", 1e-6)
    sqrt = xp.sqrt

    def update(rate: float, count: int, x: Array, gradient: Array, mean: Array, squared: Array) -> tuple[Array, ...]:
        regularized = norm * x + gradient
        new_mean = alpha * mean + (1 - alpha) * regularized
        new_squared = beta * squared + (1 - beta) * regularized * regularized
        step = rate * (1 - beta**count) ** 0.5 / (1 - alpha**count) if count > 0 else rate
        new_x = x - step * new_mean / (sqrt(new_squared) + epsilon)
        return (1 - norm_post) * new_x, new_mean, new_squared

    return _for_each_tensor(info, update, states=2)


@operator("Momentum", domain=DOMAIN, host_inputs=(0, 1))
def momentum(info: KernelInfo, xp: Any) -> Compute:
    """Steps along an accumulated gradient, with standard or Nesterov's momentum.

    Raises:
        InvalidGraph: the attribute ``mode`` is neither.
    """
    norm = info.attribute("norm_coefficient")
    alpha = info.attribute("alpha")
    beta = info.attribute("beta")
    mode = info.attribute("mode")
    if mode not in ("standard", "nesterov"):
        raise InvalidGraph(f"{info.describe()}: mode '{mode}' is unknown; allowed are 'standard' and 'nesterov'")

    def update(rate: float, count: int, x: Array, gradient: Array, velocity: Array) -> tuple[Array, ...]:
        regularized = norm * x + gradient
        new_velocity = alpha * velocity + (beta if count > 0 else 1.0) * regularized
        direction = new_velocity if mode == "standard" else regularized + alpha * new_velocity
        return x - rate * direction, new_velocity

    return _for_each_tensor(info, update, states=1)


def _for_each_tensor(info: KernelInfo, update: Update, states: int) -> Compute:
    groups = 2 + states

    def compute(rate: HostArray, count: HostArray, *tensors: Array) -> tuple[Array, ...]:
        number, remainder = divmod(len(tensors), groups)
        if remainder or not number:
            raise InvalidArgument(
                f"{info.describe()}: {len(tensors)} tensors are given; they must come in {groups} groups of equal length "
                "(tensors, gradients, states)"
            )
        results = [update(rate.item(), count.item(), *tensors[index::number]) for index in range(number)]
        return tuple(result[group] for group in range(1 + states) for result in results)

    return compute
