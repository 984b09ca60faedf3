"""Level 2: passes after partition, which may make contrib operators."""

from __future__ import annotations

from ort_sdk.optimizer.transformer import GraphTransformer

__all__ = ["transformers"]


def transformers() -> list[GraphTransformer]:
    """The passes, in the order they run."""
    return []
