"""Addresses of rows of strided operands."""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.attention.arguments.operands import HeadRows, ScoreBias
from ort_sdk_cpu.jit.numba_frontend import inline

__all__ = ["bias_row", "row_of"]


@inline
def row_of(x: HeadRows, batch: int, head: int, row: int) -> Any:
    """Address of a row of a head."""
    return x.base + batch * x.batch_stride + head * x.head_stride + row * x.row_stride


@inline
def bias_row(mask: ScoreBias, batch: int, head: int, query: int) -> Any:
    """Address of what is added to a query's scores; 0 for none."""
    # None is an address of 0 for whoever asks whether there is a mask.
    if not mask.base:
        return 0
    return mask.base + batch * mask.batch_stride + head * mask.head_stride + query * mask.query_stride
