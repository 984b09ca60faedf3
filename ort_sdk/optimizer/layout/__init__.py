"""Level 3: passes for providers that choose the layout of data, where a value less between nodes is a copy less."""

from __future__ import annotations

from ort_sdk.optimizer.transformer import GraphTransformer

from .conv_sum_fusion import ConvSumFusion

__all__ = ["transformers"]


def transformers() -> list[GraphTransformer]:
    """The passes, in the order they run."""
    return [ConvSumFusion()]
