"""pytest's options of the kit. Imported at every start of pytest, so it imports nothing before it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

__all__ = ["pytest_addoption", "pytest_report_header"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--ort-provider`` and ``--ort-xfails``."""
    group = parser.getgroup("ort_sdk", "conformance of execution providers")
    group.addoption("--ort-provider", metavar="NAME", help="provider under test; run the whole kit with --pyargs ort_sdk.testing")
    group.addoption("--ort-xfails", metavar="FILE", help="its expected failures, one 'test_name[parameter]: reason' a line")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Provider, version, devices and API version, if a provider is named."""
    name = config.getoption("--ort-provider")
    if not name:
        return []
    from ort_sdk.api import API_VERSION, OrtSdkError
    from ort_sdk.plugins import plugin_manager

    try:
        handle = plugin_manager().handle(name)
    except OrtSdkError as error:
        return [f"ort_sdk: API version {API_VERSION}, provider {name}: {error}"]
    devices = ", ".join(str(device) for device in handle.devices)
    return [f"ort_sdk: API version {API_VERSION}, provider {handle.name} ({handle.record.source()}), devices {devices}"]
