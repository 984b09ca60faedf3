"""Graph passes: what one is, what it may use, and the manager that runs them by level (ORT's ``GraphTransformerManager``)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from ort_sdk.api import Fail, HostArray, OrtSdkError
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.editing import refresh_captures

__all__ = ["GraphTransformer", "TransformerContext", "apply_transformers"]

logger = logging.getLogger("ort_sdk.optimizer")

MAX_ROUNDS = 10

Evaluator = Callable[[Node, Graph, Sequence["HostArray | None"]], "list[Any] | None"]
"""Computes a node whose inputs are all constant, on the host; None if no kernel can."""


@dataclass(frozen=True, slots=True)
class TransformerContext:
    """What a pass may use beside the graph."""

    opset_imports: Mapping[str, int]
    """Domain → version, of the model."""
    evaluate: Evaluator
    has_kernel: Callable[[Node, Graph], bool]
    """Whether the node's provider (any provider of the session, if it is not placed yet) has a kernel for it."""
    is_as_preferred: Callable[[Node, Sequence[Node], Graph], bool]
    """Whether the first provider with a kernel for a node comes no later than the first of each of the nodes it replaces, so
    that a fusion before partition does not take work away from an accelerator. False if no provider has a kernel."""
    config: Mapping[str, str] = field(default_factory=dict)
    """The session's config entries."""


class GraphTransformer(Protocol):
    """One pass. Stateless."""

    name: str
    """ORT's name of the pass where it has one (``ConstantFolding``), by which it can be disabled."""

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Change one graph, bodies excluded; they are offered on their own, innermost first.

        New nodes get ``since_version`` from the schema table, types for their outputs in ``graph.values``, and, if the
        nodes they replace are placed, the same provider.

        Returns:
            Whether nodes, names or constants changed. What is merely learnt about values does not count.
        """


def apply_transformers(
    graph: Graph,
    transformers: Sequence[GraphTransformer],
    context: TransformerContext,
    disabled: Collection[str] = (),
    rounds: int = MAX_ROUNDS,
) -> list[str]:
    """Run passes in order, over every graph, until none changes anything.

    Args:
        graph: changed in place; the caller owns it.
        transformers: passes of one level.
        context: what they may use.
        disabled: names of passes to leave out.
        rounds: how often at most.

    Returns:
        Names of the passes that changed something, in the order they did.

    Raises:
        Fail: a pass raised something that is no error of the contract.
        OrtSdkError: what a pass raised, with its name noted.
    """
    active = [transformer for transformer in transformers if transformer.name not in disabled]
    changed: list[str] = []
    for _ in range(rounds):
        before = len(changed)
        for transformer in active:
            if _apply_everywhere(transformer, graph, context):
                changed.append(transformer.name)
                logger.debug("%s changed graph '%s'", transformer.name, graph.name)
        if len(changed) == before:
            break
    return changed


def _apply_everywhere(transformer: GraphTransformer, graph: Graph, context: TransformerContext) -> bool:
    changed: list[Graph] = []
    for inner in list(graph.walk()):
        try:
            if transformer.apply(inner, context):
                changed.append(inner)
        except OrtSdkError as error:
            error.add_note(f"in pass {transformer.name}, graph '{inner.name}'")
            raise
        except Exception as error:
            raise Fail(
                f"pass {transformer.name} raised {type(error).__name__} on graph '{inner.name}': {error}. A session can be "
                f"made without it: name it in disabled_optimizers"
            ) from error
    if any(inner is not graph for inner in changed):
        refresh_captures(graph)
    return bool(changed)
