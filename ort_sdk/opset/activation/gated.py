"""Activations that scale their input by a gate: Gelu, Swish, SwiGLU, HardSwish, Mish."""

from __future__ import annotations

import math
from typing import Any

from ort_sdk.api import Array, Compute, InvalidArgument, InvalidGraph, KernelInfo
from ort_sdk.opset.definition import operator

from .sigmoid import stable_softplus

__all__: list[str] = []


@operator("Gelu")
def gelu(info: KernelInfo, xp: Any) -> Compute:
    """X·Φ(x), exactly by erf, or by tanh if ``approximate`` says so."""
    approximate = info.attribute("approximate", "none")
    if approximate == "tanh":
        tanh, scale = xp.tanh, math.sqrt(2 / math.pi)
        return lambda x: (tanh((x * x * 0.044715 + 1.0) * x * scale) + 1.0) * x * 0.5
    if approximate != "none":
        raise InvalidGraph(f"{info.describe()}: attribute approximate is '{approximate}'; allowed: 'none', 'tanh'")
    erf, scale = xp.erf, math.sqrt(0.5)
    return lambda x: (erf(x * scale) + 1.0) * x * 0.5


def _swish(alpha: float, xp: Any) -> Compute:
    exp = xp.exp
    return lambda x: x / (exp(x * -alpha) + 1.0)


@operator("Swish")
def swish(info: KernelInfo, xp: Any) -> Compute:
    """X·sigmoid(alpha·x)."""
    return _swish(info.attribute("alpha", 1.0), xp)


@operator("SwiGLU")
def swiglu(info: KernelInfo, xp: Any) -> Compute:
    """Swish of the gate times the value; both of one shape."""
    gate = _swish(info.attribute("alpha", 1.0), xp)

    def compute(a: Array, b: Array) -> Array:
        if a.shape != b.shape:
            raise InvalidArgument(
                f"{info.describe()}: gate and value have shapes {tuple(a.shape)} and {tuple(b.shape)}; they must be equal"
            )
        return gate(a) * b

    return compute


@operator("HardSwish")
def hard_swish(info: KernelInfo, xp: Any) -> Compute:
    """X·max(0, min(1, x/6 + 1/2))."""
    dtype = xp.dtype(info.input_element_type(0))
    clamp, zero, one = xp.clamp, xp.asarray(0, dtype=dtype), xp.asarray(1, dtype=dtype)
    return lambda x: clamp(x / 6.0 + 0.5, zero, one) * x


@operator("Mish")
def mish(info: KernelInfo, xp: Any) -> Compute:
    """X·tanh(softplus(x))."""
    tanh, softplus = xp.tanh, stable_softplus(info, xp)
    return lambda x: tanh(softplus(x)) * x
