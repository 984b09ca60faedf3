"""A model: a graph, its functions and what the file says about itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ort_sdk.api.data_classes import dataclass, field

from .graph import Graph
from .node import Node
from .operator_schemas import TABLE_SCHEMAS, OperatorSchemas
from .type_strings import TypeStrings

__all__ = ["Function", "Model"]


@dataclass(frozen=True, slots=True)
class Function:
    """A model-local function (ONNX's ``FunctionProto``)."""

    name: str
    domain: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[str, ...]
    """Attributes without a default."""
    attribute_defaults: Mapping[str, Any]
    nodes: tuple[Node, ...]
    opset_imports: Mapping[str, int]


@dataclass(slots=True, eq=False)
class Model:
    """Everything a model file says; weights are references, not bytes."""

    graph: Graph
    opset_imports: dict[str, int]
    """Domain (empty for ai.onnx) → opset version."""
    ir_version: int = 0
    functions: dict[tuple[str, str, str], Function] = field(default_factory=dict)
    """(domain, name, overload) → function."""
    producer_name: str = ""
    producer_version: str = ""
    domain: str = ""
    model_version: int | None = None
    doc_string: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    input_denotations: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Input → denotation of each dimension (``DATA_BATCH``; empty for none), for inputs that have any."""
    path: Path | None = None
    """File the model came from; None for bytes."""
    type_strings: dict[str, TypeStrings] = field(default_factory=dict)
    """Op id → type strings, for the operators of a file that describes them itself (ORT format)."""
    schemas: OperatorSchemas = TABLE_SCHEMAS
    """Schemas of the operators: the table's, and those declared by the providers the model was loaded for."""

    def copy(self) -> Model:
        """A copy whose graph may be changed; functions and tensors are shared."""
        return Model(
            graph=self.graph.copy(),
            opset_imports=dict(self.opset_imports),
            ir_version=self.ir_version,
            functions=dict(self.functions),
            producer_name=self.producer_name,
            producer_version=self.producer_version,
            domain=self.domain,
            model_version=self.model_version,
            doc_string=self.doc_string,
            metadata=dict(self.metadata),
            input_denotations=dict(self.input_denotations),
            path=self.path,
            type_strings=dict(self.type_strings),
            schemas=self.schemas,
        )
