"""Activations: by compiled tasks, or by NumPy in place on blocks of the output that stay in the cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk.opset.contrib.gelu import exact_gelu
from ort_sdk.opset.numpy_namespace import NumpyNamespace
from ort_sdk_cpu.jit.arguments import Operand
from ort_sdk_cpu.kernel.bindable import bindable
from ort_sdk_cpu.kernel.eager import declare_eager_calls
from ort_sdk_cpu.kernel.element_operation import clip_bounds
from ort_sdk_cpu.kernel.task_writer import ACTIVATION_WORK, TaskWriter, are_floats, is_worth_a_task, threads_for
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer

from .arguments.functions import MODULE, BiasActivation, Clip, Silu, Unary
from .clip import clamp, largest, rectifier
from .erf import erf_float32, gelu_float32

__all__ = ["InPlace", "blocked", "in_place_activation", "silu_alpha"]

declare_eager_calls("elementwise.eager", "Clip", "Erf", "Gelu", "HardSwish", "Sigmoid", "Swish")
declare_eager_calls("elementwise.eager", "BiasGelu", "FastGelu", "Gelu", "QuickGelu", domain="com.microsoft")

InPlace = Callable[[HostArray, HostArray], Any]
"""``function(x, out)`` for arrays of one shape; ``x`` may be ``out``."""

BLOCK = 1 << 16
"""Elements that NumPy computes at a time: input, output and a temporary array stay in the second cache."""


@bindable("Celu", "Elu", "Mish", "Selu", "Shrink", "Softplus", "Softsign", "ThresholdedRelu", elementwise=True)
def unary(_info: KernelInfo, compute: Any) -> MakeWriter:
    """The shared set's function, block by block."""
    return _writer_of(into_output(compute))


@bindable("HardSwish", elementwise=True)
def hard_swish(_info: KernelInfo, compute: Any) -> MakeWriter:
    """X * max(0, min(1, x / 6 + 1 / 2))."""
    return _writer_of(into_output(compute), "hard_swish")


@bindable("Swish", elementwise=True)
@bindable("QuickGelu", domain="com.microsoft", elementwise=True)
def silu(info: KernelInfo, compute: Any) -> MakeWriter:
    """X * sigmoid(alpha * x)."""
    return _writer_of(into_output(compute), "silu", Silu, (silu_alpha(info),))


def silu_alpha(info: KernelInfo) -> float:
    """Factor of the sigmoid's argument."""
    return float(info.attribute("alpha", 1.702 if info.op_type == "QuickGelu" else 1.0))


@bindable("Erf", elementwise=True)
def erf(info: KernelInfo, compute: Any) -> MakeWriter:
    """The error function."""
    return _writer_of(erf_float32 if _is_float32(info) else into_output(compute), "erf")


@bindable("Gelu", elementwise=True)
@bindable("Gelu", domain="com.microsoft", elementwise=True)
def gelu(info: KernelInfo, compute: Any) -> MakeWriter:
    """X·Φ(x)."""
    if info.attribute("approximate", "none") == "tanh":
        return _writer_of(tanh_gelu, "fast_gelu")
    return _writer_of(gelu_float32 if _is_float32(info) else into_output(compute), "gelu")


@bindable("Relu", elementwise=True)
def relu(info: KernelInfo, _compute: Any) -> MakeWriter:
    """max(x, 0)."""
    rectify = rectifier(_dtype(info))
    return lambda _inputs, _outputs: rectify


@bindable("LeakyRelu", elementwise=True)
def leaky_relu(info: KernelInfo, compute: Any) -> MakeWriter:
    """X, and alpha·x where x < 0."""
    alpha = info.attribute("alpha", 0.01)
    if not 0 < alpha <= 1:
        return _writer_of(into_output(compute))

    def rectify(x: HostArray, out: HostArray) -> None:
        np.multiply(x, alpha, out)
        np.maximum(x, out, out=out)

    return _writer_of(rectify)


@bindable("Sigmoid", elementwise=True)
def sigmoid(_info: KernelInfo, _compute: Any) -> MakeWriter:
    """1 / (1 + exp(-x))."""
    return _writer_of(logistic, "sigmoid")


@bindable("HardSigmoid", elementwise=True)
def hard_sigmoid(info: KernelInfo, _compute: Any) -> MakeWriter:
    """max(0, min(1, alpha·x + beta))."""
    return _writer_of(_hard_sigmoid(info, info.attribute("alpha", 0.2), info.attribute("beta", 0.5)))


@bindable("Clip", elementwise=True)
def clip(info: KernelInfo, _compute: Any) -> MakeWriter:
    """min(max(x, min), max)."""
    bounds = clip_bounds(info)
    if bounds:
        low, high = (np.asarray(bounds[name], _dtype(info)) for name in ("min", "max"))
        return _writer_of(lambda x, out: clamp(x, low, high, out), "clip", Clip, (bounds["min"], bounds["max"]))
    return lambda _inputs, _outputs: _clip


@bindable("BiasGelu", "FastGelu", domain="com.microsoft")
def biased(info: KernelInfo, _compute: Any) -> MakeWriter:
    """Gelu of x + bias."""
    exact = gelu_float32 if _is_float32(info) else into_output(exact_gelu(NumpyNamespace()))
    apply = blocked(tanh_gelu if info.op_type == "FastGelu" else exact)

    def write(*arrays: Any) -> None:
        x, bias, out = (arrays[0], arrays[1] if len(arrays) > 2 else None, arrays[-1])
        if bias is None:
            apply(x, out)
        else:
            np.add(x, bias, out)
            apply(out, out)

    name = "fast_gelu" if info.op_type == "FastGelu" else "gelu"

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        out, bias = outputs[0], inputs[1] if len(inputs) > 1 else None
        if not is_worth_a_task(out.size) or not are_floats((*inputs, out)):
            return write
        threads = threads_for(ACTIVATION_WORK * out.size)
        if bias is None:
            return TaskWriter(MODULE, name, Unary(Operand(0), Operand(len(inputs)), out.size), write, threads)
        arguments = BiasActivation(Operand(0), Operand(1), Operand(len(inputs)), out.size // bias.size, bias.size)
        return TaskWriter(MODULE, f"bias_{name}", arguments, write, threads)

    return make


def _clip(x: HostArray, *arrays: Any) -> None:
    *bounds, out = arrays
    low, high = (*bounds, None, None)[:2]
    if low is None and high is None:
        np.copyto(out, x)
    elif low is None:
        np.minimum(x, high, out=out)
    else:
        clamp(x, low, largest(out.dtype) if high is None else high, out)


def logistic(x: HostArray, out: HostArray) -> None:
    """1 / (1 + exp(-x)), in the shared set's order of operations."""
    np.negative(x, out)
    np.exp(out, out)
    np.add(out, 1.0, out)
    np.divide(1.0, out, out)


def tanh_gelu(x: HostArray, out: HostArray) -> None:
    """X·Φ(x) approximated with tanh."""
    inner = np.square(x, out=np.empty_like(x))
    inner *= 0.044715
    inner += 1.0
    inner *= x
    inner *= math.sqrt(2 / math.pi)
    np.tanh(inner, inner)
    inner += 1.0
    inner *= x
    np.multiply(inner, 0.5, out)


def into_output(compute: Callable[[HostArray], HostArray]) -> InPlace:
    """A function that returns its result as one that writes an output."""

    def write(x: HostArray, out: HostArray) -> None:
        np.copyto(out, compute(x))

    return write


def blocked(function: InPlace) -> InPlace:
    """The function applied to blocks of contiguous arrays."""

    def apply(x: HostArray, out: HostArray) -> None:
        if out.size <= BLOCK or not (x.flags.c_contiguous and out.flags.c_contiguous):
            function(x, out)
            return
        source, target = x.reshape(-1), out.reshape(-1)
        for start in range(0, target.size, BLOCK):
            function(source[start : start + BLOCK], target[start : start + BLOCK])

    return apply


def _writer_of(
    function: InPlace, task: str | None = None, arguments: type[Unary] = Unary, parameters: Sequence[float] = ()
) -> MakeWriter:
    """How a function of each element is written: large float32 outputs by a task, others by NumPy.

    Args:
        function: by NumPy.
        task: the compiled task; None if there is none.
        arguments: its class of arguments.
        parameters: what these have after the number of elements.
    """

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        size = outputs[0].size
        write = function if size <= BLOCK else blocked(function)
        if task is None or not is_worth_a_task(size, MODULE, task) or not are_floats((inputs[0], outputs[0])):
            return write
        made = arguments(Operand(0), Operand(1), size, *parameters)
        return TaskWriter(MODULE, task, made, write, threads_for(ACTIVATION_WORK * size))

    return make


def _is_float32(info: KernelInfo) -> bool:
    return info.input_element_type(0) is TensorElementType.FLOAT


def _dtype(info: KernelInfo) -> np.dtype[Any]:
    return (info.input_element_type(0) or TensorElementType.FLOAT).numpy_dtype


def _hard_sigmoid(info: KernelInfo, alpha: float, beta: float) -> InPlace:
    zero, one = (np.asarray(bound, dtype=_dtype(info)) for bound in (0, 1))

    def write(x: HostArray, out: HostArray) -> None:
        np.multiply(x, alpha, out)
        np.add(out, beta, out)
        clamp(out, zero, one, out)

    return write


def in_place_activation(
    info: KernelInfo, parameters: Sequence[float], activate: Callable[[HostArray], HostArray] | None
) -> InPlace | None:
    """The activation that a fused node ends with, on blocks.

    Args:
        info: the node.
        parameters: its alpha and beta.
        activate: the shared set's function for it; None if the node has none.
    """
    name = info.attribute("activation", "")
    if activate is None:
        return None
    if name == "Relu":
        return rectifier(_dtype(info))
    if name == "Tanh":
        return np.tanh
    if name == "Sigmoid":
        return blocked(logistic)
    if name == "HardSigmoid" and len(parameters) == 2:
        return blocked(_hard_sigmoid(info, *parameters))
    return blocked(into_output(activate))
