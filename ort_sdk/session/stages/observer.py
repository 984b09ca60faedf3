"""The observer of a session's stages: logs, profiles and cancels between them, checks the placement, saves the model."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ort_sdk.api import Fail, ModelLoadCanceled, NodeArg
from ort_sdk.api.data_classes import dataclass
from ort_sdk.config_keys import (
    DISABLE_CPU_EP_FALLBACK,
    MINIMAL_BUILD_OPTIMIZATIONS,
    RECORD_EP_GRAPH_ASSIGNMENT_INFO,
    SAVE_EXTERNAL_PREPACKED_CONSTANT_INITIALIZERS,
)
from ort_sdk.graph import Model
from ort_sdk.partition import Assignment
from ort_sdk.plugins import plugin_manager
from ort_sdk.session.logging import SessionLog
from ort_sdk.session.options.session_options import SessionOptions
from ort_sdk.session.values.node_arg import ModelMetadata, public_node_arg
from ort_sdk.session.values.node_arg import NodeArg as PublicNodeArg

from .select_providers import CPU_PROVIDER

if TYPE_CHECKING:
    from ort_sdk.run.profiler import Profiler
    from ort_sdk.session.export.save import OptimizedModelSaver
    from ort_sdk.session.values.ep_assignment import OrtEpAssignedSubgraph

__all__ = ["SessionDescription", "StageWatcher"]


@dataclass(slots=True)
class SessionDescription:
    """What a session says of its model."""

    inputs: list[PublicNodeArg]
    outputs: list[PublicNodeArg]
    overridable_initializers: list[PublicNodeArg]
    metadata: ModelMetadata


class StageWatcher:
    """The observer of one session's stages.

    Args:
        options: the session's copy; only the cancellation flag is read from ``flag_of``.
        is_cancelled: asked after each stage.
        profiler: records the stages; None if the session is not profiled.
    """

    def __init__(self, options: SessionOptions, is_cancelled: Callable[[], bool], profiler: Profiler | None) -> None:
        self._config = options._config
        self._is_cancelled = is_cancelled
        self._profiler = profiler
        self._log = SessionLog(options.logid, options.log_severity_level)
        self._start = time.perf_counter_ns()
        self._model: Model | None = None
        self._basic: Model | None = None
        self._saver = _saver(options.optimized_model_filepath, self._config)
        if self._saver is None and self._config.get(SAVE_EXTERNAL_PREPACKED_CONSTANT_INITIALIZERS) == "1":
            self._log.log(
                logging.WARNING,
                "%s is ignored, since optimized_model_filepath is not set",
                SAVE_EXTERNAL_PREPACKED_CONSTANT_INITIALIZERS,
            )
        self.description: SessionDescription | None = None
        self.assigned: list[OrtEpAssignedSubgraph] = []

    def __call__(self, stage: str, product: Any) -> None:
        """Take note of a stage (``build.StageObserver``).

        Raises:
            ModelLoadCanceled: the caller asked for it.
            Fail: nodes on the CPU provider though the session forbids it.
        """
        self.check_cancelled(stage)
        now = time.perf_counter_ns()
        self._log.log(logging.INFO, "stage %s took %.3f ms", stage, (now - self._start) / 1e6)
        if self._profiler is not None:
            self._profiler.add("model_loading" if stage == "load" else f"session_{stage}", self._start)
        if stage == "load":
            self._loaded(product)
        elif stage == "optimized" and self._saver is not None:
            self._basic = product.copy()
        elif stage == "partition":
            self._partitioned(product)
        elif stage == "plan" and self._saver is not None:
            self._saver.finish()
        plugin_manager().plugins().on_stage_end(stage, product)
        self._start = time.perf_counter_ns()

    @property
    def prepack_sink(self) -> OptimizedModelSaver | None:
        """Takes packed weights for the optimized model, if it is to have them."""
        return self._saver if self._saver is not None and self._saver.saves_packed_weights else None

    def names_with_defaults(self) -> frozenset[str]:
        """Names of the inputs that have defaults, once the model is loaded."""
        description = self.description
        return frozenset() if description is None else frozenset(each.name for each in description.overridable_initializers)

    @property
    def log(self) -> Callable[..., None]:
        """Logs a text of the session at one of Python's levels."""
        return self._log.log

    def close(self) -> None:
        """Let go of files that were begun, if the session could not be made."""
        if self._saver is not None:
            self._saver.close()

    def check_cancelled(self, stage: str) -> None:
        """Stop if the caller asked for it.

        Raises:
            ModelLoadCanceled: names the stage reached.
        """
        if self._is_cancelled():
            raise ModelLoadCanceled(f"Graph loading canceled due to user request, at stage '{stage}'.")

    def _loaded(self, model: Model) -> None:
        self._model = model
        graph = model.graph
        self.description = SessionDescription(
            inputs=[public_node_arg(value) for value in graph.inputs if value.name not in graph.initializers],
            outputs=[public_node_arg(_inferred(value, model)) for value in graph.outputs],
            overridable_initializers=[public_node_arg(value) for value in graph.inputs if value.name in graph.initializers],
            metadata=ModelMetadata.of(model),
        )

    def _partitioned(self, assignment: Assignment) -> None:
        for placement in assignment.placements if self._log.is_enabled_for(logging.DEBUG) else ():
            self._log.log(logging.DEBUG, "node '%s' (%s) is on %s", placement.node, placement.op_type, placement.provider)
        on_cpu = [placement for placement in assignment.placements if placement.provider == CPU_PROVIDER]
        if on_cpu and self._config.get(DISABLE_CPU_EP_FALLBACK) == "1":
            examples = ", ".join(f"{placement.op_type} '{placement.node}'" for placement in on_cpu[:5])
            raise Fail(
                "This session contains graph nodes that are assigned to the default CPU EP, but fallback to CPU EP has been "
                f"explicitly disabled by the user. {len(on_cpu)} nodes: {examples}"
            )
        if self._config.get(RECORD_EP_GRAPH_ASSIGNMENT_INFO) == "1":
            from ort_sdk.session.values.ep_assignment import OrtEpAssignedNode, OrtEpAssignedSubgraph

            self.assigned = [
                OrtEpAssignedSubgraph(
                    placement.provider, (OrtEpAssignedNode(placement.node, placement.domain, placement.op_type),)
                )
                for placement in assignment.placements
            ]
        if self._saver is not None and self._model is not None:
            self._save(self._saver, assignment, self._model)
        self._model = self._basic = None

    def _save(self, saver: OptimizedModelSaver, assignment: Assignment, model: Model) -> None:
        """Write the model as the optimizer left it; before compiled groups took nodes away, if there are any."""
        if assignment.compiled:
            self._log.log(
                logging.WARNING, "providers compiled %d groups; the saved model is without them", len(assignment.compiled)
            )
            model = self._basic or model
        saver.begin(model)


def _saver(path: str, config: Mapping[str, str]) -> OptimizedModelSaver | None:
    """What writes the optimized model, which few sessions do: the others import nothing of it.

    Raises:
        InvalidArgument: optimizations are to be recorded where no file can take them.
    """
    if not path and not config.get(MINIMAL_BUILD_OPTIMIZATIONS):
        return None
    from ort_sdk.session.export.save import OptimizedModelSaver, check_minimal_build_optimizations

    saver = OptimizedModelSaver(path, config) if path else None
    check_minimal_build_optimizations(config, writes_ort_format=saver is not None and saver.writes_ort_format)
    return saver


def _inferred(value: NodeArg, model: Model) -> NodeArg:
    """An output with the shape inference found, where the file gives none."""
    known = model.graph.node_arg(value.name)
    return value if value.type is not None and value.shape is not None else known
