"""Graph passes: what one is, what it may use, and the manager that runs them by level (ORT's ``GraphTransformerManager``)."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Protocol

from ort_sdk.api import Fail, HostArray, OrtSdkError
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.api.foreign_errors import foreign_class
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.editing import refresh_captures

__all__ = ["DeferredTransformer", "GraphTransformer", "TransformerContext", "apply_transformers", "deferred"]

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


Needs = tuple[AbstractSet[str], ...]
"""Sets of operators: in a model without one of each, a pass finds nothing. Without sets, it may in any model."""


class DeferredTransformer:
    """A pass that is imported, and runs, when a model has operators it looks for: few models need many passes.

    One that needs none is imported at once, with what every session imports.

    Args:
        package: what the name of the module is relative to.
        module: where the pass's class is.
        class_name: the class's name.
        needs: what a model must have for the pass to find anything.
    """

    __slots__ = ("_class_name", "_imported", "_module", "_needs", "_package", "first_need")

    def __init__(self, package: str, module: str, class_name: str, needs: Needs) -> None:
        self._package = package
        self._module = module
        self._class_name = class_name
        self._needs = needs
        self.first_need: AbstractSet[str] | None = needs[0] if needs else None
        """What decides alone for most models, if the pass needs anything."""
        self._imported: GraphTransformer | None = None
        if not needs:
            self.imported()

    def may_find(self, op_types: AbstractSet[str]) -> bool:
        """Whether a model of some operators has what the pass needs."""
        return not any(need.isdisjoint(op_types) for need in self._needs)

    def imported(self) -> GraphTransformer:
        """The pass itself, the same every time: passes keep nothing."""
        if self._imported is None:
            self._imported = getattr(importlib.import_module(f".{self._module}", self._package), self._class_name)()
        return self._imported


def deferred(package: str, *rows: tuple[str, tuple[str, ...], Needs]) -> tuple[DeferredTransformer, ...]:
    """The passes of a level.

    Args:
        package: what names of modules are relative to.
        rows: module, classes in it, and what these need, in the order the passes run.
    """
    return tuple(DeferredTransformer(package, module, name, needs) for module, names, needs in rows for name in names)


def apply_transformers(
    graph: Graph,
    transformers: Sequence[GraphTransformer | DeferredTransformer],
    context: TransformerContext,
    disabled: Collection[str] = (),
    rounds: int = MAX_ROUNDS,
) -> list[str]:
    """Run passes in order, over every graph, until none changes anything.

    Args:
        graph: changed in place; the caller owns it.
        transformers: passes of one level. Deferred ones run from when the graph, or a body in it, has what they need.
        context: what they may use.
        disabled: names of passes to leave out.
        rounds: how often at most.

    Returns:
        Names of the passes that changed something, in the order they did.

    Raises:
        Fail: a pass raised something that is no error of the contract.
        OrtSdkError: what a pass raised, with its name noted.
    """
    changed: list[str] = []
    op_types = _op_types(graph)
    for _ in range(rounds):
        before = len(changed)
        for each in transformers:
            if isinstance(each, DeferredTransformer):
                need = each.first_need
                if need is not None and (need.isdisjoint(op_types) or not each.may_find(op_types)):
                    continue
                transformer = each.imported()
            else:
                transformer = each
            if transformer.name not in disabled and _apply_everywhere(transformer, graph, context):
                op_types = _op_types(graph)
                changed.append(transformer.name)
                logger.debug("%s changed graph '%s'", transformer.name, graph.name)
        if len(changed) == before:
            break
    return changed


def _op_types(graph: Graph) -> set[str]:
    """Operators in a graph and its bodies."""
    return {node.op_type for inner in graph.walk() for node in inner.nodes}


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
            raise foreign_class(error, Fail)(
                f"pass {transformer.name} raised {type(error).__name__} on graph '{inner.name}': {error}. A session can be "
                f"made without it: name it in disabled_optimizers"
            ) from error
    if any(inner is not graph for inner in changed):
        refresh_captures(graph)
    return bool(changed)
