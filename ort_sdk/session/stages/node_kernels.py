"""Which kernels a session's providers have for nodes of a graph that is still being changed, and constants computed by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ort_sdk.api import HostArray, KernelCreateInfo
from ort_sdk.graph import Graph, Node
from ort_sdk.kernels import RegistryLookup, create_kernel, kernel_info
from ort_sdk.partition import ProviderBinding
from ort_sdk.session.providers.opened import SessionProvider

__all__ = ["NodeEvaluator", "NodeKernels"]


class NodeKernels:
    """Look-up over all providers of a session.

    Args:
        providers: the session's, in order of preference.
        bindings: provider → its kernels as partitioning sees them.
        opset_imports: domain → version, of the model.
    """

    def __init__(
        self, providers: Sequence[SessionProvider], bindings: Mapping[str, ProviderBinding], opset_imports: Mapping[str, int]
    ) -> None:
        self._providers = providers
        self._bindings = bindings
        self._opset_imports = opset_imports
        self._lookups: dict[tuple[str, int], RegistryLookup] = {}

    def has_kernel(self, node: Node, graph: Graph) -> bool:
        """Whether the node's provider, or any if it is not placed, has a kernel for it."""
        return self._rank(node, graph) is not None

    def is_as_preferred(self, new: Node, old: Sequence[Node], graph: Graph) -> bool:
        """Whether the first provider with a kernel for a node comes no later than those of the nodes it replaces."""
        rank = self._rank(new, graph)
        if rank is None:
            return False
        ranks = [self._rank(node, graph) for node in old]
        return all(replaced is None or rank <= replaced for replaced in ranks)

    def _rank(self, node: Node, graph: Graph) -> int | None:
        """Position of the first provider (the node's own, if it is placed) that has a kernel for a node."""
        placed = node.execution_provider
        for position, provider in enumerate(self._providers):
            if (not placed or placed == provider.name) and self._lookup(provider, graph).lookup(node) is not None:
                return position
        return None

    def _lookup(self, provider: SessionProvider, graph: Graph) -> RegistryLookup:
        key = (provider.name, id(graph))
        found = self._lookups.get(key)
        if found is None:
            found = self._lookups[key] = self._bindings[provider.name].lookup(graph, self._opset_imports)
        return found


class NodeEvaluator:
    """Computes nodes on the host, each with the first provider there that has a kernel for it.

    It holds no graph: constants that are computed when they are read hold it, and graphs hold them.

    Args:
        providers: see ``NodeKernels``.
        bindings: see ``NodeKernels``.
        opset_imports: see ``NodeKernels``.
    """

    def __init__(
        self, providers: Sequence[SessionProvider], bindings: Mapping[str, ProviderBinding], opset_imports: Mapping[str, int]
    ) -> None:
        self._providers = [each for each in providers if each.device.is_cpu and each.registry is not None]
        self._bindings = bindings
        self._opset_imports = opset_imports

    def __call__(self, node: Node, graph: Graph, inputs: Sequence[HostArray | None]) -> list[Any] | None:
        """The outputs; None if no kernel may compute them ahead."""
        if node.subgraphs:
            return None
        for provider in self._providers:
            found = self._bindings[provider.name].lookup(graph, self._opset_imports).lookup(node)
            kernel = None if found is None else self._kernel(found, node, graph)
            if kernel is not None:
                with provider.execution_provider.run_scope():
                    result = kernel.compute(*inputs)
                return list(result) if isinstance(result, tuple) else [result]
        return None

    def _kernel(self, found: KernelCreateInfo, node: Node, graph: Graph) -> Any:
        kernel = create_kernel(found, kernel_info(node, graph, self._opset_imports.get(node.domain, 0)))
        is_foldable = getattr(kernel, "deterministic", False) or getattr(kernel, "contents_from_shapes", False)
        return kernel if is_foldable else None
