"""Which keys a query of Attention may attend, as a bias added to the scores."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array
from ort_sdk.api.data_classes import dataclass

__all__ = ["AllowedKeys", "attention_bias"]


@dataclass(frozen=True, slots=True)
class AllowedKeys:
    """Limits on the distance between a query and the keys it attends."""

    causal: bool
    left: int = -1
    """How many positions before the query's own may be attended; -1 for all."""
    right: int = -1
    """The same after it."""

    @property
    def unlimited(self) -> bool:
        """Whether nothing is excluded."""
        return not self.causal and self.left < 0 and self.right < 0

    def within(self, xp: Any, queries: Array, keys: Array) -> Array | None:
        """Which keys are within the limits: bool, broadcast of query positions against key positions; None for all."""
        conditions = []
        if self.causal:
            conditions.append(keys <= queries)
        if self.left >= 0:
            conditions.append(keys >= queries - self.left)
        if self.right >= 0:
            conditions.append(keys <= queries + self.right)
        return _all(xp, conditions)


def _all(xp: Any, conditions: list[Array]) -> Array | None:
    result = None
    for condition in conditions:
        result = condition if result is None else xp.logical_and(result, condition)
    return result


def attention_bias(
    xp: Any, allowed: AllowedKeys, mask: Array | None, valid_keys: Array | None, query: Array, keys: int, past: int
) -> Array | None:
    """What is added to the scores: the floating-point mask, and minus infinity where a key is not to be attended.

    Args:
        xp: array namespace.
        allowed: limits on distance.
        mask: bool (True: attend) or numbers to add; broadcasts to (batch, heads, queries, keys), its last axis may be
            shorter than the keys, which excludes the rest.
        valid_keys: keys of each sample that are not padding, (batch,).
        query: (batch, heads, queries, size).
        keys: number of keys, cached ones included.
        past: number of cached keys.

    Returns:
        An array of the query's dtype that broadcasts to (batch, heads, queries, keys); None if nothing is added.
    """
    conditions, bias = [], None
    positions = xp.arange(keys, dtype=xp.int64)
    if not allowed.unlimited:
        conditions.append(allowed.within(xp, _query_positions(xp, query.shape[2], past, valid_keys), positions))
    if valid_keys is not None:
        conditions.append(positions < xp.reshape(valid_keys, (-1, 1, 1, 1)))
    if mask is not None:
        is_bool = xp.isdtype(mask.dtype, "bool")
        if mask.shape[-1] < keys and mask.shape[-1] != 1:
            conditions.append(positions < mask.shape[-1])
            mask = _extended(xp, mask, keys)
        if is_bool:
            conditions.append(mask)
        else:
            bias = xp.module.astype(mask, query.dtype, copy=False)
    allowed_keys = _all(xp, conditions)
    if allowed_keys is None:
        return bias
    nothing = xp.asarray(0, dtype=query.dtype) if bias is None else bias
    return xp.where(allowed_keys, nothing, xp.asarray(-xp.inf, dtype=query.dtype))


def _query_positions(xp: Any, queries: int, past: int, valid_keys: Array | None) -> Array:
    """Position of each query among the keys: (queries, 1), or (batch, 1, queries, 1) if samples differ."""
    own = xp.reshape(xp.arange(queries, dtype=xp.int64), (-1, 1))
    if valid_keys is None or past:
        return own + past
    return own + (xp.reshape(valid_keys, (-1, 1, 1, 1)) - queries)


def _extended(xp: Any, mask: Array, keys: int) -> Array:
    """The mask with its last axis filled up to ``keys``; what is added is excluded elsewhere."""
    filler = xp.zeros((*mask.shape[:-1], keys - mask.shape[-1]), dtype=mask.dtype)
    return xp.concat([mask, filler], axis=-1)
