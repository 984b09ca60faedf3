"""The stages a model passes through, one call each: load, optimize, partition, match kernels, place weights, plan.

This page is the only one that knows the order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ort_sdk.api import OrtDevice
from ort_sdk.config_keys import LOAD_MODEL_FORMAT
from ort_sdk.graph import Model
from ort_sdk.graph.operator_schemas import OperatorSchemas
from ort_sdk.graph.shape_inference import infer_shapes
from ort_sdk.graph.type_inference import infer_types
from ort_sdk.loader import load_model
from ort_sdk.loader.function_lookup import function_lookup
from ort_sdk.memory import ExternalDataManager, InitializerPlacement
from ort_sdk.partition import insert_copies, keep_float, partition

from .options.build_settings import BuildSettings
from .providers.opened import (
    SessionProvider,
    data_transfers,
    device_memories,
    external_data_manager,
    operator_schemas,
    type_str_resolvers,
)
from .stages.create_kernels import SessionPlanner
from .stages.optimize import SessionOptimizer
from .stages.override_initializers import apply_overrides, fix_defaults
from .stages.prepacker import make_prepacker
from .stages.state import SessionState

if TYPE_CHECKING:
    from .stages.stackings import Stackers

__all__ = ["build_session"]


StageObserver = Callable[[str, Any], None]
"""Called with the name and the product of each stage."""


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
        model_format=settings.config.get(LOAD_MODEL_FORMAT, ""),
        schemas=schemas,
    )
    apply_overrides(model, settings.overrides)
    return model


def _stackers(providers: Sequence[SessionProvider]) -> Stackers | None:
    """How values are stacked on devices; None, and nothing imported, where all providers compute on the host."""
    if all(provider.device.is_cpu for provider in providers):
        return None
    from .stages.stackings import Stackers

    return Stackers(providers)


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
    stackers = _stackers(providers)
    devices = insert_copies(assignment, device_of, None if stackers is None else stackers.can_stack)
    transfers = data_transfers(providers)
    placement = InitializerPlacement(transfers, external_data, device_memories(providers))
    prepacker = make_prepacker(settings)
    planner = SessionPlanner(model, assignment, providers, transfers, placement, prepacker, settings.config, stackers)
    plan = planner.plan(model.graph, devices)
    placement.finish()
    observe("plan", plan)
    for provider in providers:
        provider.handle.on_session_initialization_end(provider.execution_provider)
    return SessionState(model, tuple(providers), assignment, devices, transfers, plan, prepacker, planner.program_memory)
