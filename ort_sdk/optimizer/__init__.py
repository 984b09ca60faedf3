"""The optimizer: passes over the graph, by level."""

from __future__ import annotations

from . import basic
from .transformer import DeferredTransformer, GraphTransformer, TransformerContext, apply_transformers

__all__ = ["DeferredTransformer", "GraphTransformer", "TransformerContext", "apply_transformers", "transformers_of_level"]


def transformers_of_level(level: int) -> tuple[DeferredTransformer, ...]:
    """Passes of one level: 1 basic (before partition), 2 extended and 3 layout (after)."""
    if level == 1:
        return basic.TRANSFORMERS
    if level == 2:
        from . import extended

        return extended.TRANSFORMERS
    from . import layout

    return layout.TRANSFORMERS
