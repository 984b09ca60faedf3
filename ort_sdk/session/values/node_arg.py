"""What a session says of its inputs and outputs, and of its model."""

from __future__ import annotations

from ort_sdk.api import Dimension
from ort_sdk.api import NodeArg as GraphNodeArg
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.graph import Model

__all__ = ["UNSET_VERSION", "ModelMetadata", "NodeArg", "public_node_arg"]

UNSET_VERSION = 2**63 - 1
"""Version of a model that names none (ONNX Runtime's)."""


@dataclass(frozen=True, slots=True)
class NodeArg:
    """An input or output of a session."""

    name: str
    type: str
    """ONNX type string, ``tensor(float)``."""
    shape: list[Dimension] = field(hash=False)
    """Sizes, symbols, or None for unknown; empty for a scalar and for what is no tensor."""


def public_node_arg(argument: GraphNodeArg) -> NodeArg:
    """A value of the graph as users see it."""
    return NodeArg(argument.name, argument.type or "", list(argument.shape or ()))


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """What a model file says of itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str] = field(hash=False)

    @staticmethod
    def of(model: Model) -> ModelMetadata:
        """Metadata of a loaded model."""
        return ModelMetadata(
            producer_name=model.producer_name,
            graph_name=model.graph.name,
            domain=model.domain,
            description=model.doc_string,
            graph_description=model.graph.doc_string,
            version=UNSET_VERSION if model.model_version is None else model.model_version,
            custom_metadata_map=dict(model.metadata),
        )
