"""Builds a model's runs from its source: once, or again with defaults as inputs, or again when missing code was compiled."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ort_sdk.api import CompilationContext, CompilationPending, CompilationPolicy, compilation_context
from ort_sdk.config_keys import DISABLE_PROGRAMS

from .build import StageObserver, build_session
from .calls.session_run import SessionRuns
from .environment import environment
from .options.build_settings import BuildSettings
from .providers.opened import SessionProvider
from .stages.gc_pause import gc_pause
from .stages.select_providers import ProviderList

if TYPE_CHECKING:
    from .calls.runs import Runs

__all__ = ["RunsBuilder"]


class RunsBuilder:
    """Builds the runs of one model. Holds no reference to the session.

    Args:
        source: model file, or its content.
        settings: options of the stages.
        providers: (name, options) of those chosen, in order of preference.
        provider_config: the config entries that providers get.
        defaults: names of the inputs that have defaults; called once the model is loaded.
        mode: value of the config key ``session.compilation``.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | bytes,
        settings: BuildSettings,
        providers: ProviderList,
        provider_config: dict[str, str],
        defaults: Callable[[], frozenset[str]],
        mode: str,
    ) -> None:
        self._source = source
        self._settings, self._chosen, self._provider_config = settings, providers, provider_config
        self._defaults, self._mode = defaults, mode
        self._uses_programs = settings.config.get(DISABLE_PROGRAMS) != "1"

    def build(self, observe: StageObserver, log: Callable[[int, str], None]) -> Runs:
        """Build the model the first time.

        Args:
            observe: called after each stage.
            log: logs a text at one of Python's levels.

        Raises:
            OrtSdkError: whatever a stage refuses.
        """
        providers = self._opened()
        compiling = [each.execution_provider for each in providers if each.execution_provider.compiles_on_demand]
        if self._mode == "wait" or not compiling:
            return self._built(providers, observe)
        from .calls.background_runs import BackgroundRuns

        ready = interim = None
        observe = _EachStageOnce(observe)
        try:
            if self._mode == "background" and all(each.has_compiled_code for each in compiling):
                with CompilationContext(CompilationPolicy.RAISE):
                    ready = self._built(providers, observe)
        except CompilationPending:
            providers = self._opened()
        if ready is None:
            with CompilationContext(CompilationPolicy.AVOID):
                interim = self._built(providers, observe)
        self._keep_folder()
        return BackgroundRuns(ready, interim, self._build_again, log, may_compile=self._mode == "background")

    def _build_again(self) -> Runs:
        return self._built(self._opened(), _ignore_stage)

    def _opened(self) -> Sequence[SessionProvider]:
        return environment().open(self._chosen, self._provider_config)

    def _built(self, providers: Sequence[SessionProvider], observe: StageObserver) -> Runs:
        """Runs of the model with its defaults as constants, and, once a run feeds one, of the model without."""
        runs = self._session_runs(self._settings, providers, observe)
        defaults = self._defaults()
        if not defaults or not self._settings.fixes_defaults:
            return runs
        from .calls.overridable_initializers import RunsWithDefaults

        self._keep_folder()
        return RunsWithDefaults(runs, defaults, self._without_constants)

    def _without_constants(self) -> SessionRuns:
        return self._session_runs(replace(self._settings, fixes_defaults=False), self._opened(), _ignore_stage)

    def _session_runs(self, settings: BuildSettings, providers: Sequence[SessionProvider], observe: StageObserver) -> SessionRuns:
        if compilation_context().policy is CompilationPolicy.AVOID and self._mode == "background":
            # What only these kernels pack is of no use to later sessions.
            settings = replace(settings, keeps_packed_weights=False)
        if observe is _ignore_stage:
            settings = replace(settings, prepack_sink=None)
        with gc_pause:
            state = build_session(self._source, settings, providers, observe)
        return SessionRuns(state, use_programs=self._uses_programs)

    def _keep_folder(self) -> None:
        """Make paths absolute: the model may be built again, wherever the process is then."""
        folder = self._settings.external_data_folder
        with contextlib.suppress(FileNotFoundError):  # the process is in a folder that was removed: paths stay as they are
            if isinstance(self._source, bytes):
                folder = folder or Path()
            else:
                self._source = Path(self._source).absolute()
            self._settings = replace(self._settings, external_data_folder=folder and folder.absolute())


class _EachStageOnce:
    """An observer that passes on each stage once, where a session is built a second time.

    Args:
        observe: called with the first product of each stage.
    """

    def __init__(self, observe: StageObserver) -> None:
        self._observe = observe
        self._seen: set[str] = set()

    def __call__(self, stage: str, product: Any) -> None:
        """Pass on a stage that was not seen."""
        if stage not in self._seen:
            self._seen.add(stage)
            self._observe(stage, product)


def _ignore_stage(_stage: str, _product: object) -> None:
    """Observe nothing: the stages of a session made anew are not logged again."""
