"""Attention over heads, block by block: scores stay in the cache, however long the sequences are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk.opset.contrib.attention import MASK_FILTER_VALUE
from ort_sdk.opset.contrib.attention_core import causal_bias, mask_bias
from ort_sdk.opset.numpy_namespace import NumpyNamespace

from .bindable import MakeWriter, Writer, bindable
from .normalization import softmax_last
from .scratch import Scratch, scratch_of

__all__: list[str] = []

BLOCK = 1 << 16
"""Scores computed at a time."""

_NAMESPACE = NumpyNamespace()
_UNSUPPORTED_INPUTS = (6, 7, 8, 9)
"""Past keys and values, their length, and beams."""


@bindable("MultiHeadAttention", domain="com.microsoft")
def multi_head_attention(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Attention of separate queries, keys and values, with bias and masks; without past and further outputs."""
    if any(info.wants_output(index) for index in range(1, 4)) or any(map(info.has_input, _UNSUPPORTED_INPUTS)):
        return None
    scratch, heads = scratch_of(info), int(info.attribute("num_heads"))
    filter_value = info.attribute("mask_filter_value", MASK_FILTER_VALUE)
    is_causal, scale = bool(info.attribute("unidirectional", 0)), info.attribute("scale", 0.0)

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        query, key, value = (*inputs, None, None)[:3]
        if key is None or value is None or key.ndim == 5:
            return lambda *arrays: np.copyto(arrays[-1], compute(*arrays[:-1]))
        core = _Attention.of(query, key, heads, scale, scratch)
        ahead = causal_bias(np, core.length, core.keys, outputs[0].dtype) if is_causal else None

        def write(*arrays: Any) -> None:
            bias, mask, given = (*arrays[3:-1], None, None, None)[:3]
            hidden = mask_bias(_NAMESPACE, mask, (core.batch, core.length, core.keys), filter_value, outputs_dtype)
            core.attend(core.projected(arrays[:3], bias), (given, hidden, ahead), arrays[-1])

        outputs_dtype = outputs[0].dtype
        return write

    return make


@dataclass(frozen=True, slots=True)
class _Attention:
    """Attention for one set of shapes."""

    batch: int
    heads: int
    length: int
    keys: int
    scale: float
    scratch: Scratch

    @classmethod
    def of(cls, query: HostArray, key: HostArray, heads: int, scale: float, scratch: Scratch) -> _Attention:
        """For query (batch, sequence, heads * size), and keys of that form or (batch, heads, keys, size)."""
        batch, length, width = query.shape
        keys = key.shape[1 if key.ndim == 3 else 2]
        return cls(batch, heads, length, keys, scale or 1 / math.sqrt(width // heads), scratch)

    def projected(self, parts: Sequence[HostArray], bias: HostArray | None) -> list[HostArray]:
        """Query, keys and values as (batch, heads, sequence, size), with their bias: views, or working memory."""
        found, start = [], 0
        for name, part in zip(("query", "key", "value"), parts, strict=True):
            by_head = part if part.ndim == 4 else part.reshape(*part.shape[:2], self.heads, -1).transpose(0, 2, 1, 3)
            if bias is not None:
                size = by_head.shape[3]
                own = bias[start : start + self.heads * size].reshape(1, self.heads, 1, size)
                by_head = np.add(by_head, own, out=self.scratch.array(name, by_head.shape, by_head.dtype))
                start += self.heads * size
            found.append(by_head)
        return found

    def attend(self, parts: Sequence[HostArray], biases: Sequence[HostArray | None], out: HostArray) -> None:
        """softmax(scale * q k^T + biases) v, into (batch, sequence, heads * size)."""
        query, key, value = parts
        target = out.reshape(self.batch, self.length, self.heads, -1).transpose(0, 2, 1, 3)
        shape = (self.batch, self.heads, self.length, self.keys)
        added = [np.broadcast_to(bias, shape) for bias in biases if bias is not None]
        for sample, heads, rows in self._blocks():
            block = query[sample, heads, rows]
            scores = self.scratch.array("scores", (*block.shape[:2], self.keys), out.dtype)
            np.matmul(block, key[sample, heads].swapaxes(1, 2), out=scores)
            np.multiply(scores, self.scale, out=scores)
            for bias in added:
                np.add(scores, bias[sample, heads, rows], out=scores)
            weights = self.scratch.array("weights", scores.shape, out.dtype)
            softmax_last(scores, weights)
            np.matmul(weights, value[sample, heads], out=target[sample, heads, rows])

    def _blocks(self) -> itertools.product[tuple[int, slice, slice]]:
        row_step = max(1, min(self.length, BLOCK // max(1, self.keys)))
        head_step = max(1, BLOCK // max(1, row_step * self.keys)) if row_step == self.length else 1
        heads = [slice(start, start + head_step) for start in range(0, self.heads, head_step)]
        rows = [slice(start, start + row_step) for start in range(0, self.length, row_step)]
        return itertools.product(range(self.batch), heads, rows)
