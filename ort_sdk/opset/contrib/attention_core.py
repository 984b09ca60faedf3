"""What ONNX Runtime's attention operators share: heads, masks and scaled dot-product attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ort_sdk.api import Array, InvalidArgument, KernelInfo
from ort_sdk.api.data_classes import dataclass

__all__ = [
    "Attended",
    "attend",
    "attended_values",
    "causal_bias",
    "check_columns",
    "follow_beams",
    "mask_bias",
    "merge_heads",
    "put_behind",
    "split_heads",
]


def split_heads(xp: Any, x: Array, heads: int) -> Array:
    """(batch, sequence, heads * size) as (batch, heads, sequence, size)."""
    batch, length, width = x.shape
    return xp.permute_dims(xp.reshape(x, (batch, length, heads, width // heads)), (0, 2, 1, 3))


def merge_heads(xp: Any, x: Array) -> Array:
    """(batch, heads, sequence, size) as (batch, sequence, heads * size)."""
    batch, heads, length, size = x.shape
    return xp.reshape(xp.permute_dims(x, (0, 2, 1, 3)), (batch, length, heads * size))


def put_behind(xp: Any, past: Array | None, new: Array, starts: Sequence[int], capacity: int) -> Array:
    """A cache with each sequence's new entries put behind its past ones; a new array.

    Args:
        xp: array namespace.
        past: (batch, heads, at most ``capacity``, size).
        new: (batch, heads, count, size).
        starts: position of the first new entry of each sequence.
        capacity: length of the result; entries that do not fit are dropped.
    """
    batch, heads, count, size = new.shape
    length = 0 if past is None else past.shape[2]
    if capacity == length + count and all(start == length for start in starts):
        return xp.asarray(new, copy=True) if past is None else xp.concat([past, new], axis=2)
    if length == capacity:
        present = xp.asarray(past, copy=True)
    else:
        present = xp.zeros((batch, heads, capacity, size), dtype=new.dtype)
        if past is not None:
            present[:, :, :length, :] = past
    for index, start in enumerate(starts):
        stop = min(start + count, capacity)
        present[index, :, start:stop, :] = new[index, :, : stop - start, :]
    return present


def follow_beams(xp: Any, cache: Array, indirection: Array, length: int) -> Array:
    """A cache (batch * beams, heads, entries, size) with its first ``length`` entries taken from the beams they came from.

    ``indirection`` is (batch, beams, at least ``length``) integers.
    """
    batch, beams = indirection.shape[:2]
    rows = xp.module.astype(indirection[:, :, :length], xp.int64, copy=False)
    rows = xp.reshape(rows + xp.reshape(xp.arange(batch, dtype=xp.int64) * beams, (batch, 1, 1)), (batch * beams, length))
    positions = rows * length + xp.expand_dims(xp.arange(length, dtype=xp.int64), axis=0)
    by_position = xp.permute_dims(cache[:, :, :length, :], (0, 2, 1, 3))
    flat = xp.reshape(by_position, (batch * beams * length, *by_position.shape[2:]))
    followed = xp.permute_dims(xp.gather(flat, positions, 0), (0, 2, 1, 3))
    return xp.concat([followed, cache[:, :, length:, :]], axis=2)


@dataclass(frozen=True, slots=True)
class Attended:
    """Result of ``attend``."""

    output: Array
    """(batch, heads, sequence, value size)."""
    scores: Array
    """(batch, heads, sequence, keys), before the softmax."""
    weights: Array
    """The same after the softmax."""


def attend(
    xp: Any,
    q: Array,
    k: Array,
    v: Array,
    biases: tuple[Array | None, ...] = (),
    *,
    scale: float | None = None,
    softcap: float = 0.0,
    sink: Array | None = None,
) -> Attended:
    """softmax(scale * q k^T + biases) v, for several query heads per key head.

    Args:
        xp: array namespace.
        q: (batch, heads, sequence, size).
        k: (batch, key heads, keys, size); heads must be a multiple of the key heads.
        v: (batch, key heads, keys, value size).
        biases: arrays added to the scores, which they broadcast against; None entries are skipped.
        scale: factor of the scores; 1 / sqrt(size) by default.
        softcap: scores become softcap * tanh(scores / softcap) before biases are added; 0 leaves them.
        sink: (heads,) logits that take part in each softmax but have no value.
    """
    batch, heads, length, size = q.shape
    key_heads, keys = k.shape[1], k.shape[2]
    rows = heads // key_heads * length
    grouped = xp.reshape(q * (1 / math.sqrt(size) if scale is None else scale), (batch, key_heads, rows, size))
    scores = xp.reshape(xp.matmul(grouped, xp.matrix_transpose(k)), (batch, heads, length, keys))
    if softcap > 0:
        scores = xp.tanh(scores / softcap) * softcap
    for bias in biases:
        scores = scores if bias is None else scores + bias
    weights = xp.softmax(scores, axis=-1) if sink is None else _softmax_with_sink(xp, scores, sink)
    output = xp.matmul(xp.reshape(weights, (batch, key_heads, rows, keys)), v)
    return Attended(xp.reshape(output, (batch, heads, length, v.shape[-1])), scores, weights)


def attended_values(
    xp: Any,
    q: Array,
    k: Array,
    v: Array,
    biases: tuple[Array | None, ...] = (),
    *,
    scale: float | None = None,
    softcap: float = 0.0,
    sink: Array | None = None,
) -> Array:
    """The output of ``attend`` alone, which takes the same: at once, if the array library has a function for it."""
    found = None
    if softcap <= 0 and sink is None:
        factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
        found = xp.attention(q, k, v, [bias for bias in biases if bias is not None], factor)
    return attend(xp, q, k, v, biases, scale=scale, softcap=softcap, sink=sink).output if found is None else found


def _softmax_with_sink(xp: Any, scores: Array, sink: Array) -> Array:
    logits = xp.reshape(sink, (1, -1, 1, 1))
    largest = xp.maximum(xp.max(scores, axis=-1, keepdims=True), logits)
    powers = xp.exp(scores - largest)
    return powers / (xp.sum(powers, axis=-1, keepdims=True) + xp.exp(logits - largest))


def causal_bias(xp: Any, length: int, keys: int, past: int, dtype: Any) -> Array:
    """(sequence, keys) with the lowest number where a key is later than the query; the first query is behind ``past`` keys."""
    positions = xp.arange(length, dtype=xp.int64) + past
    hidden = xp.expand_dims(xp.arange(keys, dtype=xp.int64), axis=0) > xp.expand_dims(positions, axis=1)
    return xp.where(hidden, xp.asarray(xp.finfo(dtype).min, dtype=dtype), xp.asarray(0, dtype=dtype))


def check_columns(info: KernelInfo, bias: Array | None, keys: int) -> None:
    """Compare the last axis of numbers that are added to the scores with the number of keys, which only a run knows.

    Raises:
        InvalidArgument: there are others than one, or one for each key.
    """
    if bias is not None and bias.shape[-1] not in {1, keys}:
        raise InvalidArgument(
            f"{info.describe()}: attention_bias has shape {tuple(bias.shape)}; there are {keys} keys, so that its last axis must"
            f" have {keys} elements, or 1"
        )


def mask_bias(xp: Any, mask: Array | None, shape: tuple[int, int, int], filter_value: float, dtype: Any) -> Array | None:
    """A mask of one of ONNX Runtime's forms as numbers to add to the scores.

    Args:
        xp: array namespace.
        mask: int32; (batch,) ends of the keys; (2 * batch,) ends, then starts; (3 * batch + 2,) lengths first; or nonzero
            where keys count, as (batch, keys), (batch, sequence, keys) or (batch, 1, longest, longest); (batch, 1) and (1, 1)
            hide nothing.
        shape: (batch, sequence, keys).
        filter_value: what hidden keys get.
        dtype: type of the result.

    Raises:
        InvalidArgument: the mask has none of these shapes.
    """
    batch, length, keys = shape
    if mask is None or tuple(mask.shape) in {(batch, 1), (1, 1)}:
        return None
    kept = _kept(xp, mask, batch, length, keys)
    if kept is None:
        raise InvalidArgument(
            f"attention mask has shape {tuple(mask.shape)}; for batch {batch}, sequence {length} and {keys} keys it must be "
            f"({batch},), ({2 * batch},), ({3 * batch + 2},), ({batch}, {keys}), ({batch}, {length}, {keys}) or ({batch}, 1,"
            f" rows, columns) with at least {keys} of both"
        )
    return xp.where(kept, xp.asarray(0, dtype=dtype), xp.asarray(filter_value, dtype=dtype))


def _kept(xp: Any, mask: Array, batch: int, length: int, keys: int) -> Array | None:
    """True where keys count, broadcast against (batch, heads, sequence, keys)."""
    if mask.ndim == 1 and mask.shape[0] in {batch, 2 * batch, 3 * batch + 2}:
        positions = xp.expand_dims(xp.arange(keys, dtype=mask.dtype), axis=0)
        kept = positions < xp.expand_dims(mask[:batch], axis=1)
        if mask.shape[0] == 2 * batch:
            kept = kept & (positions >= xp.expand_dims(mask[batch:], axis=1))
        return xp.reshape(kept, (batch, 1, 1, keys))
    if tuple(mask.shape) == (batch, keys):
        return xp.reshape(mask > 0, (batch, 1, 1, keys))
    if tuple(mask.shape) == (batch, length, keys):
        return xp.reshape(mask > 0, (batch, 1, length, keys))
    if mask.ndim == 4 and mask.shape[0] in {1, batch} and mask.shape[1] == 1 and min(mask.shape[2:]) >= keys:
        return mask[:, :, keys - length : keys, :keys] > 0
    return None
