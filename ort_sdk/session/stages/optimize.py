"""The optimizer's passes over a session's model, with what they need of the session's providers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ort_sdk.config_keys import (
    DISABLE_AOT_FUNCTION_INLINING,
    DISABLE_SPECIFIED_OPTIMIZERS,
    ENABLE_DQ_MATMULNBITS_FUSION,
    ENABLE_SAVED_RUNTIME_OPTIMIZATIONS,
    MINIMAL_BUILD_OPTIMIZATIONS,
)
from ort_sdk.graph import Model, Node
from ort_sdk.graph.operator_schemas import is_newer_than_table
from ort_sdk.graph.type_inference import infer_types
from ort_sdk.optimizer import (
    DeferredTransformer,
    GraphTransformer,
    TransformerContext,
    apply_transformers,
    transformers_of_level,
)
from ort_sdk.optimizer.function_inlining import inline_model_functions
from ort_sdk.partition import ProviderBinding
from ort_sdk.session.providers.opened import SessionProvider

from .node_kernels import NodeEvaluator, NodeKernels

__all__ = ["SessionOptimizer"]

FIRST_AFTER_PARTITION = 2
DEQUANTIZE = "DequantizeLinear"


class SessionOptimizer:
    """Applies levels of passes to one model.

    Args:
        model: its graph is changed in place.
        providers: the session's providers; their own passes run after ours.
        bindings: provider → its kernels as partitioning sees them.
        config: the session's config entries.
        disabled: names of passes to leave out, beside those the config lists.
    """

    def __init__(
        self,
        model: Model,
        providers: Sequence[SessionProvider],
        bindings: Mapping[str, ProviderBinding],
        config: Mapping[str, str],
        disabled: frozenset[str],
    ) -> None:
        self._model = model
        self._providers = providers
        self._disabled = disabled | {
            name.strip() for name in config.get(DISABLE_SPECIFIED_OPTIMIZERS, "").replace(";", ",").split(",") if name.strip()
        }
        evaluator = NodeEvaluator(providers, bindings, model.opset_imports)
        kernels = NodeKernels(providers, bindings, model.opset_imports)
        self._context = TransformerContext(model.opset_imports, evaluator, kernels.has_kernel, kernels.is_as_preferred, config)

    def inline_functions(self) -> bool:
        """Inline calls of the model's functions that no provider has a kernel for, unless the config says not to."""
        if self._context.config.get(DISABLE_AOT_FUNCTION_INLINING) == "1":
            return False
        return inline_model_functions(self._model, self._context.has_kernel)

    def apply(self, level: int) -> list[str]:
        """Run one level; returns the passes that changed something."""
        return self._run(self._transformers(level))

    def apply_range(self, first: int, last: int) -> list[str]:
        """Run several levels in order."""
        return [name for level in range(first, last + 1) for name in self.apply(level)]

    def apply_ahead_of_partition(self, last: int, *, level_1_follows: bool = False) -> list[str]:
        """Fuse GEMMs with dequantized weights into quantized ones before partition already, if level 2 is to run.

        It is the pass of level 2, and what comes of it is the same. It is done here where that is certain, with one provider to
        place nodes on and nothing recorded: no stage from here on then sees DequantizeLinear, nor looks for kernels for it.

        Args:
            last: the last level that runs.
            level_1_follows: whether it is done even before level 1, unless passes of that level look for the same nodes.
        """
        config = self._context.config
        is_certain = (
            len(self._providers) == 1
            and not config.get(MINIMAL_BUILD_OPTIMIZATIONS)
            and config.get(ENABLE_SAVED_RUNTIME_OPTIMIZATIONS) != "1"
        )
        graph = self._model.graph
        if last < FIRST_AFTER_PARTITION or not is_certain:
            return []
        if not any(DEQUANTIZE in [node.op_type for node in inner.nodes] for inner in graph.walk()):
            return []
        if not self._knows_operators([node for inner in graph.walk() for node in inner.nodes]):
            return []
        if level_1_follows and (config.get(ENABLE_DQ_MATMULNBITS_FUSION) == "1" or self._provider_transformers(1)):
            return []
        from ort_sdk.optimizer.extended.nbits.dq_matmul_fusion import DQMatMulToMatMulNBits

        passes: list[GraphTransformer] = [DQMatMulToMatMulNBits()]
        if any(node.attributes.get("block_size") for inner in graph.walk() for node in inner.nodes if node.op_type == DEQUANTIZE):
            from ort_sdk.optimizer.extended.nbits.dq_shift_matmul_fusion import DQShiftMatMulToMatMulNBits

            passes.append(DQShiftMatMulToMatMulNBits())
        return apply_transformers(graph, passes, self._context, self._disabled, rounds=1)

    def apply_after_partition(self, last: int) -> list[str]:
        """Run the levels after partition, up to one, as the config says: all, or those of a minimal build, made or recorded.

        What the model's file says may be replaced comes first, if the config asks for it.
        """
        if last < FIRST_AFTER_PARTITION:
            return []
        handling = self._context.config.get(MINIMAL_BUILD_OPTIMIZATIONS, "")
        changed = self._replay() if self._context.config.get(ENABLE_SAVED_RUNTIME_OPTIMIZATIONS) == "1" else []
        if not handling:
            return changed + self.apply_range(FIRST_AFTER_PARTITION, last)
        from ort_sdk.optimizer.extended.runtime_optimizations.recordable import minimal_build_transformers

        changed += self._run(minimal_build_transformers(only_recordless=handling == "save"))
        return changed + self._record() if handling == "save" else changed

    def _replay(self) -> list[str]:
        if not any(inner.runtime_optimizations for inner in self._model.graph.walk()):
            return []
        from ort_sdk.optimizer.extended.runtime_optimizations.replay import replay_runtime_optimizations

        changed = replay_runtime_optimizations(self._model.graph, self._context, self._disabled)
        return self._tidied(["ReplayRuntimeOptimizations"] if changed else [])

    def _record(self) -> list[str]:
        from ort_sdk.optimizer.extended.runtime_optimizations.record import record_runtime_optimizations

        changed = record_runtime_optimizations(self._model.graph, self._context, self._disabled)
        return self._tidied(["EnsureUniqueDQ"] if changed else [])

    def _run(self, transformers: Sequence[GraphTransformer | DeferredTransformer]) -> list[str]:
        return self._tidied(apply_transformers(self._model.graph, transformers, self._context, self._disabled))

    def _tidied(self, changed: list[str]) -> list[str]:
        if changed:
            self._model.graph.sort()
            infer_types(self._model.graph, self._model.schemas)
        return changed

    def _transformers(self, level: int) -> list[GraphTransformer | DeferredTransformer]:
        nodes = [node for graph in self._model.graph.walk() for node in graph.nodes]
        ours = transformers_of_level(level) if self._knows_operators(nodes) else ()
        return [*ours, *self._provider_transformers(level)]

    def _provider_transformers(self, level: int) -> list[GraphTransformer]:
        found = (provider.handle.get_graph_transformers(provider.execution_provider, level) for provider in self._providers)
        return [transformer for transformers in found for transformer in transformers]

    def _knows_operators(self, nodes: Sequence[Node]) -> bool:
        """Whether our passes may change a model: they know operators by name, up to the versions of the schema table."""
        return not self._model.type_strings or not any(map(is_newer_than_table, nodes))
