"""RotaryEmbedding in float32 by the compiled task that rotates queries and keys of attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo

from .attention_task import places
from .cached_attention import Rotary, is_readable, rotated, takes
from .direct_kernel import computed_by
from .recycled import ResultMemory
from .task_writer import MIN_ELEMENTS

__all__: list[str] = []


def _takes_floats(info: KernelInfo, positions: int) -> bool:
    return takes([*(argument for index, argument in enumerate(info.inputs) if index != positions), *info.outputs])


@computed_by("RotaryEmbedding", domain="com.microsoft")
def contrib_rotary_embedding(info: KernelInfo) -> Callable[..., Any] | None:
    """Any node of float32: positions are given for each token, or for the first."""
    heads, width = int(info.attribute("num_heads", 0)), int(info.attribute("rotary_embedding_dim", 0))
    is_interleaved, results = bool(info.attribute("interleaved", 0)), ResultMemory()

    def call(x: HostArray, positions: HostArray, cos: HostArray, sin: HostArray) -> Any:
        if x.ndim not in {3, 4} or x.size < MIN_ELEMENTS or cos.ndim != 2:
            return NotImplemented
        tokens = (x.shape[0], x.shape[2 if x.ndim == 4 else 1])
        if positions.shape != tokens:
            if positions.size != 1:
                return NotImplemented
            positions = positions.reshape(1, 1) + np.zeros((tokens[0], 1), np.int64) + np.arange(tokens[1])
        own = heads if heads and width else x.shape[-1] // (2 * cos.shape[1] or 1)
        return _rotated(x, own, (cos, sin, positions), tokens, results, is_interleaved=is_interleaved)

    return call if _takes_floats(info, 1) else None


@computed_by("RotaryEmbedding")
def rotary_embedding(info: KernelInfo) -> Callable[..., Any] | None:
    """Any node of float32: rows of the caches are those of positions, or of tokens."""
    heads, width = int(info.attribute("num_heads", 0)), int(info.attribute("rotary_embedding_dim", 0))
    is_interleaved, results = bool(info.attribute("interleaved", 0)), ResultMemory()

    def call(x: HostArray, cos: HostArray, sin: HostArray, positions: HostArray | None = None) -> Any:
        if x.ndim not in {3, 4} or x.size < MIN_ELEMENTS:
            return NotImplemented
        tokens = (x.shape[0], x.shape[2 if x.ndim == 4 else 1])
        if positions is None:
            if cos.shape[:2] != tokens or cos.ndim != 3 or cos.shape != sin.shape:
                return NotImplemented
            positions = np.arange(tokens[0] * tokens[1]).reshape(tokens)
            cos, sin = (np.ascontiguousarray(cache).reshape(-1, cache.shape[2]) for cache in (cos, sin))
        if width and cos.shape[-1] != width // 2:
            return NotImplemented
        own = x.shape[1] if x.ndim == 4 else heads
        size = x.shape[3] if x.ndim == 4 else x.shape[2] // (own or 1)
        if not width and 2 * cos.shape[-1] != size:
            return NotImplemented
        return _rotated(x, own, (cos, sin, positions), tokens, results, is_interleaved=is_interleaved)

    return call if _takes_floats(info, 3) else None


def _rotated(
    x: HostArray,
    heads: int,
    caches: tuple[HostArray, HostArray, HostArray],
    tokens: tuple[int, int],
    results: ResultMemory,
    *,
    is_interleaved: bool,
) -> Any:
    """The heads of ``x`` rotated; ``NotImplemented`` if the arrays do not belong together."""
    if x.ndim == 4:
        heads = x.shape[1]
    if not heads or (x.ndim == 3 and x.shape[2] % heads) or not is_readable(x):
        return NotImplemented
    size = x.shape[3] if x.ndim == 4 else x.shape[2] // heads
    rotary = Rotary.of(*caches, tokens, size, is_interleaved=is_interleaved)
    if rotary is NotImplemented:
        return NotImplemented
    out = results.empty(x.shape)
    rotated(places(x, heads), places(out, heads), rotary, (*tokens, heads, size))
    return out
