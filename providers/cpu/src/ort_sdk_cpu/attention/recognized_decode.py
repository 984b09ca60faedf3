"""Attention that a model writes as single operators, as one kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.memory.result_pool import ResultAllocator

from .decode import CachedAttention, broadcasts_to, common_cache_positions, has_contiguous_rows

__all__ = ["RecognizedAttention", "score_bias_of"]

FLOAT = np.dtype(np.float32)
SURELY_HIDDEN, ABSORBING = -1e8, -1e30
"""Scores from which on downwards a key has no weight beside any visible one; and from which on adding a score changes nothing."""


class RecognizedAttention:
    """softmax(scale * q k' where a condition holds, else a number, + mask) v, perhaps of a cache that new keys are put into.

    Args:
        arguments: what ``attend`` takes, of the arrays of a run; ``NotImplemented`` where these do not suit.
        scale: factor of the scores.
        filter_value: what scores become where the condition does not hold.
        masks_nan: whether weights that are NaN become 0.
    """

    def __init__(self, arguments: Callable[..., Any], scale: float, filter_value: float, *, masks_nan: bool = False) -> None:
        self._arguments = arguments
        self._scale, self._filter_value, self._results = scale, filter_value, ResultAllocator()
        self._masks_nan = masks_nan
        self.algorithm: str | None = None
        """The one used last."""

    def compute(self, *inputs: Any) -> Any:
        """What ``attend`` gives for a run's arrays."""
        arguments = self._arguments(*inputs)
        return NotImplemented if arguments is NotImplemented else self.attend(*arguments)

    def attend(
        self,
        q: HostArray,
        k: HostArray,
        v: HostArray,
        past_key: HostArray | None = None,
        past_value: HostArray | None = None,
        condition: HostArray | None = None,
        added: HostArray | None = None,
        key_target: tuple[int, ...] | None = None,
        value_target: tuple[int, ...] | None = None,
    ) -> Any:
        """Compute.

        Args:
            q: queries, (batch, heads, tokens, size) or (matrices, tokens, size).
            k: keys, as queries; new ones (batch, heads, tokens, size) where there is a past.
            v: values, in the same way.
            past_key: keys of the past, (batch, heads, past tokens, size), or (batch, past tokens, size) as queries.
            past_value: values of the past.
            condition: which scores are kept.
            added: numbers added to the scores.
            key_target: shape in which queries are multiplied with all keys; None for that of the cache.
            value_target: the same of values.

        Returns:
            The result, after the cache's keys and values if there is a past; ``NotImplemented`` for arrays that
            compiled tasks do not take.
        """
        shape, is_single = q.shape, past_key is not None and past_value is not None and past_key.ndim == past_value.ndim == 3
        q, k, v, past_key, past_value = _by_heads(q, k, v, past_key, past_value)
        if not _fit(q, k, v, past_key, past_value):
            return NotImplemented
        keys = k.shape[2] + (0 if past_key is None else past_key.shape[2])
        if not _fit_targets(q, k, v, keys, (key_target, value_target)):
            return NotImplemented
        mask = self._score_bias(condition, added, (*shape[:-1], keys), q.shape[:2])
        if mask is NotImplemented:
            return NotImplemented
        cached = self._run(q, k, v, past_key, past_value, mask)
        if self._masks_nan and math.isnan(cached.out.sum()):
            return NotImplemented
        result = cached.out if len(shape) == 4 else cached.out.reshape(*shape[:-1], v.shape[3])
        if past_key is None:
            return result
        return (cached.keys[:, 0], cached.values[:, 0], result) if is_single else (cached.keys, cached.values, result)

    def _score_bias(
        self, condition: HostArray | None, added: HostArray | None, scores: tuple[int, ...], heads: tuple[int, ...]
    ) -> Any:
        """What ``score_bias_of`` gives for scores of a shape, for (batch, heads); ``NotImplemented`` if it does not broadcast."""
        if not (broadcasts_to(condition, scores) and broadcasts_to(added, scores)):
            return NotImplemented
        mask = score_bias_of(condition, self._filter_value, added)
        if mask is None or mask is NotImplemented or len(scores) == 4:
            return mask
        return mask.reshape(_by_head(mask, *heads))

    def _run(self, q: Any, k: Any, v: Any, past_key: Any, past_value: Any, mask: Any) -> CachedAttention:
        """Attention of arrays of four axes, done."""
        (batch, heads, length, size), key_heads = q.shape, k.shape[1]
        past = 0 if past_key is None else past_key.shape[2]
        keys = past + k.shape[2]
        cached = CachedAttention(
            heads=heads,
            key_heads=key_heads,
            scale=self._scale,
            q=q,
            keys=k if past_key is None else self._results.empty((batch, key_heads, keys, size)),
            values=v if past_key is None else self._results.empty((batch, key_heads, keys, v.shape[3])),
            out=self._results.empty((batch, length, heads, v.shape[3])).transpose(0, 2, 1, 3),
            cache_positions=common_cache_positions(batch, past, past, keys),
            max_keys=keys,
            k=None if past_key is None else k,
            v=None if past_key is None else v,
            past_key=past_key,
            past_value=past_value,
            mask=mask,
        )
        cached.run()
        self.algorithm = cached.algorithm
        return cached


def _by_heads(q: Any, k: Any, v: Any, past_key: Any, past_value: Any) -> tuple[Any, ...]:
    """Arrays with axes for batch and heads, where those of the steps have one for both, or none for a single head."""
    if past_key is not None and past_value is not None and past_key.ndim == past_value.ndim == 3:
        return tuple(array[:, None] for array in (q, k, v, past_key, past_value))
    if past_key is not None and q.ndim == 3:
        return q.reshape(*past_key.shape[:2], *q.shape[1:]), k, v, past_key, past_value
    if q.ndim == 3:
        return q[None], k[None], v[None], past_key, past_value
    return q, k, v, past_key, past_value


def score_bias_of(condition: HostArray | None, filter_value: float, added: HostArray | None) -> Any:
    """Score bias that does the same as replacing scores where a condition does not hold, and adding numbers.

    Args:
        condition: which scores are kept; None for all.
        filter_value: what the others become.
        added: numbers added to them afterwards; None for none.

    Returns:
        None for none; ``NotImplemented`` if no bias does the same.
    """
    if condition is None or condition.all():
        return added
    is_sure = filter_value <= SURELY_HIDDEN and condition.any(axis=-1).all()
    if not is_sure and not ABSORBING >= filter_value > -np.inf:
        return NotImplemented
    hidden = np.where(condition, FLOAT.type(0), FLOAT.type(filter_value))
    return hidden if added is None else hidden + added


def _by_head(mask: HostArray, batch: int, heads: int) -> tuple[int, ...]:
    """Shape of a mask of matrices, which are the heads of a batch."""
    if mask.ndim == 3 and mask.shape[0] > 1:
        return batch, heads, *mask.shape[1:]
    return (1,) * (4 - mask.ndim) + tuple(mask.shape)


def _is_shape(target: tuple[int, ...] | None, shape: tuple[int, ...]) -> bool:
    """Whether a shape, of which one dimension may be open, is this one."""
    return target is None or all(own in {-1, wanted} for own, wanted in zip(target, shape, strict=True))


def _fit_targets(
    q: HostArray, k: HostArray, v: HostArray, keys: int, targets: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
) -> bool:
    """Whether the steps reshape keys and values of the cache to matrices for each head, or not at all."""
    (batch, heads, _, size), (key_target, value_target) = q.shape, targets
    if k.shape[1] != heads and targets != (None, None):
        return False
    matrices = batch * heads
    return _is_shape(key_target, (matrices, keys, size)) and _is_shape(value_target, (matrices, keys, v.shape[3]))


def _fit(q: HostArray, k: HostArray, v: HostArray, past_key: HostArray | None, past_value: HostArray | None) -> bool:
    """Whether the arrays fit together, with keys for each head or for all (multi-query), and tasks can read them."""
    if not q.size or not k.size or k.shape[:3] != v.shape[:3] or k.shape[::3] != q.shape[::3]:
        return False
    if k.shape[1] not in {1, q.shape[1]}:
        return False
    if not has_contiguous_rows(q, k, v) or past_key is None or past_value is None:
        return has_contiguous_rows(q, k, v) and past_key is past_value
    start = (*k.shape[:2], past_key.shape[2])
    is_shaped = past_key.shape == (*start, k.shape[3]) and past_value.shape == (*start, v.shape[3])
    return is_shaped and past_key.flags.c_contiguous and past_value.flags.c_contiguous
