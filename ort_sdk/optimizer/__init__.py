"""The optimizer: passes over the graph, by level."""

from __future__ import annotations

from .transformer import GraphTransformer, TransformerContext, apply_transformers

__all__ = ["GraphTransformer", "TransformerContext", "apply_transformers", "transformers_of_level"]


def transformers_of_level(level: int) -> list[GraphTransformer]:
    """Passes of one level: 1 basic (before partition), 2 extended and 3 layout (after)."""
    if level == 1:
        from .basic import transformers
    elif level == 2:
        from .extended import transformers
    else:
        from .layout import transformers
    return transformers()
