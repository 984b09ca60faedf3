"""RotaryEmbedding and GemmaRotaryEmbedding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, InvalidGraph, KernelInfo
from ort_sdk.opset.definition import operator
from ort_sdk.opset.input_shapes import InputShapes
from ort_sdk.opset.llm.rotary import rotate
from ort_sdk.opset.sizes import repeated

__all__ = ["gemma_rotary_embedding", "rotary_embedding"]

MICROSOFT = "com.microsoft"


def _rotary_shapes(info: KernelInfo, shapes: InputShapes) -> None:
    """Data of heads, a row of cosines and sines for each position, and the position of each token, or of the first."""
    has_four_axes = shapes.match(0, "input", ("batch", "length", "width"), ("batch", "heads", "length", "size"))
    shapes.match(1, "position_ids", (1,), ("batch", "length"))
    shapes.match(2, "cos_cache", ("positions", "pairs"))
    shapes.match(3, "sin_cache", ("positions", "pairs"))
    heads, rotated = int(info.attribute("num_heads", 0)), int(info.attribute("rotary_embedding_dim", 0))
    if not has_four_axes:
        size = shapes["width"] // heads if rotated and heads > 0 else 2 * shapes["pairs"]
        if not size or shapes["width"] % size:
            raise shapes.refused(f"input has {shapes['width']} elements per token, which are no heads of {size}")
        shapes["size"] = size
    wanted = rotated or shapes["size"]
    if 2 * shapes["pairs"] != wanted or wanted > shapes["size"]:
        raise shapes.refused(f"cos_cache has {shapes['pairs']} pairs; heads of {shapes['size']} have {wanted} elements to rotate")


@operator("RotaryEmbedding", domain=MICROSOFT, shapes=_rotary_shapes)
def rotary_embedding(info: KernelInfo, xp: Any) -> Compute:
    """Rotary position embedding of (batch, sequence, hidden) or (batch, heads, sequence, head size) data.

    ``position_ids`` is (batch, sequence), or one offset (1,) of the first position.
    """
    interleaved, heads = bool(info.attribute("interleaved", 0)), info.attribute("num_heads", 0)
    rotary_width = info.attribute("rotary_embedding_dim", 0)

    def compute(x: Array, position_ids: Array, cos_cache: Array, sin_cache: Array) -> Array:
        length = x.shape[2] if x.ndim == 4 else x.shape[1]
        positions = position_ids
        if position_ids.ndim == 1 or math.prod(position_ids.shape) == 1 != length * x.shape[0]:
            positions = xp.reshape(position_ids, (1, 1)) + xp.expand_dims(xp.arange(length, dtype=position_ids.dtype), axis=0)
        cos, sin = xp.gather(cos_cache, positions, 0), xp.gather(sin_cache, positions, 0)
        if x.ndim == 4:
            return rotate(xp, x, xp.expand_dims(cos, axis=1), xp.expand_dims(sin, axis=1), interleaved=interleaved)
        width = x.shape[2] // heads if heads and rotary_width else 2 * cos.shape[-1]
        split = xp.reshape(x, (*x.shape[:2], x.shape[2] // max(width, 1), width))
        rotated = rotate(xp, split, xp.expand_dims(cos, axis=2), xp.expand_dims(sin, axis=2), interleaved=interleaved)
        return xp.reshape(rotated, x.shape)

    return compute


@operator("MRotaryEmbedding", domain=MICROSOFT)
def multimodal_rotary_embedding(info: KernelInfo, xp: Any) -> Compute:
    """Rotary embedding by three positions per token (time, height, width), each for its section of the feature pairs."""
    interleaved, heads = bool(info.attribute("interleaved", 0)), info.attribute("num_heads", 0)
    rotary_width = info.attribute("rotary_embedding_dim", 0)
    stream = _position_stream(tuple(info.attribute("mrope_section")), alternating=info.attribute("mrope_layout", 0) == 1)

    def compute(x: Array, position_ids: Array, cos_cache: Array, sin_cache: Array) -> Array:
        pairs = xp.from_host(stream)
        # One angle per token and pair: (batch, sequence, pairs), each from the row its own position names.
        rows = xp.permute_dims(xp.take(position_ids, pairs, axis=0), (1, 2, 0))
        flat = xp.reshape(rows * len(stream) + xp.arange(len(stream), dtype=rows.dtype), (-1,))
        cos, sin = (xp.reshape(xp.take(xp.reshape(cache, (-1,)), flat), rows.shape) for cache in (cos_cache, sin_cache))
        if x.ndim == 4:
            return rotate(xp, x, xp.expand_dims(cos, axis=1), xp.expand_dims(sin, axis=1), interleaved=interleaved)
        width = x.shape[2] // heads if heads and rotary_width else 2 * len(stream)
        split = xp.reshape(x, (*x.shape[:2], x.shape[2] // max(width, 1), width))
        rotated = rotate(xp, split, xp.expand_dims(cos, axis=2), xp.expand_dims(sin, axis=2), interleaved=interleaved)
        return xp.reshape(rotated, x.shape)

    return compute


def _position_stream(sections: tuple[int, ...], *, alternating: bool) -> HostArray:
    """Which of the three positions each feature pair is rotated by: int64, one per pair.

    Raises:
        InvalidGraph: there are not three sections.
    """
    if len(sections) != 3:
        raise InvalidGraph(f"mrope_section is {list(sections)}; it must hold the pairs of time, height and width")
    if not alternating:
        return repeated(np.arange(3), np.asarray(sections))
    stream = np.zeros(sum(sections), dtype=np.int64)
    for index in (1, 2):
        stream[index : sections[index] * 3 : 3] = index
    return stream


@operator("GemmaRotaryEmbedding", domain=MICROSOFT)
def gemma_rotary_embedding(_info: KernelInfo, xp: Any) -> Compute:
    """(q * cos + q_rot * sin, k * cos + k_rot * sin) for angles ``emb`` (batch, sequence, width)."""

    def compute(emb: Array, q: Array, q_rot: Array, k: Array, k_rot: Array) -> tuple[Array, Array]:
        cos, sin = xp.expand_dims(xp.cos(emb), axis=1), xp.expand_dims(xp.sin(emb), axis=1)
        return q * cos + q_rot * sin, k * cos + k_rot * sin

    return compute
