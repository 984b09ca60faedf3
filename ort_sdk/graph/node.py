"""Nodes of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ort_sdk.api.data_classes import dataclass, field

if TYPE_CHECKING:
    from .graph import Graph

__all__ = ["AttributeReference", "Node", "TypeString"]


@dataclass(frozen=True, slots=True)
class AttributeReference:
    """Attribute value inside a function body that stands for an attribute of the call (ONNX's ``ref_attr_name``)."""

    name: str


class TypeString(str):
    """Type string as an attribute's value (``optional(tensor(float))``), distinct from an attribute that is text."""

    __slots__ = ()


class Body:
    """Base of ``Graph``, by which a node recognises graphs among its attributes: the two classes refer to each other."""

    __slots__ = ("__weakref__",)


@dataclass(slots=True, eq=False)
class Node:
    """One operator call. Values are named; an empty name is an omitted optional one.

    Mutable while the loader, the optimizer and the partitioner work on their own copy of a graph; not changed afterwards.
    """

    op_type: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any] = field(default_factory=dict)
    """int, float, str, Tensor, Graph, TypeString, AttributeReference, or a list of one kind of these."""
    domain: str = ""
    name: str = ""
    overload: str = ""
    since_version: int = 0
    """Since-version of the operator's schema at the model's opset; 0 while unknown."""
    execution_provider: str = ""
    """Name of the provider the node is placed on; empty while it is not placed."""
    implicit_inputs: list[str] = field(default_factory=list)
    """Values of enclosing graphs that the node's subgraphs read."""
    has_checked_attributes: bool = False
    """Whether the attributes were compared with the operator's rules; see ``attribute_rules``. Not so of a copy."""

    @property
    def subgraphs(self) -> dict[str, Graph]:
        """Attribute name → body, for control flow."""
        found: dict[str, Graph] = {}
        for name, value in self.attributes.items():  # asked for every node by most stages, and mostly empty
            if isinstance(value, Body):
                found[name] = cast("Graph", value)
        return found

    def reads(self) -> list[str]:
        """Names of all values the node needs, its subgraphs' captures included, omitted ones left out."""
        inputs = [*self.inputs, *self.implicit_inputs]
        return [name for name in inputs if name] if "" in inputs else inputs

    def describe(self) -> str:
        """Operator, version and name, for messages."""
        version = f"({self.since_version})" if self.since_version else ""
        return f"{self.domain or 'ai.onnx'}::{self.op_type}{version}, node '{self.name}'"

    def copy(self, parent: Graph | None = None) -> Node:
        """A copy with lists, attributes and subgraphs of its own; tensors are shared."""
        attributes = dict(self.attributes)
        attributes.update((name, body.copy(parent)) for name, body in self.subgraphs.items())
        return Node(
            op_type=self.op_type,
            inputs=list(self.inputs),
            outputs=list(self.outputs),
            attributes=attributes,
            domain=self.domain,
            name=self.name,
            overload=self.overload,
            since_version=self.since_version,
            execution_provider=self.execution_provider,
            implicit_inputs=list(self.implicit_inputs),
        )
