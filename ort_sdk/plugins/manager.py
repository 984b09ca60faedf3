"""Which plugins are there, which can be used, and why not the others. The only importer of pluggy's manager.

A plugin that fails in any way is recorded and left out; it never keeps another one, or the host, from working. Only a
user who names a provider gets its failure as an exception.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pluggy

from ort_sdk.api import (
    OBSERVER_GROUP,
    PROJECT_NAME,
    PROVIDER_GROUP,
    EPFail,
    NoDeviceError,
    OrtSdkError,
    PluginHooks,
    ProviderHooks,
    ProviderNotFoundError,
    ProviderRefusedError,
    ProviderUnavailableError,
)
from ort_sdk.api.data_classes import dataclass

from .checks import PLUGIN_HOOK_NAMES, PROVIDER_HOOK_NAMES, check_plugin, may_be_marked, wraps_provider_hook
from .discovery import Discovered, read_entry_points
from .handle import PluginsHandle, ProviderHandle
from .known import hardware_of, install_hint
from .state import ProviderRecord, ProviderState

__all__ = [
    "DISABLED_PLUGINS",
    "DISABLED_PROVIDERS",
    "LOAD_PROVIDERS",
    "NO_DEVICE",
    "PluginManager",
    "plugin_manager",
    "reset_manager",
]

DISABLED_PROVIDERS = "ORT_SDK_DISABLED_PROVIDERS"
"""Environment variable: providers to keep out, by provider or entry-point name, separated by commas."""
LOAD_PROVIDERS = "ORT_SDK_LOAD_PROVIDERS"
"""Environment variable: if set, the only installed providers to load."""
DISABLED_PLUGINS = "ORT_SDK_DISABLED_PLUGINS"
"""Environment variable: plugins that are no providers to keep out, by name or entry-point name."""

NO_DEVICE = "no device"
"""Why a provider is unavailable that is sound, and has no device on this machine: all of the reason, or how it begins."""

logger = logging.getLogger("ort_sdk.plugins")


@dataclass(slots=True)
class _Entry:
    """One entry point with what came of it; ``plugin`` is set while it is registered."""

    record: ProviderRecord
    plugin: Any = None
    handle: ProviderHandle | None = None
    is_probed: bool = False
    in_process: bool = False

    def fail(self, state: ProviderState, reason: str, remedy: str = "") -> None:
        self.record = self.record.moved_to(state, reason, remedy)
        self.plugin = self.handle = None


class _PluggyManager(pluggy.PluginManager):
    """pluggy's manager with a filter: of some plugins, only some methods count as implementations."""

    def __init__(self, specification: type, counts: Callable[[Any, str, Mapping[str, Any]], bool]) -> None:
        super().__init__(PROJECT_NAME)
        self._counts = counts
        self.add_hookspecs(specification)

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> pluggy.HookimplOpts | None:
        options = super().parse_hookimpl_opts(plugin, name) if may_be_marked(name) else None
        return options if options is not None and self._counts(plugin, name, options) else None


class PluginManager:
    """The plugins of a process. Thread-safe; ``plugin_manager`` gives the one that sessions use.

    Args:
        discovery: whether to look for installed plugins, at the first question that needs them.
    """

    def __init__(self, *, discovery: bool = True) -> None:
        self._lock = threading.RLock()
        self._needs_discovery = discovery
        self._reader = pluggy.PluginManager(PROJECT_NAME)
        self._clear()

    def _clear(self) -> None:
        self._providers: list[_Entry] = []
        self._plugins: list[_Entry] = []
        # Two managers, since both kinds have a hook get_external_data_loader. Observers are in both: their wrappers of
        # provider hooks in the first, all else in the second.
        self._provider_pm = _PluggyManager(ProviderHooks, self._counts_in_provider_hooks)
        self._plugin_pm = _PluggyManager(PluginHooks, lambda _, name, options: not wraps_provider_hook(name, options))
        self._plugins_handle: PluginsHandle | None = None

    def _counts_in_provider_hooks(self, plugin: Any, attribute: str, options: Mapping[str, Any]) -> bool:
        is_provider = any(entry.plugin is plugin for entry in self._providers)
        return is_provider or wraps_provider_hook(attribute, options)

    # -- questions

    def discover(self) -> None:
        """Read, check and register installed plugins, once; later calls do nothing."""
        with self._lock:
            if not self._needs_discovery:
                return
            # First, so that a plugin that asks while it is imported does not start discovery again.
            self._needs_discovery = False
            try:
                plugins, providers = read_entry_points(OBSERVER_GROUP, PROVIDER_GROUP)
                self._discover_plugins(plugins)
                self._discover_providers(providers)
            except BaseException:
                self._clear()
                self._needs_discovery = True
                raise

    def provider_records(self) -> tuple[ProviderRecord, ...]:
        """What is known of each provider, by entry-point name. Does not ask for devices."""
        with self._lock:
            self.discover()
            return tuple(entry.record for entry in self._providers)

    def plugin_records(self) -> tuple[ProviderRecord, ...]:
        """The same for plugins that are no providers."""
        with self._lock:
            self.discover()
            return tuple(entry.record for entry in self._plugins)

    def handle(self, name: str) -> ProviderHandle:
        """The usable provider of that provider name or entry-point name.

        Raises:
            ProviderNotFoundError: none is installed.
            ProviderUnavailableError: it cannot start here, or an environment variable blocks it.
            ProviderRefusedError: it breaks the plugin contract.
        """
        with self._lock:
            self.discover()
            entries = [entry for entry in self._providers if entry.record.provider_name == name]
            entries = entries or [entry for entry in self._providers if entry.record.entry_point_name == name]
            for entry in entries:
                self._probe(entry)
            usable = [entry.handle for entry in entries if entry.handle is not None]
            if usable:
                return usable[0]
            raise self._unusable(name, [entry.record for entry in entries])

    def available_providers(self) -> tuple[ProviderHandle, ...]:
        """Usable providers in order of priority: accelerators, other host providers, then ``CPUExecutionProvider``."""
        with self._lock:
            self.discover()
            for entry in self._providers:
                self._probe(entry)
            return tuple(sorted((entry.handle for entry in self._providers if entry.handle is not None), key=_priority))

    def plugins(self) -> PluginsHandle:
        """The hooks of plugins that are no providers, as they are registered now."""
        with self._lock:
            self.discover()
            if self._plugins_handle is None:
                names = [entry.record.provider_name for entry in self._plugins if entry.plugin is not None]
                callers = {hook: getattr(self._plugin_pm.hook, hook) for hook in PLUGIN_HOOK_NAMES}
                self._plugins_handle = PluginsHandle(names, callers)
            return self._plugins_handle

    # -- registration in-process

    def register(self, plugin: Any, name: str | None = None) -> ProviderHandle:
        """Register a provider that no distribution offers: for tests and notebooks.

        Args:
            plugin: provider object, or a class that makes one without arguments.
            name: short name beside its provider name; the provider name by default.

        Raises:
            ProviderRefusedError: it breaks the contract, or one of its names is taken.
        """
        with self._lock:
            self.discover()
            entry = self._new_entry(plugin, name, self._providers)
            if not self._register_provider(entry) or entry.handle is None:
                raise ProviderRefusedError(f"cannot register provider {entry.record.label()}: {entry.record.reason}")
            logger.debug("registered provider %s", entry.record.label())
            return entry.handle

    def unregister(self, name: str) -> None:
        """Take back a provider registered in-process. Its handle answers nothing from then on.

        Raises:
            ProviderNotFoundError: none of that name was registered in-process.
        """
        with self._lock:
            entry = self._in_process_entry(name, self._providers)
            self._providers.remove(entry)
            if entry.plugin is not None:
                self._provider_pm.unregister(entry.plugin)
            if entry.handle is not None:
                entry.handle.rebind({})
            self._rebind()

    def register_plugin(self, plugin: Any, name: str | None = None) -> None:
        """Register a plugin that is no provider, as ``register`` does for providers.

        Raises:
            ProviderRefusedError: it breaks the contract, or one of its names is taken.
        """
        with self._lock:
            self.discover()
            entry = self._new_entry(plugin, name, self._plugins)
            if not self._register_plugin(entry):
                raise ProviderRefusedError(f"cannot register plugin {entry.record.label()}: {entry.record.reason}")

    def unregister_plugin(self, name: str) -> None:
        """Take back a plugin registered with ``register_plugin``.

        Raises:
            ProviderNotFoundError: none of that name was registered in-process.
        """
        with self._lock:
            entry = self._in_process_entry(name, self._plugins)
            self._plugins.remove(entry)
            self._plugin_pm.unregister(entry.plugin)
            self._provider_pm.unregister(entry.plugin)
            self._plugins_handle = None
            self._rebind()

    def _new_entry(self, plugin: Any, name: str | None, entries: list[_Entry]) -> _Entry:
        instance = plugin() if isinstance(plugin, type) else plugin
        provider_name = str(getattr(instance, "name", ""))
        record = ProviderRecord(name or provider_name or type(instance).__name__, provider_name)
        for other in entries:
            taken = [text for text in (record.entry_point_name, provider_name) if other.record.is_named(text)]
            if taken:
                raise ProviderRefusedError(
                    f"cannot register {record.label()}: '{taken[0]}' is taken by {other.record.label()}; "
                    "unregister that one first"
                )
        return _Entry(record, instance, in_process=True)

    @staticmethod
    def _in_process_entry(name: str, entries: list[_Entry]) -> _Entry:
        mine = [entry for entry in entries if entry.in_process]
        for entry in mine:
            if entry.record.is_named(name):
                return entry
        known = ", ".join(entry.record.entry_point_name for entry in mine) or "none"
        raise ProviderNotFoundError(f"cannot unregister '{name}': it was not registered in-process; registered are: {known}")

    # -- discovery

    def _discover_plugins(self, found: Sequence[Discovered]) -> None:
        for entry in _load_all(found, _Filter(DISABLED_PLUGINS, _names_in(DISABLED_PLUGINS))):
            if entry.plugin is None or not self._register_plugin(entry):
                self._plugins.append(entry)
            _log(entry.record)
        self._plugins.sort(key=_entry_order)

    def _discover_providers(self, found: Sequence[Discovered]) -> None:
        wanted = _names_in(LOAD_PROVIDERS) or None
        for entry in _load_all(found, _Filter(DISABLED_PROVIDERS, _names_in(DISABLED_PROVIDERS), wanted)):
            if entry.plugin is None or not self._register_provider(entry):
                self._providers.append(entry)
            _log(entry.record)
        self._providers.sort(key=_entry_order)

    def _register_provider(self, entry: _Entry) -> bool:
        """Check and register; on any fault nothing stays registered, and the entry says why."""
        self._providers.append(entry)
        if not self._register_in(entry, (self._provider_pm,), is_provider=True):
            self._providers.remove(entry)
            return False
        entry.handle = ProviderHandle(entry.record, {})
        self._rebind()
        return True

    def _register_plugin(self, entry: _Entry) -> bool:
        if not self._register_in(entry, (self._plugin_pm, self._provider_pm), is_provider=False):
            return False
        self._plugins.append(entry)
        self._plugins_handle = None
        self._rebind()
        return True

    def _register_in(self, entry: _Entry, managers: tuple[_PluggyManager, ...], *, is_provider: bool) -> bool:
        plugin = entry.plugin
        name = f"{'provider' if is_provider else 'plugin'}:{entry.record.entry_point_name}"
        try:
            check_plugin(plugin, self._reader.parse_hookimpl_opts, is_provider=is_provider)
            for manager in managers:
                manager.register(plugin, name)
                manager.check_pending()
        except Exception as error:  # noqa: BLE001 - a broken plugin is recorded and must break nothing else
            for manager in managers:
                if manager.has_plugin(name):
                    manager.unregister(name=name)
            remedy = f"Upgrade or uninstall {entry.record.distribution}" if entry.record.distribution else "Correct the plugin"
            entry.fail(ProviderState.REFUSED, _text_of(error), remedy)
            return False
        entry.record = entry.record.moved_to(ProviderState.LOADED)
        return True

    def _rebind(self) -> None:
        """Bind each handle's hooks to its provider alone, now that providers came or went, or observers that wrap their hooks."""
        providers = [entry.plugin for entry in self._providers if entry.plugin is not None]
        for entry in self._providers:
            if entry.handle is not None:
                others = [plugin for plugin in providers if plugin is not entry.plugin]
                entry.handle.rebind({hook: self._provider_pm.subset_hook_caller(hook, others) for hook in PROVIDER_HOOK_NAMES})

    # -- devices

    def _probe(self, entry: _Entry) -> None:
        """Ask a loaded provider for its devices, once; without any it is unavailable."""
        if entry.handle is None or entry.is_probed:
            return
        try:
            reason = "" if entry.handle.devices else NO_DEVICE
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a failing driver must not keep other providers away
            raised = error.__cause__ if isinstance(error, EPFail) and isinstance(error.__cause__, Exception) else error
            reason = f"{_text_of(raised)} (raised in hook get_supported_devices)"
            if isinstance(raised, NoDeviceError):
                reason = f"{NO_DEVICE}: {raised.text}"
        entry.is_probed = True
        if not reason:
            return
        plugin = entry.plugin
        entry.handle.rebind({})
        entry.fail(ProviderState.UNAVAILABLE, reason, "Check that the device and its driver are installed and visible")
        self._provider_pm.unregister(plugin)
        self._rebind()
        _log(entry.record)

    # -- errors

    def _unusable(self, name: str, records: list[ProviderRecord]) -> OrtSdkError:
        if not records:
            known = ", ".join(sorted(entry.record.provider_name or entry.record.entry_point_name for entry in self._providers))
            return ProviderNotFoundError(
                f"execution provider '{name}' is not installed; installed: {known or 'none'}. {install_hint(name)}"
            )
        refused = any(record.state is ProviderState.REFUSED for record in records)
        text = "; ".join(f"execution provider {record.label()} is {record.state}: {record.reason}" for record in records)
        remedies = ". ".join(dict.fromkeys(record.remedy for record in records if record.remedy))
        return (ProviderRefusedError if refused else ProviderUnavailableError)(f"{text}. {remedies}")


@dataclass(frozen=True, slots=True)
class _Filter:
    """Which entry points the environment keeps out."""

    variable: str
    disabled: frozenset[str]
    wanted: frozenset[str] | None = None

    def reason(self, record: ProviderRecord, entry_point_names: frozenset[str]) -> str:
        """Why the plugin is kept out; empty if it is not, or is not known before its object says its name."""
        names = {record.entry_point_name, record.provider_name}
        if names & self.disabled:
            return f"{self.variable} names it"
        if self.wanted is None or names & self.wanted:
            return ""
        may_be_named_later = not record.provider_name and not self.wanted <= entry_point_names
        return "" if may_be_named_later else f"{LOAD_PROVIDERS} does not name it"


def _load_all(found: Sequence[Discovered], allowed: _Filter) -> list[_Entry]:
    """Entries of a group with their plugin objects; ``plugin`` is None where that failed or was not to be done."""
    entries = [_Entry(row.record) for row in found]
    names = frozenset(row.record.entry_point_name for row in found)
    _refuse_claimed_twice(entries, "entry point", lambda record: record.entry_point_name)
    for entry, row in zip(entries, found, strict=True):
        if entry.record.state is ProviderState.DISCOVERED:
            _load(entry, row, lambda record: allowed.reason(record, names))
    _refuse_claimed_twice([entry for entry in entries if entry.plugin is not None], "name", lambda record: record.provider_name)
    return entries


def _load(entry: _Entry, row: Discovered, blocked_reason: Callable[[ProviderRecord], str]) -> None:
    reason = blocked_reason(entry.record)
    if not reason:
        try:
            plugin = _instantiate(row)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - an import of other people's code may raise anything
            entry.fail(ProviderState.UNAVAILABLE, _text_of(error), _import_remedy(entry.record, error))
            return
        if plugin is None:
            entry.fail(ProviderState.REFUSED, "its entry point names None, not a plugin class or object")
            return
        entry.plugin = plugin
        name = getattr(plugin, "name", "")
        entry.record = dataclasses.replace(entry.record, provider_name=name if isinstance(name, str) else "")
        reason = blocked_reason(entry.record)
    if reason:
        entry.fail(ProviderState.BLOCKED, reason, "Change that environment variable to use it")


def _instantiate(row: Discovered) -> Any:
    loaded = None if row.entry_point is None else row.entry_point.load()
    return loaded() if isinstance(loaded, type) else loaded


def _refuse_claimed_twice(entries: list[_Entry], what: str, claim_of: Callable[[ProviderRecord], str]) -> None:
    claims: dict[str, list[_Entry]] = {}
    for entry in entries:
        claims.setdefault(claim_of(entry.record), []).append(entry)
    for claim, claimants in claims.items():
        if claim and len(claimants) > 1:
            sources = " and ".join(entry.record.source() for entry in claimants)
            names = " or ".join(dict.fromkeys(entry.record.distribution for entry in claimants))
            for entry in claimants:
                reason = f"{what} '{claim}' is claimed by {sources}, so none of them is used"
                entry.fail(ProviderState.REFUSED, reason, f"Uninstall one: pip uninstall {names}")


def _names_in(variable: str) -> frozenset[str]:
    return frozenset(name.strip() for name in os.environ.get(variable, "").split(",") if name.strip())


def _import_remedy(record: ProviderRecord, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"Install the module '{error.name}', or reinstall: pip install --force-reinstall {record.distribution}"
    return f"Repair or uninstall it: pip install --force-reinstall {record.distribution}"


def _text_of(error: BaseException) -> str:
    return error.text if isinstance(error, OrtSdkError) else f"{type(error).__name__}: {error}"


def _entry_order(entry: _Entry) -> tuple[str, str]:
    return (entry.record.entry_point_name, entry.record.distribution)


def _priority(handle: ProviderHandle) -> tuple[bool, bool, str]:
    on_host = all(device.is_cpu for device in handle.devices)
    return (handle.name == "CPUExecutionProvider", on_host, handle.entry_point_name)


def _log(record: ProviderRecord) -> None:
    """Report a plugin that is left out, as loud as an automatic choice wants it: refusals warn, absence informs."""
    if record.state is ProviderState.REFUSED:
        logger.warning("plugin %s is refused: %s. %s", record.label(), record.reason, record.remedy)
    elif record.state is ProviderState.UNAVAILABLE:
        hardware = hardware_of((record.entry_point_name, record.provider_name))
        level = logging.WARNING if hardware else logging.INFO
        seen = f", though its hardware is visible as {hardware}" if hardware else ""
        logger.log(level, "plugin %s is unavailable%s: %s. %s", record.label(), seen, record.reason, record.remedy)
    else:
        logger.debug("plugin %s is %s %s", record.label(), record.state, record.reason)


_default_lock = threading.Lock()
_default: list[PluginManager] = []


def plugin_manager() -> PluginManager:
    """The manager of this process. What it discovered is kept until ``reset_manager``."""
    with _default_lock:
        if not _default:
            _default.append(PluginManager())
        return _default[0]


def reset_manager() -> None:
    """Forget what was discovered and registered; the next ``plugin_manager`` starts anew. For tests."""
    with _default_lock:
        _default.clear()
