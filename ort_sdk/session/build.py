"""The stages a model passes through, one call each: load, optimize, partition, match kernels, place weights, plan.

This page is the only one that knows the order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ort_sdk.api import OrtDevice, Tensor
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.graph import Model
from ort_sdk.graph.operator_schemas import OperatorSchemas
from ort_sdk.graph.shape_inference import infer_shapes
from ort_sdk.graph.type_inference import infer_types
from ort_sdk.loader import load_model
from ort_sdk.memory import (
    DataTransferManager,
    ExternalDataManager,
    InitializerPlacement,
    PrepackedWeightsContainer,
    Prepacker,
    PrepackSink,
)
from ort_sdk.partition import Assignment, ValueDevices, insert_copies, keep_float, partition
from ort_sdk.plan import ExecutionPlan
from ort_sdk.run import ProgramMemory

from .functions import function_lookup
from .optimizing import SessionOptimizer
from .overrides import ModelOverrides, apply_overrides, fix_defaults
from .packing import make_prepacker
from .planning import SessionPlanner
from .session_providers import (
    SessionProvider,
    data_transfers,
    device_memories,
    external_data_manager,
    operator_schemas,
    type_str_resolvers,
)

__all__ = ["LOAD_FORMAT_KEY", "BuildSettings", "SessionState", "build_session"]

LOAD_FORMAT_KEY = "session.load_model_format"

StageObserver = Callable[[str, Any], None]
"""Told the name and the product of each stage."""


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """What the stages need of the session's options."""

    config: Mapping[str, str]
    """Config entries, ``session.…`` and ``optimization.…``."""
    optimization_level: int
    """0 to 3: the highest optimizer level applied."""
    disabled_optimizers: frozenset[str] = frozenset()
    external_data_folder: Path | None = None
    external_files: Mapping[str, Any] = field(default_factory=dict)
    """External data location → buffer to use in place of the file."""
    external_initializers: Mapping[str, Tensor] = field(default_factory=dict)
    """Name → value to use in place of an external initializer."""
    overrides: ModelOverrides = field(default_factory=ModelOverrides)
    prepacked_weights: PrepackedWeightsContainer | None = None
    """Keeps packed weights beyond the session."""
    prepack_sink: PrepackSink | None = None
    """Saves packed weights with the optimized model."""
    fixes_defaults: bool = False
    """Whether initializers that are inputs, too, are constants, which no run may feed."""
    shows_loaded_model: bool = True
    """Whether the observer is to see the nodes of the model as it was loaded. Without, what is sure to be fused is fused before
    types and shapes are inferred, of which the observer sees those of inputs and outputs."""


@dataclass(frozen=True, slots=True)
class SessionState:
    """The products of all stages, frozen."""

    model: Model
    """After optimization, with copies inserted."""
    providers: tuple[SessionProvider, ...]
    assignment: Assignment
    devices: ValueDevices
    transfers: DataTransferManager
    plan: ExecutionPlan
    prepacker: Prepacker | None
    """Holds what the kernels share with other sessions."""
    program_memory: ProgramMemory
    """Bounds what programs of the graph and its bodies hold."""


def _loaded(
    source: str | os.PathLike[str] | bytes, settings: BuildSettings, external_data: ExternalDataManager, schemas: OperatorSchemas
) -> Model:
    """The model as its file and the options say."""
    model = load_model(
        source,
        external_data_folder=settings.external_data_folder,
        in_memory_files=settings.external_files,
        external_initializers=settings.external_initializers,
        external_loaders=external_data,
        model_format=settings.config.get(LOAD_FORMAT_KEY, ""),
        schemas=schemas,
    )
    apply_overrides(model, settings.overrides)
    return model


def build_session(
    source: str | os.PathLike[str] | bytes,
    settings: BuildSettings,
    providers: Sequence[SessionProvider],
    observe: StageObserver,
) -> SessionState:
    """Take a model through all stages.

    Args:
        source: model file, or its bytes.
        settings: options of the stages.
        providers: opened providers, in order of preference.
        observe: called after each stage.

    Raises:
        OrtSdkError: whatever a stage refuses.
    """
    external_data = external_data_manager(providers)
    model = _loaded(source, settings, external_data, operator_schemas(providers))
    resolvers = type_str_resolvers(model, providers)
    by_name = {provider.name: provider.binding(resolvers[provider.name]) for provider in providers}
    bindings = list(by_name.values())
    find_function = function_lookup(model)
    optimizer = SessionOptimizer(model, providers, by_name, settings.config, settings.disabled_optimizers)
    if not settings.shows_loaded_model and not model.graph.bodies():
        optimizer.apply_ahead_of_partition(settings.optimization_level, level_1_follows=True)
    infer_types(model.graph, model.schemas)
    infer_shapes(model.graph)
    observe("load", model)
    if settings.fixes_defaults:
        fix_defaults(model.graph)
    optimizer.inline_functions()
    if settings.optimization_level >= 1:
        optimizer.apply_ahead_of_partition(settings.optimization_level, level_1_follows=True)
        optimizer.apply(1)
        observe("optimized", model)
        optimizer.apply_ahead_of_partition(settings.optimization_level)
    assignment = partition(model.graph, model.opset_imports, bindings, find_function, schemas=model.schemas)
    if optimizer.apply_after_partition(settings.optimization_level):
        assignment = partition(model.graph, model.opset_imports, bindings, find_function, assignment, model.schemas)
    observe("partition", assignment)
    assignment = keep_float(assignment, model.opset_imports, bindings)
    device_of: dict[str, OrtDevice] = {provider.name: provider.device for provider in providers}
    devices = insert_copies(assignment, device_of)
    transfers = data_transfers(providers)
    placement = InitializerPlacement(transfers, external_data, device_memories(providers))
    prepacker = make_prepacker(settings.config, settings.prepacked_weights, settings.prepack_sink)
    planner = SessionPlanner(model, assignment, providers, transfers, placement, prepacker, settings.config)
    plan = planner.plan(model.graph, devices)
    placement.finish()
    observe("plan", plan)
    for provider in providers:
        provider.handle.on_session_initialization_end(provider.execution_provider)
    return SessionState(model, tuple(providers), assignment, devices, transfers, plan, prepacker, planner.program_memory)
