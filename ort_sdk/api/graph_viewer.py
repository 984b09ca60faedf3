"""Read-only views of a graph, as a provider sees it when asked what it can run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from .data_classes import dataclass
from .element_type import TensorElementType, tensor_type_element

__all__ = ["AttributeValue", "Dimension", "GraphViewer", "NodeArg", "NodeView", "Shape", "Tensor"]

Dimension = int | str | None
"""A number of elements, a symbol (``batch``), or None for unknown."""

Shape = tuple[Dimension, ...]
"""Dimensions of a tensor; empty for a scalar."""


@runtime_checkable
class Tensor(Protocol):
    """A constant tensor: a reference to bytes somewhere. Reading its properties reads no weight."""

    @property
    def element_type(self) -> TensorElementType:
        """Element type."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions in elements; empty for a scalar."""

    @property
    def nbytes(self) -> int:
        """Bytes of the elements in ONNX's packed form; 0 for strings."""

    def numpy(self) -> np.ndarray[Any, Any]:
        """The elements as a read-only array, a view of the source where its alignment allows.

        Sub-byte types come unpacked, one element a byte, in ml_dtypes' dtypes; strings as ``object``.
        """

    def packed(self) -> np.ndarray[Any, Any]:
        """The bytes as ONNX packs them, a read-only ``uint8`` vector of ``nbytes`` bytes; not for strings."""


@runtime_checkable
class FileTensor(Tensor, Protocol):
    """A constant whose bytes are a part of a file that is mapped into memory."""

    @property
    def model_file_bytes(self) -> int:
        """Size of the model's file, in which the bytes are; 0 if they are in external data, which has any size, or in no file."""


@dataclass(frozen=True, slots=True)
class NodeArg:
    """A value of the graph: an edge between nodes, a graph input, an initializer or a graph output."""

    name: str
    type: str | None = None
    """ONNX type string (``tensor(float)``, ``seq(tensor(int64))``); None if not known."""
    shape: Shape | None = None
    """Dimensions of a tensor; None if the rank is not known or the value is no tensor."""

    @property
    def element_type(self) -> TensorElementType | None:
        """Element type of a tensor value; None for other values and unknown types."""
        return None if self.type is None else tensor_type_element(self.type)

    @property
    def rank(self) -> int | None:
        """Number of dimensions, or None if not known."""
        return None if self.shape is None else len(self.shape)


AttributeValue = Any
"""int, float, str, Tensor, a graph (opaque), a type string, or a list of one of these."""


class NodeView(Protocol):
    """One node, read-only."""

    @property
    def op_type(self) -> str: ...
    @property
    def domain(self) -> str: ...
    @property
    def since_version(self) -> int:
        """Since-version of the operator's schema, which kernel matching compares (not the model's opset)."""

    @property
    def name(self) -> str: ...
    @property
    def inputs(self) -> Sequence[str]:
        """Names of the inputs; an empty name is an omitted optional input."""

    @property
    def outputs(self) -> Sequence[str]: ...
    @property
    def attributes(self) -> Mapping[str, AttributeValue]: ...
    @property
    def execution_provider(self) -> str:
        """Provider the node is placed on; empty while it is not placed."""


class GraphViewer(Protocol):
    """A (sub)graph, read-only."""

    @property
    def name(self) -> str: ...
    @property
    def nodes(self) -> Sequence[NodeView]:
        """Nodes in topological order."""

    @property
    def inputs(self) -> Sequence[NodeArg]: ...
    @property
    def outputs(self) -> Sequence[NodeArg]: ...
    def node_arg(self, name: str) -> NodeArg:
        """Type and shape known for a value; a NodeArg with neither if nothing is known."""

    def constant(self, name: str) -> Tensor | None:
        """The constant initializer of that name, here or in an enclosing graph; None if the value is not constant."""

    def consumers(self, name: str) -> Sequence[NodeView]:
        """Nodes of this graph that read the value, subgraph uses included."""

    def producer(self, name: str) -> NodeView | None:
        """Node of this graph that makes the value."""
