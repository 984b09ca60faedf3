"""The activation functions that RNN, GRU and LSTM may name, with their alpha and beta."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ort_sdk.api import Array, InvalidGraph, KernelInfo
from ort_sdk.api.data_classes import dataclass

__all__ = ["Activation", "NamedActivation", "activations", "named_activations"]

Activation = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an activation is made; defaults are those of the ONNX operator of that name, None where it takes no such value."""

    make: Callable[[Any, float, float], Activation]
    alpha: float | None = None
    beta: float | None = None


def _sigmoid(xp: Any, _alpha: float, _beta: float) -> Activation:
    tanh = xp.tanh
    return lambda x: tanh(x * 0.5) * 0.5 + 0.5


def _relu(xp: Any, _alpha: float, _beta: float) -> Activation:
    return lambda x: xp.where(x > 0, x, xp.zeros_like(x))


def _affine(_xp: Any, alpha: float, beta: float) -> Activation:
    return lambda x: x * alpha + beta


def _leaky_relu(xp: Any, alpha: float, _beta: float) -> Activation:
    return lambda x: xp.where(x >= 0, x, x * alpha)


def _thresholded_relu(xp: Any, alpha: float, _beta: float) -> Activation:
    return lambda x: xp.where(x >= alpha, x, xp.zeros_like(x))


def _scaled_tanh(xp: Any, alpha: float, beta: float) -> Activation:
    return lambda x: xp.tanh(x * beta) * alpha


def _hard_sigmoid(xp: Any, alpha: float, beta: float) -> Activation:
    return lambda x: xp.clip(x * alpha + beta, 0.0, 1.0)


def _elu(xp: Any, alpha: float, _beta: float) -> Activation:
    return lambda x: xp.where(x >= 0, x, xp.expm1(xp.minimum(x, xp.zeros_like(x))) * alpha)


def _softsign(xp: Any, _alpha: float, _beta: float) -> Activation:
    return lambda x: x / (1 + xp.abs(x))


def _softplus(xp: Any, _alpha: float, _beta: float) -> Activation:
    return lambda x: xp.logaddexp(x, xp.zeros_like(x))


RECIPES = {
    "relu": Recipe(_relu),
    "tanh": Recipe(lambda xp, _alpha, _beta: xp.tanh),
    "sigmoid": Recipe(_sigmoid),
    "affine": Recipe(_affine, 1.0, 0.0),
    "leakyrelu": Recipe(_leaky_relu, 0.01),
    "thresholdedrelu": Recipe(_thresholded_relu, 1.0),
    "scaledtanh": Recipe(_scaled_tanh, 1.0, 1.0),
    "hardsigmoid": Recipe(_hard_sigmoid, 0.2, 0.5),
    "elu": Recipe(_elu, 1.0),
    "softsign": Recipe(_softsign),
    "softplus": Recipe(_softplus),
}


@dataclass(frozen=True, slots=True)
class NamedActivation:
    """An activation as a node names it."""

    name: str
    """Lower case."""
    alpha: float
    """0 where it takes none, like ``beta``."""
    beta: float


def activations(info: KernelInfo, xp: Any, defaults: Sequence[str], directions: int) -> list[list[Activation]]:
    """The activation functions of a recurrent node, one list per direction; see ``named_activations``."""
    named = named_activations(info, defaults, directions)
    return [[RECIPES[each.name].make(xp, each.alpha, each.beta) for each in row] for row in named]


def named_activations(info: KernelInfo, defaults: Sequence[str], directions: int) -> list[list[NamedActivation]]:
    """What a recurrent node names, one list per direction.

    ``activation_alpha`` and ``activation_beta`` are handed out in order to those functions that take one.

    Raises:
        InvalidGraph: a name is unknown, or their number is wrong.
    """
    names = [str(name) for name in info.attribute("activations", None) or [*defaults] * directions]
    if directions == 1 and names == [*defaults] * 2:
        # The specification's default of RNN is that of two directions, and files that spell defaults out have it for one, too.
        names = [*defaults]
    if len(names) != len(defaults) * directions:
        raise InvalidGraph(f"{info.describe()}: {len(names)} activations are given; it needs {len(defaults)} per direction")
    alphas = iter(info.attribute("activation_alpha", None) or ())
    betas = iter(info.attribute("activation_beta", None) or ())
    made = []
    for name in names:
        recipe = RECIPES.get(name.lower())
        if recipe is None:
            raise InvalidGraph(f"{info.describe()}: activation '{name}' is unknown; known: {', '.join(RECIPES)}")
        alpha = 0.0 if recipe.alpha is None else float(next(alphas, recipe.alpha))
        beta = 0.0 if recipe.beta is None else float(next(betas, recipe.beta))
        made.append(NamedActivation(name.lower(), alpha, beta))
    return [made[start : start + len(defaults)] for start in range(0, len(made), len(defaults))]
