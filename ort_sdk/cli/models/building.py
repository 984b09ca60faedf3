"""A model taken through the stages of session creation, where a command needs their products."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ort_sdk.api import CPU_DEVICE, InvalidArgument, InvalidGraph, InvalidOrtModel, InvalidProtobuf, NoModel
from ort_sdk.graph import Model
from ort_sdk.graph.operator_schemas import TABLE_SCHEMAS
from ort_sdk.loader import load_model
from ort_sdk.plan import Feed
from ort_sdk.run import PlanRunner, ProgramRow, RunControl
from ort_sdk.session.build import build_session
from ort_sdk.session.environment import environment
from ort_sdk.session.options.build_settings import BuildSettings
from ort_sdk.session.providers.opened import binding_providers, operator_schemas
from ort_sdk.session.stages.state import SessionState

__all__ = ["BuiltModel", "ProviderEntries", "build_state", "read_model"]

SECONDS_TO_SETTLE = 5.0
RUNS_THAT_LOAD = 2
"""Runs before which the time to settle does not begin: the first may compile kernels, the second makes a program."""

ProviderEntries = Sequence[tuple[str, Mapping[str, Any]]]
"""Provider names with their options."""


def read_model(path: str | os.PathLike[str], find_entries: Callable[[], ProviderEntries] = tuple) -> Model:
    """The model in a file.

    Args:
        path: the file.
        find_entries: gives the providers to open if the model has operators that one of them may declare.

    Raises:
        NoModel: it holds no valid model.
        OrtSdkError: whatever else the loader refuses.
    """
    try:
        try:
            return load_model(path)
        except InvalidGraph:
            entries = find_entries()
            schemas = operator_schemas(environment().open_providers(entries, None, {}) if entries else ())
            if schemas is TABLE_SCHEMAS:
                raise
            return load_model(path, schemas=schemas)
    except (InvalidArgument, InvalidProtobuf, InvalidGraph) as error:
        raise NoModel(f"{os.fspath(path)!r} is no valid ONNX model: {error.text}") from error
    except InvalidOrtModel as error:
        raise NoModel(f"{os.fspath(path)!r} is no valid model in ORT format: {error.text}") from error


def build_state(
    source: str | bytes,
    entries: ProviderEntries,
    level: int = 3,
    observe: Callable[[str, Any], None] = lambda _stage, _product: None,
) -> SessionState:
    """All products of the stages.

    Args:
        source: model file, or its bytes.
        entries: provider names with their options.
        level: highest level of the optimizer.
        observe: called with the name and the product of each stage.
    """
    providers = environment().open_providers(entries, None, {})
    return build_session(source, BuildSettings(config={}, optimization_level=level), providers, observe)


class BuiltModel:
    """A built model, ready to run, with its stages' products at hand.

    Args:
        state: from ``build_state``.
    """

    def __init__(self, state: SessionState) -> None:
        self.state = state
        self._runner = PlanRunner(state.plan, binding_providers(state.providers), use_programs=True, memory=state.program_memory)

    def settle(self, feeds: Mapping[str, Any], runs: int) -> ProgramRow | None:
        """Run until runs are replayed by a program that will not be made anew.

        Args:
            feeds: as for ``run``.
            runs: how often at least.

        Returns:
            The program; None if it did not come soon.
        """
        for _ in range(max(runs, RUNS_THAT_LOAD)):
            self.run(feeds)
        end = time.perf_counter() + SECONDS_TO_SETTLE
        while not self._runner.is_settled and time.perf_counter() < end:
            self.run(feeds)
        return self._runner.report()[0] if self._runner.is_settled else None

    def run(self, feeds: Mapping[str, Any], control: RunControl | None = None) -> dict[str, Any]:
        """Run once; later runs with the same shapes and types are replayed.

        Args:
            feeds: input name → host array; inputs with defaults may be left out.
            control: what watches the run.

        Returns:
            Output name → host array.
        """
        plan, transfers = self.state.plan, self.state.transfers
        with contextlib.ExitStack() as stack:
            for provider in self.state.providers:
                stack.enter_context(provider.execution_provider.run_scope())
            values = [self._to_device(feed, feeds.get(feed.name)) for feed in plan.feeds]
            results = self._runner.run(values, control or RunControl())
            copied = {
                fetch.name: value if fetch.device == CPU_DEVICE else transfers.copy(value, fetch.device, CPU_DEVICE)
                for fetch, value in zip(plan.fetches, results, strict=True)
            }
        for provider in self.state.providers:
            provider.synchronize()
        return copied

    def _to_device(self, feed: Feed, value: Any) -> Any:
        needs_copy = value is not None and feed.device != CPU_DEVICE
        return self.state.transfers.copy(value, CPU_DEVICE, feed.device) if needs_copy else value
