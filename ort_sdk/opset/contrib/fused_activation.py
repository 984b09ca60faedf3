"""The activations that ONNX Runtime fuses after a GEMM or convolution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ort_sdk.api import Array, InvalidGraph, KernelInfo, TensorElementType
from ort_sdk.opset.activation.gated import hard_swish
from ort_sdk.opset.activation.linear_unit import elu, leaky_relu, thresholded_relu
from ort_sdk.opset.activation.relu import relu
from ort_sdk.opset.activation.sigmoid import hard_sigmoid, sigmoid, softplus, softsign, tanh
from ort_sdk.opset.nn.recurrent_activations import RECIPES

__all__ = ["fused_activation"]

_OPERATORS = {
    "Elu": elu,
    "HardSigmoid": hard_sigmoid,
    "HardSwish": hard_swish,
    "LeakyRelu": leaky_relu,
    "Relu": relu,
    "Sigmoid": sigmoid,
    "Softplus": softplus,
    "Softsign": softsign,
    "Tanh": tanh,
    "ThresholdedRelu": thresholded_relu,
}
"""Activations that are ONNX operators, which take alpha and beta as attributes."""


def fused_activation(info: KernelInfo, xp: Any, parameters: Sequence[float]) -> Callable[[Array], Array] | None:
    """The function the attribute ``activation`` names; None if there is none.

    Args:
        info: the node.
        xp: array namespace.
        parameters: what the node gives for alpha and beta (minimum and maximum for Clip); may be shorter.

    Raises:
        InvalidGraph: unknown activation.
    """
    name = str(info.attribute("activation", "") or "")
    if not name:
        return None
    if name == "Clip":
        return _clip(info, xp, parameters)
    if name in _OPERATORS:
        attributes = dict(zip(("alpha", "beta"), parameters, strict=False))
        activate: Callable[[Array], Array] = _OPERATORS[name](info.with_attributes(attributes), xp)
        return activate
    recipe = RECIPES.get(name.lower())
    if recipe is None:
        raise InvalidGraph(f"{info.describe()}: activation '{name}' is unknown; known: Clip, {', '.join(RECIPES)}")
    defaults = (recipe.alpha or 0.0, recipe.beta or 0.0)
    alpha, beta = (*parameters, *defaults[len(parameters) :])[:2]
    return recipe.make(xp, float(alpha), float(beta))


def _clip(info: KernelInfo, xp: Any, parameters: Sequence[float]) -> Callable[[Array], Array]:
    dtype = xp.dtype(info.input_element_type(0) or TensorElementType.FLOAT)
    bounds = (*parameters, *(-float("inf"), float("inf"))[len(parameters) :])
    low, high = (xp.asarray(bound, dtype=dtype) for bound in bounds[:2])
    return lambda x: xp.clamp(x, low, high)
