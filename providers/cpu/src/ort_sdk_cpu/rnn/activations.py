"""Activations described by numbers, for layers that do not use the operator's own, or clip sums (``compiled.cells``)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk.opset.nn.recurrent_activations import NamedActivation, named_activations

__all__ = ["described_activations"]

_IDENTITY, _SIGMOID, _TANH = range(3)
_GATES = 2
"""Activations of gates, whose sums are clipped; LSTM's third one, of the cells, is not."""


def described_activations(info: KernelInfo, usual: Sequence[str], directions: int) -> HostArray | None:
    """The node's activations, described.

    Args:
        info: the node.
        usual: names of the operator's own activations.
        directions: of the layer.

    Returns:
        float32, (directions, activations, 8): kind of function; bound of what goes in; factor and addend of that; factor of the
        function's value; its least and largest value; nothing. None if tasks do not have one of them.
    """
    clip = float(info.attribute("clip", None) or math.inf)
    rows = [
        [_numbers(each, clip if index < _GATES else math.inf) for index, each in enumerate(row)]
        for row in named_activations(info, usual, directions)
    ]
    return None if any(numbers is None for row in rows for numbers in row) else np.array(rows, np.float32)


def _numbers(activation: NamedActivation, bound: float) -> tuple[float, ...] | None:
    alpha, beta = activation.alpha, activation.beta
    lines = {
        "affine": (alpha, beta, -math.inf, math.inf),
        "hardsigmoid": (alpha, beta, 0.0, 1.0),
        "relu": (1.0, 0.0, 0.0, math.inf),
    }
    curves = {"scaledtanh": (_TANH, beta, alpha), "sigmoid": (_SIGMOID, 1.0, 1.0), "tanh": (_TANH, 1.0, 1.0)}
    if activation.name in lines:
        factor, addend, least, largest = lines[activation.name]
        return (_IDENTITY, bound, factor, addend, 1.0, least, largest, 0.0)
    if activation.name in curves:
        kind, inner, outer = curves[activation.name]
        return (kind, bound, inner, 0.0, outer, -math.inf, math.inf, 0.0)
    return None
