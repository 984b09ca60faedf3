"""A model taken through the stages of session creation, where a command needs their products."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ort_sdk.api import CPU_DEVICE, InvalidArgument, NoModel
from ort_sdk.graph import Model
from ort_sdk.loader import load_model
from ort_sdk.run import RunControl, execute
from ort_sdk.run.executor import StepObserver
from ort_sdk.session.build import BuildSettings, SessionState, build_session
from ort_sdk.session.environment import environment

__all__ = ["build_state", "read_model", "run_state"]


def read_model(path: str | os.PathLike[str]) -> Model:
    """The model in a file.

    Raises:
        NoModel: there is no graph in it.
        OrtSdkError: whatever else the loader refuses.
    """
    try:
        return load_model(path)
    except InvalidArgument as error:
        raise NoModel(f"Load model from {os.fspath(path)!r} failed: {error.text}") from error


def build_state(
    source: str | bytes,
    entries: Sequence[tuple[str, Mapping[str, Any]]],
    level: int = 3,
    observe: Callable[[str, Any], None] = lambda _stage, _product: None,
) -> SessionState:
    """All products of the stages.

    Args:
        source: model file, or its bytes.
        entries: provider names with their options.
        level: highest level of the optimizer.
        observe: told the name and the product of each stage.
    """
    providers = environment().open_providers(entries, None, {})
    return build_session(source, BuildSettings(config={}, optimization_level=level), providers, observe)


def run_state(state: SessionState, feeds: Mapping[str, Any], observer: StepObserver | None = None) -> list[Any]:
    """Run step by step.

    Args:
        state: a built model.
        feeds: input name → host array; inputs with defaults may be left out.
        observer: told of every step.

    Returns:
        The outputs, on the host.
    """
    plan, transfers = state.plan, state.transfers
    with contextlib.ExitStack() as stack:
        for provider in state.providers:
            stack.enter_context(provider.execution_provider.run_scope())
        values = []
        for feed in plan.feeds:
            value = feeds.get(feed.name)
            needs_copy = value is not None and feed.device != CPU_DEVICE
            values.append(transfers.copy(value, CPU_DEVICE, feed.device) if needs_copy else value)
        results = execute(plan, values, RunControl(observer=observer))
        return [
            value if fetch.device == CPU_DEVICE else transfers.copy(value, fetch.device, CPU_DEVICE)
            for fetch, value in zip(plan.fetches, results, strict=True)
        ]
