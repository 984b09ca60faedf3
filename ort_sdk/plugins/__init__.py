"""Which providers are installed, which can be used, and why not the others."""

from __future__ import annotations

from .handle import PluginsHandle, ProviderHandle
from .manager import PluginManager, plugin_manager, reset_manager
from .state import ProviderRecord, ProviderState

__all__ = [
    "PluginManager",
    "PluginsHandle",
    "ProviderHandle",
    "ProviderRecord",
    "ProviderState",
    "plugin_manager",
    "reset_manager",
]
