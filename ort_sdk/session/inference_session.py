"""The session: a model ready to run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import CPU_DEVICE, Array, ExecutionProvider, InvalidArgument
from ort_sdk.plan import Feed
from ort_sdk.run import PlanRunner, RunControl

from .build import BuildSettings, SessionState, build_session
from .environment import environment
from .session_providers import binding_providers

__all__ = ["InferenceSession"]


class InferenceSession:
    """A model loaded, placed and planned."""

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: Any = None,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        config: dict[str, str] = {}
        opened = environment().open_providers(providers, provider_options, config)
        settings = BuildSettings(config=config, optimization_level=3)
        self._state: SessionState = build_session(path_or_bytes, settings, opened, lambda _stage, _product: None)
        self._runner = PlanRunner(
            self._state.plan, binding_providers(opened), use_programs=config.get("session.disable_programs") != "1"
        )
        self._scopes = [
            provider.execution_provider
            for provider in opened
            if type(provider.execution_provider).run_scope is not ExecutionProvider.run_scope
        ]

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None) -> list[Any]:
        """Run the model once."""
        plan = self._state.plan
        known = {feed.name for feed in plan.feeds}
        for name in input_feed:
            if name not in known:
                raise InvalidArgument(f"Invalid input name: {name}")
        missing = [feed.name for feed in plan.feeds if feed.name not in input_feed and not feed.has_default]
        if missing:
            raise ValueError(f"Required inputs ({missing}) are missing from input feed ({list(input_feed)}).")
        transfers = self._state.transfers
        with contextlib.ExitStack() as stack:
            for provider in self._scopes:
                stack.enter_context(provider.run_scope())
            feeds = [self._to_device(feed, input_feed.get(feed.name)) for feed in plan.feeds]
            results = self._runner.run(feeds, RunControl())
            fetched = [
                value if fetch.device == CPU_DEVICE else transfers.copy(value, fetch.device, CPU_DEVICE)
                for fetch, value in zip(plan.fetches, results, strict=True)
            ]
        by_name = {fetch.name: _owned(value, input_feed) for fetch, value in zip(plan.fetches, fetched, strict=True)}
        names = output_names or [fetch.name for fetch in plan.fetches]
        return [by_name[name] for name in names]

    def _to_device(self, feed: Feed, value: Any) -> Array:
        if value is None:
            return None
        return value if feed.device == CPU_DEVICE else self._state.transfers.copy(value, CPU_DEVICE, feed.device)


def _owned(value: Any, feeds: Mapping[str, Any]) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value
