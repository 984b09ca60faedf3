"""Level 3: passes that change the layout of data for a provider."""

from __future__ import annotations

from ort_sdk.optimizer.transformer import GraphTransformer

__all__ = ["transformers"]


def transformers() -> list[GraphTransformer]:
    """The passes, in the order they run."""
    return []
