"""Operators on several residual streams (hyper-connections), and the gates of Engram and of linear attention."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, KernelInfo
from ort_sdk.opset.definition import operator

from .gelu import sigmoid
from .normalization import root_mean_square_normalized

__all__ = ["branchwise_rms_norm", "engram_gate", "hyper_connection_post_mix", "hyper_connection_pre_mix"]

MICROSOFT = "com.microsoft"
SMALLEST_DOT = 1e-6
"""Least magnitude that EngramGate takes the root of."""


def _grouped(xp: Any, x: Array, branches: int) -> Array:
    """(..., C, H) of grouped or, if ``branches`` is given, flattened (..., C * H) data."""
    return xp.reshape(x, (*x.shape[:-1], branches, x.shape[-1] // branches)) if branches else x


def _gates(xp: Any, gates: Array, streams: Array) -> Array:
    """(..., C), (..., C, 1), (..., C, H) or (..., C * H) gates laid out against (..., C, H) streams."""
    if gates.ndim == streams.ndim:
        return gates
    if gates.shape[-1] == streams.shape[-2]:
        return xp.expand_dims(gates, axis=-1)
    return xp.reshape(gates, streams.shape)


@operator("BranchwiseRMSNorm", domain=MICROSOFT)
def branchwise_rms_norm(info: KernelInfo, xp: Any) -> Compute:
    """RMS normalisation of each stream, times an optional scale."""
    branches, epsilon = info.attribute("num_branches", 0), info.attribute("epsilon", 1e-5)

    def compute(x: Array, scale: Array | None = None) -> Array:
        streams = _grouped(xp, x, branches)
        y = root_mean_square_normalized(xp, streams, epsilon)[0]
        if scale is not None:
            y = y * (scale if scale.shape[-1] == streams.shape[-1] else xp.reshape(scale, streams.shape[-2:]))
        return xp.reshape(y, x.shape)

    return compute


@operator("HyperConnectionPreMix", domain=MICROSOFT)
def hyper_connection_pre_mix(info: KernelInfo, xp: Any) -> Compute:
    """One feature vector: the streams, each times its gate, summed and scaled."""
    branches, scale = info.attribute("num_branches", 0), info.attribute("reduction_scale", 1.0)

    def compute(x: Array, pre_mix: Array) -> Array:
        streams = _grouped(xp, x, branches)
        return xp.sum(streams * _gates(xp, pre_mix, streams), axis=-2) * scale

    return compute


@operator("HyperConnectionPostMix", domain=MICROSOFT)
def hyper_connection_post_mix(info: KernelInfo, xp: Any) -> Compute:
    """Streams mixed by an optional matrix, plus a block's output times each stream's gate."""
    branches = info.attribute("num_branches", 0)

    def compute(x: Array, block_output: Array, post_mix: Array, stream_mix: Array | None = None) -> Array:
        streams = _grouped(xp, x, branches)
        kept = streams if stream_mix is None else xp.matmul(xp.matrix_transpose(stream_mix), streams)
        return xp.reshape(kept + _gates(xp, post_mix, streams) * xp.expand_dims(block_output, axis=-2), x.shape)

    return compute


@operator("EngramGate", domain=MICROSOFT)
def engram_gate(info: KernelInfo, xp: Any) -> Compute:
    """A value shared by all streams, times a gate per stream from its key and query; optionally RMS-normalised as well."""
    epsilon, wants_normalized = info.attribute("epsilon", 1e-5), info.wants_output(1)

    def compute(
        key: Array, query: Array, value: Array, key_scale: Array, query_scale: Array, value_scale: Array | None = None
    ) -> Any:
        keys, queries = (root_mean_square_normalized(xp, part, epsilon)[0] for part in (key, query))
        dot = xp.sum(keys * key_scale * queries * query_scale, axis=-1, keepdims=True) / key.shape[-1] ** 0.5
        root = xp.sqrt(xp.clip(xp.abs(dot), min=SMALLEST_DOT))
        gated = sigmoid(xp, xp.sign(dot) * root) * xp.expand_dims(value, axis=-2)
        if not wants_normalized:
            return gated
        return gated, root_mean_square_normalized(xp, gated, epsilon)[0] * value_scale

    return compute


@operator("LinearAttentionGate", domain=MICROSOFT)
def linear_attention_gate(info: KernelInfo, xp: Any) -> Compute:
    """(decay_scale * softplus(a + dt_bias), sigmoid(b))."""
    wants_beta = info.wants_output(1)

    def compute(a: Array, dt_bias: Array, decay_scale: Array, b: Array | None = None) -> Any:
        shifted = a + dt_bias
        decay = xp.logaddexp(shifted, xp.zeros_like(shifted)) * decay_scale
        return (decay, sigmoid(xp, b)) if wants_beta else decay

    return compute
