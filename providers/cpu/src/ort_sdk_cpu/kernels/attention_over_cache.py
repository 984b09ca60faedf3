"""Attention of ONNX, and MultiHeadAttention with a key-value cache, in float32 by compiled tasks."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.contrib.attention import MASK_FILTER_VALUE
from ort_sdk.opset.contrib.attention_core import mask_bias
from ort_sdk.opset.numpy_namespace import NumpyNamespace

from .cached_attention import CachedAttention, common_counts, is_readable, is_spread, takes
from .direct_kernel import computed_by
from .recycled import ResultMemory

__all__ = ["Heads", "multi_head_over_cache"]

FLOAT = np.dtype(np.float32)
PARTS = 3
"""Outputs: the result, and a cache's keys and values."""


@dataclass(frozen=True, slots=True)
class Heads:
    """Queries, keys and values of a call, as they lie, and their heads."""

    q: HostArray
    k: HostArray
    v: HostArray
    heads: int
    key_heads: int
    past_key: HostArray | None
    past_value: HostArray | None

    @property
    def batch(self) -> int:
        """Samples."""
        return int(self.q.shape[0])

    @property
    def length(self) -> int:
        """Queries of a head."""
        return int(self.q.shape[2 if self.q.ndim == 4 else 1])

    @property
    def past(self) -> int:
        """Keys of the past."""
        return 0 if self.past_key is None else int(self.past_key.shape[2])

    @property
    def keys(self) -> int:
        """Keys of a head, with those of the past."""
        return self.past + int(self.k.shape[2 if self.k.ndim == 4 else 1])

    @property
    def scores(self) -> tuple[int, int, int, int]:
        """Shape of the scores."""
        return self.batch, self.heads, self.length, self.keys

    def fit(self) -> bool:
        """Whether the arrays belong together, and tasks can read them."""
        shapes = [
            _by_head(part, heads) for part, heads in ((self.q, self.heads), (self.k, self.key_heads), (self.v, self.key_heads))
        ]
        if any(shape is None for shape in shapes) or not self.key_heads or self.heads % self.key_heads:
            return False
        q, k, v = shapes
        is_alike = q[0] == k[0] and k[:3] == v[:3] and q[3] == k[3] and q[1] == self.heads and k[1] == self.key_heads  # type: ignore[index]
        return is_alike and is_readable(self.q, self.k, self.v) and self._fits_past(k, v)  # type: ignore[arg-type]

    def _fits_past(self, k: tuple[int, ...], v: tuple[int, ...]) -> bool:
        if self.past_key is None or self.past_value is None:
            return self.past_key is self.past_value
        wanted = (*k[:2], self.past)
        is_shaped = self.past_key.shape == (*wanted, k[3]) and self.past_value.shape == (*wanted, v[3])
        return is_shaped and self.past_key.flags.c_contiguous and self.past_value.flags.c_contiguous

    def attention(self, results: ResultMemory, *, has_cache: bool, scale: float | None) -> CachedAttention:
        """What is to be computed, without limits and masks."""
        batch, _, length, keys = self.scores
        is_four, past = self.q.ndim == 4, self.past
        size = self.q.shape[3] if is_four else self.q.shape[2] // self.heads
        value_size = self.v.shape[3] if self.v.ndim == 4 else self.v.shape[2] // self.key_heads
        cache = (batch, self.key_heads, keys)
        return CachedAttention(
            heads=self.heads,
            key_heads=self.key_heads,
            scale=1 / math.sqrt(size) if scale is None else scale,
            q=self.q,
            keys=results.empty((*cache, size)) if has_cache else self.k,
            values=results.empty((*cache, value_size)) if has_cache else self.v,
            out=results.empty((batch, self.heads, length, value_size) if is_four else (batch, length, self.heads * value_size)),
            counts=common_counts(batch, past, past, keys),
            most_keys=keys,
            k=self.k if has_cache else None,
            v=self.v if has_cache else None,
            past_key=self.past_key,
            past_value=self.past_value,
        )


def _by_head(array: HostArray, heads: int) -> tuple[int, ...] | None:
    """Shape (batch, heads, rows, size); None if there is none."""
    if array.ndim == 4:
        return tuple(array.shape)
    if array.ndim != 3 or not heads or array.shape[2] % heads:
        return None
    return array.shape[0], heads, array.shape[1], array.shape[2] // heads


@computed_by("Attention")
def attention(info: KernelInfo) -> Callable[..., Any] | None:
    """Any node of float32 that asks for no scores."""
    floats = [argument for index, argument in enumerate(info.inputs) if index not in {3, 6}]
    if info.wants_output(PARTS) or not takes((*floats, *info.outputs)):
        return None
    return _Attention(info).call


class _Attention:
    """A node of ONNX's operator."""

    def __init__(self, info: KernelInfo) -> None:
        self._heads, self._key_heads = int(info.attribute("q_num_heads", 0)), int(info.attribute("kv_num_heads", 0))
        scale = info.attribute("scale", None)
        self._scale = None if scale is None else float(scale)
        self._softcap, self._left = float(info.attribute("softcap", 0.0)), int(info.attribute("left_window_size", -1))
        self._right = 0 if info.attribute("is_causal", 0) else int(info.attribute("right_window_size", -1))
        self._has_present, self._results = info.wants_output(1) or info.wants_output(2), ResultMemory()

    def call(
        self,
        q: HostArray,
        k: HostArray,
        v: HostArray,
        mask: HostArray | None = None,
        past_key: HostArray | None = None,
        past_value: HostArray | None = None,
        valid_keys: HostArray | None = None,
    ) -> Any:
        """The node's outputs."""
        q_heads = q.shape[1] if q.ndim == 4 else self._heads
        parts = Heads(q, k, v, q_heads, k.shape[1] if k.ndim == 4 else self._key_heads, past_key, past_value)
        if not parts.fit() or not is_spread(mask, parts.scores) or not parts.length or not parts.keys:
            return NotImplemented
        has_cache = self._has_present or past_key is not None
        cached = parts.attention(self._results, has_cache=has_cache, scale=self._scale)
        if valid_keys is not None:
            if valid_keys.shape != (parts.batch,) or valid_keys.min() < 0 or valid_keys.max() > parts.keys:
                return NotImplemented
            first = [parts.past or valid - parts.length for valid in valid_keys.tolist()]
            rows = [(parts.past, place, valid) for place, valid in zip(first, valid_keys.tolist(), strict=True)]
            cached.counts = np.array(rows, np.int64)
        if mask is not None:
            cached.mask = np.where(mask, np.float32(0), np.float32(-np.inf)) if mask.dtype == np.bool_ else mask
        cached.left, cached.right, cached.softcap = self._left, self._right, self._softcap
        cached.run()
        return (cached.out, cached.keys, cached.values, None) if self._has_present else cached.out


_NAMESPACE = NumpyNamespace()


def _hidden(mask: HostArray | None, scores: tuple[int, int, int, int], filter_value: float) -> HostArray | None:
    """Numbers to add to the scores for a mask; None for one that hides nothing, as that of most steps of a decoder."""
    batch, _, length, keys = scores
    if mask is None or (mask.shape == (batch, keys) and (mask > 0).all()):
        return None
    return mask_bias(_NAMESPACE, mask, (batch, length, keys), filter_value, FLOAT)


def multi_head_over_cache(info: KernelInfo) -> Callable[..., Any] | None:
    """MultiHeadAttention of float32: with a past, with the cache as outputs, or of few queries; None if it asks for scores."""
    if info.wants_output(PARTS) or not takes([argument for index, argument in enumerate(info.inputs) if index not in {4, 8, 9}]):
        return None
    heads, scale = int(info.attribute("num_heads")), info.attribute("scale", 0.0) or None
    filter_value, is_causal = info.attribute("mask_filter_value", MASK_FILTER_VALUE), bool(info.attribute("unidirectional", 0))
    outputs, results = len(info.outputs), ResultMemory()

    def call(
        query: HostArray,
        key: HostArray | None = None,
        value: HostArray | None = None,
        bias: HostArray | None = None,
        mask: HostArray | None = None,
        added: HostArray | None = None,
        past_key: HostArray | None = None,
        past_value: HostArray | None = None,
        *others: Any,
    ) -> Any:
        if key is None or value is None or key.ndim == 5 or query.ndim != 3 or any(other is not None for other in others):
            return NotImplemented
        parts = Heads(query, key, value, heads, heads, past_key, past_value)
        if not parts.fit() or (added is not None and not is_spread(added, parts.scores)) or not parts.length or not parts.keys:
            return NotImplemented
        cached = parts.attention(results, has_cache=outputs > 1 or past_key is not None, scale=scale)
        if bias is not None and (bias.size != query.shape[2] * 2 + cached.out.shape[2] or not is_readable(bias)):
            return NotImplemented
        if is_causal and mask is not None and parts.length > 1:
            # Where all keys are hidden, the weights are those of scores rounded beside the filter value, as they are computed.
            return NotImplemented
        hidden = _hidden(mask, parts.scores, filter_value)
        numbers = [number for number in (added, hidden) if number is not None]
        cached.mask = functools.reduce(np.add, numbers) if numbers else None
        cached.bias, cached.is_of_queries = bias, key.ndim == 4
        if is_causal:
            cached.counts, cached.right = common_counts(parts.batch, parts.past, parts.keys - parts.length, parts.keys), 0
        cached.run()
        return cached.out if outputs < 2 else (cached.out, cached.keys, cached.values)[:outputs]

    return call
