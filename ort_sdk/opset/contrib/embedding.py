"""EmbedLayerNormalization, QEmbedLayerNormalization and the position biases of attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, KernelInfo
from ort_sdk.opset.definition import operator
from ort_sdk.opset.input_shapes import InputShapes
from ort_sdk.opset.nn.normalization import standardized

from .gelu import sigmoid
from .quantized_elementwise import dequantize

__all__ = ["embed_layer_normalization", "gated_relative_position_bias", "relative_position_bias"]

MICROSOFT = "com.microsoft"


def _embedding_shapes(_info: KernelInfo, shapes: InputShapes) -> None:
    """Numbers of words and segments, tables of rows of one width, and vectors of it."""
    shapes.match(0, "input_ids", ("batch", "length"))
    shapes.match(1, "segment_ids", ("batch", "length"))
    shapes.match(2, "word_embedding", (None, "width"))
    shapes.match(3, "position_embedding", ("positions", "width"))
    if shapes.of(8) is None and shapes["positions"] < shapes["length"]:
        raise shapes.refused(f"position_embedding has {shapes['positions']} rows for {shapes['length']} words")
    shapes.match(4, "segment_embedding", (None, "width"))
    shapes.match(5, "gamma", ("width",))
    shapes.match(6, "beta", ("width",))


def _embedding_layer_shapes(info: KernelInfo, shapes: InputShapes) -> None:
    """The same with a mask, and with positions of each word, or for all samples."""
    _embedding_shapes(info, shapes)
    shapes.match(7, "mask", ("batch", "length"))
    shapes.match(8, "position_ids", ("batch", "length"), (1, "length"))


@operator("EmbedLayerNormalization", domain=MICROSOFT, shapes=_embedding_layer_shapes)
def embed_layer_normalization(info: KernelInfo, xp: Any) -> Compute:
    """LayerNormalization of the sum of word, position and segment embeddings; (output, mask_index, embedding_sum)."""
    epsilon = info.attribute("epsilon", 1e-12)
    outputs = len(info.outputs)

    def compute(
        input_ids: Array,
        segment_ids: Array | None,
        word: Array,
        position: Array,
        segment: Array | None,
        gamma: Array,
        beta: Array,
        mask: Array | None = None,
        position_ids: Array | None = None,
    ) -> Any:
        total = xp.gather(word, input_ids, 0)
        length = input_ids.shape[1]
        total = total + (position[:length, :] if position_ids is None else xp.gather(position, position_ids, 0))
        if segment_ids is not None and segment is not None:
            total = total + xp.gather(segment, segment_ids, 0)
        y = standardized(xp, total, epsilon)[0] * gamma + beta
        return y if outputs < 2 else (y, _mask_index(xp, input_ids, mask), total)[:outputs]

    return compute


def _mask_index(xp: Any, input_ids: Array, mask: Array | None) -> Array:
    """Number of words of each sequence, int32."""
    if mask is None:
        return xp.zeros(input_ids.shape[0], dtype=xp.int32)
    return xp.sum(xp.module.astype(mask == 1, xp.int32), axis=1, dtype=xp.int32)


def _quantized_embedding_shapes(info: KernelInfo, shapes: InputShapes) -> None:
    """The same, with a scale and a zero point for each table and vector."""
    _embedding_shapes(info, shapes)
    shapes.match(7, "mask", ("batch", "length"))
    for index in range(8, 18):
        shapes.count(index, "scale or zero point", 1)


@operator("QEmbedLayerNormalization", domain=MICROSOFT, shapes=_quantized_embedding_shapes)
def qembed_layer_normalization(info: KernelInfo, xp: Any) -> Compute:
    """EmbedLayerNormalization of 8-bit tables, gamma and beta, each with a scale and a zero point."""
    epsilon = info.attribute("epsilon", 1e-12)

    def compute(input_ids: Array, segment_ids: Array | None, *rest: Array | None) -> Any:
        tables, mask, scales, zeros = rest[:5], rest[5], rest[6:11], rest[11:16]
        word, position, segment, gamma, beta = tables
        total = dequantize(xp, xp.gather(word, input_ids, 0), scales[0], zeros[0])
        total = total + dequantize(xp, position[: input_ids.shape[1], :], scales[1], zeros[1])  # type: ignore[index]
        if segment_ids is not None:
            total = total + dequantize(xp, xp.gather(segment, segment_ids, 0), scales[2], zeros[2])
        normalized = standardized(xp, total, epsilon)[0]
        y = normalized * dequantize(xp, gamma, scales[3], zeros[3]) + dequantize(xp, beta, scales[4], zeros[4])
        return y, _mask_index(xp, input_ids, mask)

    return compute


@operator("RelativePositionBias", domain=MICROSOFT, host_inputs=(1, 2), shape_inputs=(1, 2))
def relative_position_bias(info: KernelInfo, xp: Any) -> Compute:
    """T5's binned bias of attention by distance: (1, heads, query length, key length) from a (buckets, heads) table."""
    max_distance = info.attribute("max_distance")
    bidirectional = bool(info.attribute("is_bidirectional", 0))

    def compute(table: Array, query_length: HostArray, key_length: HostArray) -> Array:
        shape = (int(np.reshape(query_length, ())), int(np.reshape(key_length, ())))
        buckets = _buckets(*shape, table.shape[0], max_distance, bidirectional=bidirectional)
        chosen = xp.take(table, xp.from_host(buckets.reshape(-1)), axis=0)
        return xp.reshape(xp.permute_dims(chosen, (1, 0)), (1, table.shape[1], *shape))

    return compute


def _buckets(queries: int, keys: int, count: int, max_distance: int, *, bidirectional: bool) -> HostArray:
    """Bucket of each (query, key) pair: exact for near pairs, logarithmic in the distance for far ones."""
    distance = np.arange(queries)[:, None] - np.arange(keys)[None, :]
    offset: HostArray = np.zeros_like(distance)
    if bidirectional:
        count //= 2
        offset = np.where(distance < 0, count, 0)
        distance = np.abs(distance)
    distance = np.maximum(distance, 0)
    exact = count // 2
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / exact) / np.log(np.float32(max_distance / exact))
    far = np.minimum(exact + (ratio * (count - exact)).astype(np.int64), count - 1)
    buckets: HostArray = offset + np.where(distance < exact, distance, far)
    return buckets


@operator("GatedRelativePositionBias", domain=MICROSOFT)
def gated_relative_position_bias(info: KernelInfo, xp: Any) -> Compute:
    """WavLM's bias of attention: a relative position bias scaled by gates computed from the query."""
    heads = info.attribute("num_heads")

    def compute(
        query: Array,
        query_bias: Array,
        positions: Array,
        weight: Array,
        bias: Array,
        eco_a: Array,
        _token_offset: Array | None = None,
    ) -> Array:
        batch, length, width = query.shape
        split = xp.reshape(query + query_bias, (batch, length, heads, width // heads))
        projected = xp.matmul(xp.permute_dims(split, (0, 2, 1, 3)), weight) + bias
        gate_parts = xp.reshape(projected, (batch, heads, length, 2, weight.shape[1] // 2))
        gates = sigmoid(xp, xp.sum(gate_parts, axis=-1))
        gate_u, gate_r = gates[..., :1], gates[..., 1:]
        return (gate_u * (gate_r * eco_a - 1.0) + 2.0) * positions

    return compute
