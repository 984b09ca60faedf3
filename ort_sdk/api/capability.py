"""What a provider claims of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .data_classes import dataclass
from .graph_viewer import GraphViewer, NodeView
from .kernel_registry import KernelCreateInfo

__all__ = ["ComputeCapability", "FusedNode", "KernelLookup"]


class KernelLookup(Protocol):
    """Kernel look-up for one provider, handed to ``get_capability``."""

    def lookup(self, node: NodeView) -> KernelCreateInfo | None:
        """The provider's kernel that matches a node; None if it has none."""

    def rejections(self, node: NodeView) -> Sequence[str]:
        """For each of the provider's kernels of the operator, why it does not match."""


@dataclass(frozen=True, slots=True)
class ComputeCapability:
    """A claim: these nodes, one by one with registered kernels, or as one group the provider compiles."""

    nodes: tuple[NodeView, ...]
    fuse: bool = False
    """True: the nodes become one node, compiled by the provider. All or nothing."""
    name: str = ""
    """Name of the group, for listings."""


@dataclass(frozen=True, slots=True)
class FusedNode:
    """A claimed group, handed to ``compile``."""

    name: str
    graph: GraphViewer
    """The group's nodes as a graph of their own. The kernel takes the graph's inputs, in their order and each once, and gives its
    outputs, as a tuple if there are several. Constants (``GraphViewer.constant``) are no inputs of it."""
