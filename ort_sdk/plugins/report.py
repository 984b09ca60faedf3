"""The state of every plugin as plain rows, for listings."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import API_VERSION

from .known import OFFERED_PROVIDERS
from .manager import PluginManager
from .state import ProviderRecord, ProviderState

__all__ = ["provider_report", "report_text"]


def provider_report(manager: PluginManager) -> dict[str, Any]:
    """All that is known, as values that JSON can hold. Asks each provider for its devices.

    Returns:
        ``api_version``; ``providers`` and ``plugins``, each a list of rows with entry_point, name, distribution, version,
        state, reason, remedy (and devices, for a provider); ``not_installed``, rows of this project's providers with name
        and install command.
    """
    devices = {handle.name: [str(device) for device in handle.devices] for handle in manager.available_providers()}
    providers = manager.provider_records()
    installed = {record.entry_point_name for record in providers} | {record.provider_name for record in providers}
    return {
        "api_version": API_VERSION,
        "providers": [{**_row(record), "devices": _devices_of(record, devices)} for record in providers],
        "plugins": [_row(record) for record in manager.plugin_records()],
        "not_installed": [
            {"entry_point": known.entry_point_name, "name": known.provider_name, "install": known.install_command}
            for known in OFFERED_PROVIDERS
            if not installed & {known.entry_point_name, known.provider_name}
        ],
    }


def report_text(manager: PluginManager) -> str:
    """The same as aligned lines of text."""
    report = provider_report(manager)
    lines = [f"plugin API version {report['api_version']}"]
    for title in ("providers", "plugins"):
        rows = report[title]
        lines += ["", f"{title}:" if rows else f"{title}: none installed"]
        width = max((len(row["name"] or row["entry_point"]) for row in rows), default=0)
        for row in rows:
            lines += _lines_of(row, width)
    if report["not_installed"]:
        lines += ["", "not installed:"]
        lines += [f"  {row['name']}: {row['install']}" for row in report["not_installed"]]
    return "\n".join(lines)


def _row(record: ProviderRecord) -> dict[str, Any]:
    return {
        "entry_point": record.entry_point_name,
        "name": record.provider_name,
        "distribution": record.distribution,
        "version": record.version,
        "state": str(record.state),
        "reason": record.reason,
        "remedy": record.remedy,
    }


def _devices_of(record: ProviderRecord, devices: dict[str, list[str]]) -> list[str]:
    return devices.get(record.provider_name, []) if record.state is ProviderState.LOADED else []


def _lines_of(row: dict[str, Any], width: int) -> list[str]:
    source = f"{row['distribution']} {row['version']}".strip() or "in-process"
    devices = ", ".join(row.get("devices", ()))
    head = f"  {row['name'] or row['entry_point']:{width}}  {row['state']:11}  {row['entry_point']} ({source})"
    lines = [f"{head}  {devices}".rstrip()]
    if row["reason"]:
        lines.append(f"      {row['reason']}")
    if row["remedy"]:
        lines.append(f"      {row['remedy']}")
    return lines
