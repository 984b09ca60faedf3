"""MoE and QMoE: each token goes through the feed-forward networks of its k best experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, InvalidGraph, KernelInfo
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.definition import operator

from .gelu import sigmoid, tanh_gelu
from .matmul_nbits import dequantize_rows

__all__ = ["moe", "qmoe"]

MICROSOFT = "com.microsoft"

Linear = Callable[[Array, int], Array]
"""Applies one expert's layer: (tokens, expert) to tokens."""


@dataclass(frozen=True, slots=True)
class _Layers:
    """The layers of all experts; ``gate`` (FC3) is None if the node has none or it is fused into ``first``."""

    first: Linear
    second: Linear
    gate: Linear | None


@operator("MoE", domain=MICROSOFT, host_inputs=(1,))
def moe(info: KernelInfo, xp: Any) -> Compute:
    """Mixture of experts with floating-point weights (experts, outputs, inputs)."""
    mix = _mixture(info, xp)

    def linear(weights: Array, bias: Array | None) -> Linear:
        def apply(x: Array, expert: int) -> Array:
            y = xp.matmul(x, weights[expert, ...].T)
            return y if bias is None else y + bias[expert, :]

        return apply

    def compute(
        x: Array,
        router: HostArray,
        first: Array,
        first_bias: Array | None,
        second: Array,
        second_bias: Array | None = None,
        gate: Array | None = None,
        gate_bias: Array | None = None,
    ) -> Array:
        gate_layer = None if gate is None else linear(gate, gate_bias)
        return mix(x, router, router, _Layers(linear(first, first_bias), linear(second, second_bias), gate_layer))

    return compute


def _is_integer_quantized(info: KernelInfo) -> str | None:
    kind = info.attribute("quant_type", "int")
    return None if kind == "int" else f"the attribute quant_type is '{kind}'; only 'int' is supported"


@operator("QMoE", domain=MICROSOFT, host_inputs=(1, 14), when=_is_integer_quantized)
def qmoe(info: KernelInfo, xp: Any) -> Compute:
    """Mixture of experts with weights of 2, 4 or 8 bits, scaled per row or per block; dequantized expert by expert."""
    mix = _mixture(info, xp)
    bits = info.attribute("expert_weight_bits", 4)
    widths = [info.attribute(f"fc{layer}_expert_weight_bits", bits) for layer in (1, 2, 3)]

    def linear(width: int, layer: tuple[Array | None, ...], zero_points: Array | None) -> Linear:
        weights: Any = layer[0]
        scales: Any = layer[1]
        bias = layer[2]

        def apply(x: Array, expert: int) -> Array:
            weight = _expert_weight(
                xp, weights[expert, ...], scales[expert, ...], None if zero_points is None else zero_points[expert, ...], width
            )
            y = xp.matmul(x, weight.T)
            return y if bias is None else y + bias[expert, :]

        return apply

    def compute(x: Array, router: HostArray, *rest: Array | None) -> Array:
        values = (*rest, *(None,) * 13)[:13]
        first = linear(widths[0], values[:3], values[9])
        second = linear(widths[1], values[3:6], values[10])
        gate = None if values[6] is None else linear(widths[2], values[6:9], values[11])
        return mix(x, router, router if values[12] is None else values[12], _Layers(first, second, gate))

    return compute


def _expert_weight(xp: Any, rows: Array, scales: Array, zero_points: Array | None, bits: int) -> Array:
    """One expert's weight (outputs, inputs), from packed rows with one scale per row or per block."""
    outputs = rows.shape[0]
    row_scales = xp.reshape(scales, (outputs, -1))
    blocks = row_scales.shape[1]
    zeros = None
    if zero_points is not None and scales.ndim > 1:
        zeros = xp.unpack_bits(zero_points, bits)[:, :blocks]
    elif zero_points is not None:
        zeros = xp.reshape(xp.unpack_bits(zero_points, bits)[:outputs], (outputs, 1))
    return dequantize_rows(xp, xp.reshape(rows, (outputs, blocks, -1)), row_scales, zeros, bits)


def _mixture(info: KernelInfo, xp: Any) -> Callable[[Array, HostArray, HostArray, _Layers], Array]:
    """A function ``(tokens, router logits, mixing weights, layers)`` that routes tokens and sums what experts answer.

    Where logits are the weights as well, MoE takes their softmax over all experts, QMoE that over the chosen ones.
    """
    best, normalize = info.attribute("k", 1), bool(info.attribute("normalize_routing_weights", 0))
    over_chosen = info.op_type == "QMoE"
    if info.attribute("use_sparse_mixer", 0):
        raise InvalidGraph(f"{info.describe()}: attribute 'use_sparse_mixer' is 1; it must be 0 here")
    activate = _activation(info, xp)

    def mix(x: Array, router: HostArray, mixing: HostArray, layers: _Layers) -> Array:
        tokens = xp.reshape(x, (-1, x.shape[-1]))
        if router.shape[0] != tokens.shape[0]:
            raise InvalidArgument(
                f"{info.describe()}: router_probs has shape {router.shape}; input of shape {tuple(x.shape)} has"
                f" {tokens.shape[0]} tokens"
            )
        chosen, weights = _route(router, mixing, best, normalize=normalize or (over_chosen and mixing is router))
        order = np.argsort(chosen, axis=None, kind="stable")
        experts, starts = np.unique(chosen.reshape(-1)[order], return_index=True)
        answers = []
        for expert, start, stop in zip(experts.tolist(), starts, [*starts[1:], order.size], strict=True):
            members = xp.take(tokens, xp.from_host(order[start:stop] // best), axis=0)
            hidden = activate(layers.first(members, expert), None if layers.gate is None else layers.gate(members, expert))
            answers.append(layers.second(hidden, expert))
        back = np.empty_like(order)
        back[order] = np.arange(order.size)
        answered = xp.reshape(xp.take(xp.concat(answers, axis=0), xp.from_host(back), axis=0), (tokens.shape[0], best, -1))
        scale = xp.module.astype(xp.from_host(weights[:, :, None]), answered.dtype, copy=False)
        return xp.reshape(xp.sum(answered * scale, axis=1), x.shape)

    return mix


def _route(router: HostArray, mixing: HostArray, best: int, *, normalize: bool) -> tuple[HostArray, HostArray]:
    """Experts (tokens, k) of each token, best first, and their weights."""
    chosen = np.argsort(-router, axis=1, kind="stable")[:, :best]
    if mixing is not router:
        weights = np.take_along_axis(mixing, chosen, axis=1)
    else:
        powers = np.exp(router - router.max(axis=1, keepdims=True))
        weights = np.take_along_axis(powers / powers.sum(axis=1, keepdims=True), chosen, axis=1)
    return chosen, weights / weights.sum(axis=1, keepdims=True) if normalize else weights


def _activation(info: KernelInfo, xp: Any) -> Callable[[Array, Array | None], Array]:
    """A function of FC1's and FC3's outputs."""
    name = info.attribute("activation_type", "relu")
    if name == "swiglu":
        return _swiglu(info, xp)
    functions: dict[str, Callable[[Array], Array]] = {
        "relu": lambda x: xp.maximum(x, xp.zeros_like(x)),
        "gelu": tanh_gelu(xp),
        "silu": lambda x: x * sigmoid(xp, x),
        "identity": lambda x: x,
    }
    if name not in functions:
        raise InvalidGraph(f"{info.describe()}: activation_type is '{name}'; it must be swiglu, {', '.join(functions)}")
    function = functions[name]
    return lambda x, gate: function(x) if gate is None else function(x) * gate


def _swiglu(info: KernelInfo, xp: Any) -> Callable[[Array, Array | None], Array]:
    alpha, beta = info.attribute("activation_alpha", 1.0), info.attribute("activation_beta", 0.0)
    limit, fusion = info.attribute("swiglu_limit", None), info.attribute("swiglu_fusion", 0)

    def activate(x: Array, gate: Array | None) -> Array:
        half = x.shape[-1] // 2
        if gate is not None:
            swish, linear = x, gate
        elif fusion == 1:
            swish, linear = x[..., 0::2], x[..., 1::2]
        else:
            swish, linear = x[..., :half], x[..., half:]
        if limit is not None:
            swish, linear = xp.clip(swish, max=limit), xp.clip(linear, min=-limit, max=limit)
        return swish * sigmoid(xp, swish * alpha) * (linear + beta)

    return activate
