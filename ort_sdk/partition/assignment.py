"""What partitioning decides: for every node a provider and a kernel, or every reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ort_sdk.api import (
    ComputeCapability,
    ExecutionProvider,
    FusedNode,
    GraphViewer,
    KernelCreateInfo,
    KernelLookup,
    KernelRegistry,
    OrtDevice,
)
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.graph import Graph, Node
from ort_sdk.kernels import KernelTypeStrResolver, KnownKernels, RegistryLookup

__all__ = ["Assignment", "Placement", "ProviderBinding"]


@dataclass(frozen=True, slots=True)
class ProviderBinding:
    """One provider of a session as partitioning sees it: its kernels, and its hooks bound to it."""

    name: str
    execution_provider: ExecutionProvider
    registry: KernelRegistry | None
    get_capability: Callable[[GraphViewer, KernelLookup], Sequence[ComputeCapability] | None]
    compile: Callable[[Sequence[FusedNode]], Sequence[Any]]
    """Kernels for groups, one each."""
    type_str_resolver: KernelTypeStrResolver | None = None
    """Says which arguments type constraints speak of; None for the schemas and what the registry declares."""

    known_kernels: KnownKernels = field(default_factory=dict, repr=False, compare=False)
    """What look-ups have found."""

    def lookup(self, graph: Graph, opset_imports: Mapping[str, int]) -> RegistryLookup:
        """Look-up of its kernels for the nodes of a graph."""
        return RegistryLookup(self.registry, graph, opset_imports, self.type_str_resolver, self.known_kernels)

    @property
    def device(self) -> OrtDevice:
        """Where the provider's arrays live."""
        return self.execution_provider.device


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one node went, and why it did not go elsewhere."""

    graph: str
    node: str
    domain: str
    op_type: str
    since_version: int
    provider: str
    """Empty if no provider took the node."""
    rejections: Mapping[str, tuple[str, ...]]
    """Provider → reasons, for each provider asked before (or instead of) the one that took it."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitioned graph."""

    graph: Graph
    """Every node carries the name of its provider."""
    kernels: Mapping[int, KernelCreateInfo]
    """``id(node)`` → its kernel definition and factory, for nodes placed by a registered kernel."""
    compiled: Mapping[int, Any]
    """``id(node)`` → its kernel, for groups a provider compiled."""
    placements: tuple[Placement, ...] = field(default=())
    nodes: tuple[Node, ...] = field(default=(), repr=False)
    """The nodes as they were placed: held, so that no identity in the tables is given to a new node."""
    kept_in_float: tuple[str, ...] = ()
    """Values that are float though the model has them in float16 or bfloat16, by their names in the model."""

    def kernel_for(self, node: Node) -> KernelCreateInfo | None:
        """Kernel definition of a placed node; None for a compiled group."""
        return self.kernels.get(id(node))
