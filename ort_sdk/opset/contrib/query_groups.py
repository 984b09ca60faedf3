"""What GroupQueryAttention and SparseAttention share: settings, projection, and positions of tokens in a KV cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import Array, HostArray, KernelInfo
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.llm.rotary import rotate

from .attention_core import split_heads
from .normalization import root_mean_square_normalized

__all__ = ["GroupSettings", "Projection", "TokenLayout", "hidden_bias", "resident"]


@dataclass(frozen=True, slots=True)
class TokenLayout:
    """Positions of the tokens of each sequence of a batch in a KV cache. Host arrays are (batch,) int64."""

    past: HostArray
    """Tokens before this call."""
    total: HostArray
    """Tokens after it."""
    base: HostArray
    """Position of the token in the cache's first row; 0 unless old tokens are dropped."""
    new: int
    rows: int
    """Rows of the cache that attention reads."""

    @classmethod
    def of(cls, totals: HostArray, longest: int, new: int) -> TokenLayout:
        """Layout of a cache that keeps every token.

        Args:
            totals: tokens of each sequence after this call.
            longest: the most a sequence of the batch can have; if equal to ``new``, nothing is past.
            new: tokens of this call.
        """
        past = np.zeros_like(totals) if new == longest else totals - new
        return cls(past, totals, np.zeros_like(totals), new, longest)

    @classmethod
    def windowed(cls, totals: HostArray, longest: int, new: int, window: int, capacity: int) -> TokenLayout:
        """Layout of a cache of ``capacity`` rows that drops tokens that have left the window; see ``resident``."""
        past = cls.of(totals, longest, new).past
        kept = resident(past, window, capacity)
        return cls(past, totals, past - kept, new, int(kept.max(initial=0)) + new)

    @property
    def starts(self) -> list[int]:
        """Row of the first new token of each sequence."""
        rows: list[int] = (self.past - self.base).tolist()
        return rows

    def positions(self) -> HostArray:
        """Position of each new token, (batch, new)."""
        return self.past[:, None] + np.arange(self.new)

    def hidden(self, *, causal: bool, window: int) -> HostArray | None:
        """True where a query may not see a row of the cache, (batch, 1, new, rows); None if it may see all."""
        keys, queries = (self.base[:, None] + np.arange(self.rows))[:, None, :], self.positions()[:, :, None]
        ends = queries if causal else self.total[:, None, None] - 1
        hidden = np.broadcast_to(keys > ends, (len(self.total), self.new, self.rows))
        if window >= 0:
            hidden = hidden | (keys <= queries - window)
        return hidden[:, None] if hidden.any() else None


def resident(tokens: HostArray, window: int, capacity: int) -> HostArray:
    """How many of a sequence's tokens a window cache keeps: all that fit, else dropped in steps of capacity - window + 1."""
    step = capacity - window + 1
    excess = np.maximum(tokens - capacity, 0)
    kept: HostArray = tokens - step * -(-excess // step)
    return kept


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Attributes of a node."""

    heads: int
    key_heads: int
    scale: float | None
    softcap: float
    window: int
    """How many keys a query sees, itself included; -1 for all."""
    causal: bool
    do_rotary: bool
    interleaved: bool
    smooth: bool
    norm_epsilon: float

    @classmethod
    def of(cls, info: KernelInfo) -> GroupSettings:
        """Settings of a node."""
        return cls(
            heads=info.attribute("num_heads"),
            key_heads=info.attribute("kv_num_heads"),
            scale=info.attribute("scale", 0.0) or None,
            softcap=info.attribute("softcap", 0.0),
            window=info.attribute("local_window_size", -1),
            causal=bool(info.attribute("causal", 1)),
            do_rotary=bool(info.attribute("do_rotary", 0)),
            interleaved=bool(info.attribute("rotary_interleaved", 0)),
            smooth=info.attribute("smooth_softmax", -1) == 1,
            norm_epsilon=info.attribute("qk_norm_epsilon", 1e-6),
        )


class Projection:
    """Brings query, key and value to (batch, heads, sequence, size), normalised and rotated as the node asks."""

    def __init__(self, xp: Any, settings: GroupSettings) -> None:
        self._xp = xp
        self._settings = settings

    def split(
        self,
        query: Array,
        key: Array | None,
        value: Array | None,
        q_norm: Array | None = None,
        k_norm: Array | None = None,
    ) -> tuple[Array, Array, Array]:
        """Heads of the three; a query without a key holds all three, query heads first."""
        xp, heads, key_heads = self._xp, self._settings.heads, self._settings.key_heads
        if key is None or value is None:
            both = split_heads(xp, query, heads + 2 * key_heads)
            q, k, v = both[:, :heads, ...], both[:, heads : heads + key_heads, ...], both[:, heads + key_heads :, ...]
        else:
            q, k, v = split_heads(xp, query, heads), split_heads(xp, key, key_heads), split_heads(xp, value, key_heads)
        return self._normalized(q, q_norm), self._normalized(k, k_norm), v

    def _normalized(self, x: Array, weight: Array | None) -> Array:
        if weight is None:
            return x
        return root_mean_square_normalized(self._xp, x, self._settings.norm_epsilon)[0] * weight

    def rotated(
        self,
        q: Array,
        k: Array,
        cos_cache: Array | None,
        sin_cache: Array | None,
        layout: TokenLayout,
        position_ids: Array | None = None,
    ) -> tuple[Array, Array]:
        """Queries and keys rotated by their positions, if the node asks for it."""
        if not self._settings.do_rotary or cos_cache is None:
            return q, k
        xp = self._xp
        positions = position_ids
        if positions is None:
            positions = xp.from_host(np.minimum(layout.positions(), cos_cache.shape[0] - 1))
        cos, sin = (xp.expand_dims(xp.gather(cache, positions, 0), axis=1) for cache in (cos_cache, sin_cache))
        interleaved = self._settings.interleaved
        return rotate(xp, q, cos, sin, interleaved=interleaved), rotate(xp, k, cos, sin, interleaved=interleaved)


def hidden_bias(xp: Any, hidden: HostArray | None, dtype: Any) -> Array | None:
    """The lowest number where a key is hidden, zero elsewhere; None if nothing is."""
    if hidden is None:
        return None
    lowest = xp.asarray(xp.finfo(dtype).min, dtype=dtype)
    return xp.where(xp.from_host(np.ascontiguousarray(hidden)), lowest, xp.zeros_like(lowest))
