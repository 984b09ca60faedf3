"""WordConvEmbedding."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, KernelInfo
from ort_sdk.opset.definition import operator

__all__ = ["word_conv_embedding"]


@operator("WordConvEmbedding", domain="com.microsoft")
def word_conv_embedding(_info: KernelInfo, xp: Any) -> Compute:
    """Words (count, characters) as the largest tanh of a convolution over their characters' embeddings.

    A word is as long as it has characters other than 0, and at least as the window; one that starts with 0 gives zeros.
    """

    def compute(words: Array, weight: Array, bias: Array, characters: Array) -> Array:
        filters, _, window, width = weight.shape
        count, longest = words.shape
        embedded = xp.gather(characters, words, 0)
        lengths = xp.sum(xp.module.astype(words > 0, xp.int64), axis=1)
        steps = longest - window + 1
        taps = xp.stack([embedded[:, tap : tap + steps, :] for tap in range(window)], axis=2)
        columns = xp.reshape(taps, (count, steps, window * width))
        values = xp.tanh(xp.matmul(columns, xp.reshape(weight, (filters, window * width)).T) + bias)
        last = xp.maximum(lengths - window, xp.zeros_like(lengths))
        inside = xp.expand_dims(xp.arange(steps, dtype=xp.int64), axis=0) <= xp.expand_dims(last, axis=1)
        values = xp.where(xp.expand_dims(inside, axis=-1), values, xp.asarray(-1.0, dtype=values.dtype))
        return xp.where(words[:, :1] > 0, xp.max(values, axis=1), xp.asarray(0.0, dtype=values.dtype))

    return compute
