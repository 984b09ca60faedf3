"""What is known of each installed provider: its state, and why."""

from __future__ import annotations

import dataclasses
from enum import StrEnum

from ort_sdk.api.data_classes import dataclass

__all__ = ["ProviderRecord", "ProviderState"]


class ProviderState(StrEnum):
    """How far a provider got."""

    DISCOVERED = "discovered"
    """Its entry point was read; nothing of it was imported yet."""
    LOADED = "loaded"
    """Imported, checked against the contract and registered."""
    UNAVAILABLE = "unavailable"
    """It cannot start here: its import failed, or it has no device."""
    REFUSED = "refused"
    """It breaks the plugin contract: newer API, wrong hook, or a name claimed twice."""
    BLOCKED = "blocked"
    """An environment variable keeps it out."""


@dataclass(frozen=True, slots=True)
class ProviderRecord:
    """One entry point (of a provider, or of a plugin that is no provider) and its state."""

    entry_point_name: str
    """Short name, ``cuda``; for a plugin registered in-process, the name it was registered under."""
    provider_name: str = ""
    """``CUDAExecutionProvider``; empty until the plugin object exists."""
    distribution: str = ""
    """Installed distribution that offers it; empty for a plugin registered in-process."""
    version: str = ""
    """Version of that distribution."""
    state: ProviderState = ProviderState.DISCOVERED
    reason: str = ""
    """Why it is unavailable, refused or blocked."""
    remedy: str = ""
    """What the user can do about it."""

    def moved_to(self, state: ProviderState, reason: str = "", remedy: str = "") -> ProviderRecord:
        """The same record in another state."""
        return dataclasses.replace(self, state=state, reason=reason, remedy=remedy)

    def source(self) -> str:
        """Distribution and version, for messages."""
        return f"{self.distribution} {self.version}".strip() or "registered in-process"

    def label(self) -> str:
        """Both names and the source, for messages."""
        name = self.provider_name or self.entry_point_name
        return f"'{name}' (entry point '{self.entry_point_name}', {self.source()})"

    def is_named(self, name: str) -> bool:
        """Whether ``name`` is its provider name or its entry-point name."""
        return name in (self.provider_name, self.entry_point_name)
