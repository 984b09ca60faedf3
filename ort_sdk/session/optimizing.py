"""The optimizer's passes over a session's model, with what they need of the session's providers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ort_sdk.api import HostArray, KernelRegistry
from ort_sdk.graph import Graph, Model, Node
from ort_sdk.graph.type_inference import infer_types
from ort_sdk.kernels import RegistryLookup, create_kernel, kernel_info
from ort_sdk.optimizer import GraphTransformer, TransformerContext, apply_transformers, transformers_of_level

from .inlining import inline_model_functions
from .session_providers import SessionProvider

__all__ = ["SessionOptimizer"]

DISABLED_KEY = "optimization.disable_specified_optimizers"
DISABLE_INLINING_KEY = "session.disable_aot_function_inlining"


class SessionOptimizer:
    """Applies levels of passes to one model.

    Args:
        model: its graph is changed in place.
        providers: the session's providers; their own passes run after ours.
        config: the session's config entries.
        disabled: names of passes to leave out, beside those the config lists.
    """

    def __init__(
        self, model: Model, providers: Sequence[SessionProvider], config: Mapping[str, str], disabled: frozenset[str]
    ) -> None:
        self._model = model
        self._providers = providers
        self._disabled = disabled | {
            name.strip() for name in config.get(DISABLED_KEY, "").replace(";", ",").split(",") if name.strip()
        }
        self._context = TransformerContext(model.opset_imports, self._evaluate, self._has_kernel, self._is_as_preferred, config)

    def inline_functions(self) -> bool:
        """Inline calls of the model's functions that no provider has a kernel for, unless the config says not to."""
        if self._context.config.get(DISABLE_INLINING_KEY) == "1":
            return False
        return inline_model_functions(self._model, self._has_kernel)

    def apply(self, level: int) -> list[str]:
        """Run one level; returns the passes that changed something."""
        changed = apply_transformers(self._model.graph, self._transformers(level), self._context, self._disabled)
        if changed:
            self._model.graph.sort()
            infer_types(self._model.graph)
        return changed

    def apply_range(self, first: int, last: int) -> list[str]:
        """Run several levels in order."""
        return [name for level in range(first, last + 1) for name in self.apply(level)]

    def _transformers(self, level: int) -> list[GraphTransformer]:
        op_types = {node.op_type for graph in self._model.graph.walk() for node in graph.nodes}
        transformers = list(transformers_of_level(level, op_types))
        for provider in self._providers:
            transformers.extend(provider.handle.get_graph_transformers(provider.execution_provider, level) or ())
        return transformers

    def _has_kernel(self, node: Node, graph: Graph) -> bool:
        return self._rank(node, graph) is not None

    def _is_as_preferred(self, new: Node, old: Sequence[Node], graph: Graph) -> bool:
        rank = self._rank(new, graph)
        if rank is None:
            return False
        ranks = [self._rank(node, graph) for node in old]
        return all(replaced is None or rank <= replaced for replaced in ranks)

    def _rank(self, node: Node, graph: Graph) -> int | None:
        """Position of the first provider (the node's own, if it is placed) that has a kernel for a node."""
        for position, provider in enumerate(self._providers):
            if node.execution_provider and node.execution_provider != provider.name:
                continue
            if RegistryLookup(provider.registry, graph, self._model.opset_imports).lookup(node) is not None:
                return position
        return None

    def _evaluate(self, node: Node, graph: Graph, inputs: Sequence[HostArray | None]) -> list[Any] | None:
        """Compute a node on the host, with the first provider there that has a kernel for it."""
        if node.subgraphs:
            return None
        for provider in self._providers:
            if not provider.device.is_cpu or provider.registry is None:
                continue
            kernel = self._kernel(node, graph, provider.registry)
            if kernel is not None:
                with provider.execution_provider.run_scope():
                    result = kernel.compute(*inputs)
                return list(result) if isinstance(result, tuple) else [result]
        return None

    def _kernel(self, node: Node, graph: Graph, registry: KernelRegistry) -> Any:
        found = RegistryLookup(registry, graph, self._model.opset_imports).lookup(node)
        if found is None:
            return None
        kernel = create_kernel(found, kernel_info(node, graph, self._model.opset_imports.get(node.domain, 0)))
        is_foldable = getattr(kernel, "deterministic", False) or getattr(kernel, "contents_from_shapes", False)
        return kernel if is_foldable else None
