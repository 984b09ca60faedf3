"""Activations and arithmetic on a run's arrays, of shapes that were never seen before."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu.kernel.eager_tasks import EagerCall, EagerTask, eager_call, is_vector
from ort_sdk_cpu.kernel.element_operation import clip_bounds
from ort_sdk_cpu.kernel.task_writer import ACTIVATION_WORK, threads_for
from ort_sdk_cpu.kernel.writer import MakeWriter
from ort_sdk_cpu.memory.result_pool import MIN_BYTES, ResultAllocator

from .activation import silu_alpha
from .arguments.functions import MODULE, BiasActivation, Clip, Silu, Unary

__all__: list[str] = []

FIRST_BROADCASTING = 7
"""Version of Add and its like from which on they broadcast as NumPy does."""
_MICROSOFT = "com.microsoft"
_SCALARS = ((), (1,))


def _activation(name: str) -> EagerCall:
    """A function of each element, after adding a vector to each row if there is a second input."""
    plain, biased, results = EagerTask(MODULE, name), EagerTask(MODULE, f"bias_{name}"), ResultAllocator()

    def call(x: HostArray, bias: HostArray | None = None) -> Any:
        size = x.size
        if not (plain if bias is None else biased).pays(size):
            return NotImplemented
        # Of the strides of the input, if that has no gaps.
        out, threads = results.like(x), threads_for(ACTIVATION_WORK * size)
        if bias is None and out.strides == x.strides:
            plain()(threads, Unary(x, out, size))
        elif bias is not None and x.ndim and x.flags.c_contiguous and is_vector(bias, x.shape[-1]):
            biased()(threads, BiasActivation(x, bias, out, size // bias.size, bias.size))
        else:
            return NotImplemented
        return out

    return call


@eager_call("Erf", "HardSwish", "Sigmoid")
def activation(info: KernelInfo, _make_writer: MakeWriter) -> EagerCall:
    """A function without parameters."""
    return _activation({"Erf": "erf", "HardSwish": "hard_swish", "Sigmoid": "sigmoid"}[info.op_type])


@eager_call("Gelu")
def gelu(info: KernelInfo, _make_writer: MakeWriter) -> EagerCall:
    """By erf, or by tanh."""
    return _activation("fast_gelu" if info.attribute("approximate", "none") == "tanh" else "gelu")


@eager_call("BiasGelu", "FastGelu", "Gelu", domain=_MICROSOFT)
def bias_gelu(info: KernelInfo, _make_writer: MakeWriter) -> EagerCall:
    """Of the input, or of input + bias."""
    return _activation("fast_gelu" if info.op_type == "FastGelu" else "gelu")


def _binary(function: np.ufunc) -> Callable[[KernelInfo, MakeWriter], EagerCall | None]:
    """NumPy's function of two arrays, in memory that is used again, where the result is as large as the first."""

    def make(info: KernelInfo, _make_writer: MakeWriter) -> EagerCall | None:
        results = ResultAllocator()

        def call(x: HostArray, y: HostArray) -> Any:
            if x.nbytes < MIN_BYTES or not (y.shape == x.shape or (y.size == 1 and y.ndim <= x.ndim)):
                return NotImplemented
            return function(x, y, results.like(x))

        return call if info.since_version >= FIRST_BROADCASTING else None

    return make


for _op_type, _function in {"Add": np.add, "Div": np.divide, "Mul": np.multiply, "Sub": np.subtract}.items():
    eager_call(_op_type)(_binary(_function))


@eager_call("Clip")
def clip(info: KernelInfo, _make_writer: MakeWriter) -> EagerCall:
    """Clip, with bounds that are inputs or, of old versions, attributes."""
    task, results, given = EagerTask(MODULE, "clip"), ResultAllocator(), clip_bounds(info)
    least, largest = given.get("min", -math.inf), given.get("max", math.inf)

    def call(x: HostArray, low: HostArray | None = None, high: HostArray | None = None) -> Any:
        size, out = x.size, results.like(x)
        if (
            not task.pays(size)
            or out.strides != x.strides
            or any(bound is not None and bound.shape not in _SCALARS for bound in (low, high))
        ):
            return NotImplemented
        bounds = (least if low is None else low.item(), largest if high is None else high.item())
        if math.isnan(bounds[0]) or math.isnan(bounds[1]):
            return NotImplemented
        task()(threads_for(size), Clip(x, out, size, *bounds))
        return out

    return call


@eager_call("Swish")
@eager_call("QuickGelu", domain=_MICROSOFT)
def silu(info: KernelInfo, _make_writer: MakeWriter) -> EagerCall:
    """X * sigmoid(alpha * x)."""
    alpha, task, results = silu_alpha(info), EagerTask(MODULE, "silu"), ResultAllocator()

    def call(x: HostArray) -> Any:
        size, out = x.size, results.like(x)
        if not task.pays(size) or out.strides != x.strides:
            return NotImplemented
        task()(threads_for(ACTIVATION_WORK * size), Silu(x, out, size, alpha))
        return out

    return call
