"""The activations that ONNX Runtime fuses behind a product or convolution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ort_sdk.api import Array, InvalidGraph, KernelInfo
from ort_sdk.opset.nn.recurrent_activations import RECIPES

__all__ = ["fused_activation"]


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
        low, high = (*parameters, -float("inf"), float("inf"))[:2] if len(parameters) != 1 else (parameters[0], float("inf"))
        return lambda x: xp.clip(x, low, high)
    recipe = RECIPES.get(name.lower())
    if recipe is None:
        raise InvalidGraph(f"{info.describe()}: activation '{name}' is unknown; known: Clip, {', '.join(RECIPES)}")
    defaults = (recipe.alpha or 0.0, recipe.beta or 0.0)
    alpha, beta = (*parameters, *defaults[len(parameters) :])[:2]
    return recipe.make(xp, float(alpha), float(beta))
