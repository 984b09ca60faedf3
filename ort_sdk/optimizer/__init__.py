"""The optimizer: passes over the graph, by level."""

from __future__ import annotations

from collections.abc import Collection

from . import basic
from .transformer import GraphTransformer, TransformerContext, apply_transformers

__all__ = ["GraphTransformer", "TransformerContext", "apply_transformers", "transformers_of_level"]


def transformers_of_level(level: int, op_types: Collection[str] | None = None) -> list[GraphTransformer]:
    """Passes of one level: 1 basic (before partition), 2 extended and 3 layout (after).

    Args:
        level: 1 to 3.
        op_types: operators of the model, to leave out passes that cannot find anything in it; None gives all.
    """
    if level == 2:
        from .extended import transformers as extended_transformers

        return extended_transformers(op_types)
    if level == 1:
        return basic.transformers()
    from .layout import transformers

    return transformers()
