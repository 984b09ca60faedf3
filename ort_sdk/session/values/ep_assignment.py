"""Which provider took which nodes, as sessions report it."""

from __future__ import annotations

from ort_sdk.api.data_classes import dataclass

__all__ = ["OrtEpAssignedNode", "OrtEpAssignedSubgraph"]


@dataclass(frozen=True, slots=True)
class OrtEpAssignedNode:
    """A node of the model and where it went."""

    name: str
    domain: str
    op_type: str


@dataclass(frozen=True, slots=True)
class OrtEpAssignedSubgraph:
    """Nodes a provider took."""

    ep_name: str
    nodes: tuple[OrtEpAssignedNode, ...]

    def get_nodes(self) -> list[OrtEpAssignedNode]:
        """The nodes."""
        return list(self.nodes)
