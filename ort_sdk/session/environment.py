"""Process scope: the plugins, and what sessions share."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ort_sdk.plugins import plugin_manager

from .providers.opened import SessionProvider, open_provider
from .stages.select_providers import CPU_PROVIDER, ProviderList

__all__ = ["Environment", "environment"]


class Environment:
    """What all sessions of the process share."""

    def open_providers(
        self,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None,
        provider_options: Sequence[Mapping[str, Any]] | None,
        config: Mapping[str, str],
    ) -> list[SessionProvider]:
        """Open the named providers, the CPU provider last if it was not named. One that is not installed is an error."""
        entries = [(entry, {}) if isinstance(entry, str) else (entry[0], entry[1]) for entry in providers or [CPU_PROVIDER]]
        if provider_options:
            entries = [(name, options) for (name, _), options in zip(entries, provider_options, strict=True)]
        if CPU_PROVIDER not in [name for name, _ in entries]:
            entries.append((CPU_PROVIDER, {}))
        return self.open([(name, {key: str(value) for key, value in options.items()}) for name, options in entries], config)

    def open(self, chosen: ProviderList, config: Mapping[str, str]) -> list[SessionProvider]:
        """Open providers in order.

        Raises:
            ProviderError: one is not installed, cannot start here, or breaks the plugin contract.
        """
        manager = plugin_manager()
        return [open_provider(manager.handle(name), options, config) for name, options in chosen]


@functools.cache
def environment() -> Environment:
    """The process's environment."""
    return Environment()
