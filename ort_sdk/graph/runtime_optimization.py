"""Optimizations that a model's file only describes, for a runtime to make them (ORT's ``RuntimeOptimizationRecord``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ort_sdk.api.data_classes import dataclass

from .node import Node

__all__ = ["RuntimeOptimization"]


@dataclass(frozen=True, slots=True, eq=False)
class RuntimeOptimization:
    """Nodes of one graph that an optimizer found it may replace, and by what."""

    optimizer: str
    """Name of the pass (``QDQSelectorActionTransformer``)."""
    action: str
    """What the pass does with the nodes, in its own words (``Conv``)."""
    target: Node
    """The node the others are around."""
    inputs: tuple[Node | None, ...]
    """Nodes before the target, one for each of its inputs; None where there is none."""
    outputs: tuple[Node | None, ...]
    """Nodes after the target."""
    variadic_inputs: int | None = None
    """How many of the last inputs are one variadic input; None if none do."""
    variadic_outputs: int | None = None
    """How many of the last outputs are one variadic output; None if none do."""
    produced: tuple[str, ...] = ()
    """Op ids of the nodes that come instead; empty if the target stays, or the file does not say."""

    @property
    def nodes_to_optimize(self) -> tuple[Node | None, ...]:
        """Inputs, target and outputs, as files list them."""
        return (*self.inputs, self.target, *self.outputs)

    @property
    def nodes(self) -> list[Node]:
        """The nodes that are there."""
        return [node for node in self.nodes_to_optimize if node is not None]

    def of(self, copies: Mapping[int, Node]) -> RuntimeOptimization:
        """The same about other nodes.

        Args:
            copies: ``id`` of each of its nodes → node to put there.
        """
        return replace(
            self,
            target=copies[id(self.target)],
            inputs=tuple(node and copies[id(node)] for node in self.inputs),
            outputs=tuple(node and copies[id(node)] for node in self.outputs),
        )

    def is_within(self, ids: Mapping[int, object]) -> bool:
        """Whether all of its nodes are among those of some ``id``s."""
        return all(id(node) in ids for node in self.nodes)
