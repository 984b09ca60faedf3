"""These tests need the installed package and a device; without them they are left out, and say so, except in CI."""

import importlib.util
import os

import pytest

IS_CI = bool(os.environ.get("CI"))


def _reason():
    if any(importlib.util.find_spec(name) is None for name in ("ort_sdk_opencl", "pyopencl")):
        return "ort-sdk-opencl is not installed: python -m pip install . ./providers/opencl"
    from ort_sdk.api import ProviderError
    from ort_sdk.plugins import plugin_manager

    try:
        plugin_manager().handle("opencl").get_supported_devices()
    except ProviderError as error:
        return f"no OpenCL device: {error.text}"
    return None


REASON = _reason()
collect_ignore_glob = ["test_*.py"] if REASON is not None and "not installed" in REASON and not IS_CI else []


def pytest_report_header():
    return None if REASON is None else f"OpenCL tests left out: {REASON}"


def pytest_collection_modifyitems(items):
    if REASON is None or IS_CI:
        return
    for item in items:
        if item.get_closest_marker("opencl"):
            item.add_marker(pytest.mark.skip(reason=REASON))
