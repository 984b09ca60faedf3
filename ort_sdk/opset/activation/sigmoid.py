"""Bounded and smooth activations: Sigmoid, HardSigmoid, Tanh, Softsign, Softplus."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Compute, KernelInfo
from ort_sdk.opset.definition import operator

__all__ = ["stable_softplus"]


@operator("Sigmoid")
def sigmoid(_info: KernelInfo, xp: Any) -> Compute:
    """1 / (1 + exp(-x)); the exponential may overflow to infinity, which gives the right 0."""
    exp = xp.exp
    return lambda x: 1.0 / (exp(-x) + 1.0)


@operator("HardSigmoid")
def hard_sigmoid(info: KernelInfo, xp: Any) -> Compute:
    """max(0, min(1, alpha·x + beta))."""
    alpha, beta = info.attribute("alpha", 0.2), info.attribute("beta", 0.5)
    dtype = xp.dtype(info.input_element_type(0))
    clamp, zero, one = xp.clamp, xp.asarray(0, dtype=dtype), xp.asarray(1, dtype=dtype)
    return lambda x: clamp(x * alpha + beta, zero, one)


@operator("Tanh")
def tanh(_info: KernelInfo, xp: Any) -> Compute:
    """Hyperbolic tangent."""
    function: Compute = xp.tanh
    return function


@operator("Softsign")
def softsign(_info: KernelInfo, xp: Any) -> Compute:
    """X / (1 + |x|)."""
    absolute = xp.abs
    return lambda x: x / (absolute(x) + 1.0)


@operator("Softplus")
def softplus(info: KernelInfo, xp: Any) -> Compute:
    """log(1 + exp(x)), without overflow."""
    return stable_softplus(info, xp)


def stable_softplus(info: KernelInfo, xp: Any) -> Compute:
    """max(x, 0) + log(1 + exp(-|x|)), several times faster than NumPy's ``logaddexp``."""
    absolute, exp, log1p, maximum = xp.abs, xp.exp, xp.log1p, xp.maximum
    zero = xp.asarray(0, dtype=xp.dtype(info.input_element_type(0)))
    return lambda x: log1p(exp(-absolute(x))) + maximum(x, zero)
