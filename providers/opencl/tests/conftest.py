"""These tests need the installed package and a device; without them they are left out, and say so, except in CI."""

import dataclasses
import functools
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


@functools.cache
def _namespace(name):
    from ort_sdk_opencl.device import device_context, find_devices
    from ort_sdk_opencl.launcher import OpenClLauncher

    from ort_sdk.device import GPU_CLASS, OPENCL, DeviceContext
    from ort_sdk.device.namespace.device_namespace import DeviceNamespace

    if name == "cpu":
        return DeviceNamespace(device_context(0))
    device_class = GPU_CLASS if name == "gpu" else dataclasses.replace(GPU_CLASS, units=64)
    return DeviceNamespace(DeviceContext(OpenClLauncher(find_devices()[0], device_class, OPENCL)))


@pytest.fixture(params=["cpu", "gpu"])
def xp(request):
    """The first device's array namespace, by its own class and by that of GPUs, whose kernels run on any device."""
    return _namespace(request.param)


@pytest.fixture(params=["cpu", "gpu", "gpu of many units"])
def xp_of_units(request):
    """The same, and one with so many processors that kernels split their work."""
    return _namespace(request.param)
