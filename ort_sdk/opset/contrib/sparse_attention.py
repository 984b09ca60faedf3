"""SparseAttention: group query attention in which each head sees some blocks of keys only."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, KernelInfo
from ort_sdk.opset.definition import operator
from ort_sdk.opset.sizes import repeated, tiled

from .attention_core import attended_values, merge_heads, put_behind
from .attention_shapes import sparse_attention_shapes
from .query_groups import GroupSettings, Projection, TokenLayout, hidden_bias

__all__ = ["sparse_attention"]


@operator("SparseAttention", domain="com.microsoft", host_inputs=(5, 6, 7, 8), shapes=sparse_attention_shapes)
def sparse_attention(info: KernelInfo, xp: Any) -> Compute:
    """Causal attention over a key-value cache; heads cycle through the layouts of blocks. (output, keys, values)."""
    settings = GroupSettings.of(info)
    block_size = info.attribute("sparse_block_size")
    project = Projection(xp, settings)

    def compute(
        query: Array,
        key: Array | None,
        value: Array | None,
        past_key: Array,
        past_value: Array,
        block_rows: HostArray,
        block_columns: HostArray,
        total_sequence_length: HostArray,
        key_totals: HostArray,
        cos_cache: Array | None = None,
        sin_cache: Array | None = None,
    ) -> tuple[Array, Array, Array]:
        longest = int(total_sequence_length.reshape(-1)[0])
        layout = TokenLayout.of(key_totals.reshape(-1).astype(np.int64), longest, query.shape[1])
        q, k, v = project.split(query, key, value)
        q, k = project.rotated(q, k, cos_cache, sin_cache, layout)
        keys, values = (put_behind(xp, past, new, layout.starts, past.shape[2]) for past, new in ((past_key, k), (past_value, v)))
        seen = _block_mask(block_rows, block_columns)
        pairs = seen[:, layout.positions()[:, :, None] // block_size, np.arange(longest) // block_size]
        hidden = ~tiled(pairs.swapaxes(0, 1), (1, settings.heads // len(seen), 1, 1))
        later = layout.hidden(causal=True, window=-1)
        bias = hidden_bias(xp, hidden if later is None else hidden | later, q.dtype)
        output = attended_values(xp, q, keys[:, :, :longest, :], values[:, :, :longest, :], (bias,), scale=settings.scale)
        return merge_heads(xp, output), keys, values

    return compute


def _block_mask(rows: HostArray, columns: HostArray) -> HostArray:
    """Whether a block of queries sees a block of keys, (layouts, blocks, blocks), from its compressed rows."""
    layouts, blocks = rows.shape[0], rows.shape[1] - 1
    mask = np.zeros((layouts, blocks, blocks), dtype=bool)
    for layout in range(layouts):
        count = rows[layout, -1]
        mask[layout, repeated(np.arange(blocks), np.diff(rows[layout])), columns[layout, :count]] = True
    return mask
