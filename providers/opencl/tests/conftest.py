"""These tests need the installed package and a device; without them they are left out, and say so, except in CI.

They run on PoCL and on Intel's runtime for processors, each where it is installed; in CI both must be.
"""

import dataclasses
import functools
import importlib.util
import os
import sys
import tempfile
import zlib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
try:
    from opencl_drivers import write_icd_files
finally:
    sys.path.pop(0)

IS_CI = bool(os.environ.get("CI"))
PLATFORMS = {"pocl": "Portable Computing Language", "intel": "Intel(R) OpenCL"}

if "OCL_ICD_VENDORS" not in os.environ:
    # The loader reads it once, when a process first looks for platforms.
    os.environ["OCL_ICD_VENDORS"] = tempfile.mkdtemp(prefix="opencl-drivers-")
    write_icd_files(Path(os.environ["OCL_ICD_VENDORS"]))


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


ONE_IN = {
    "test_node_case": 8,
    "test_node_case_in_double": 32,
    "test_packing_changes_no_result": 8,
    "test_whole_model": 4,
}
"""Of how many of the kit's cases a platform runs one by default, others than the other platform: drivers compile each case's
kernels, which takes half a second. All run with ``-m slow``."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        key = getattr(item.cls, "platform_key", None)
        step = ONE_IN.get(item.originalname, 1)
        if key is not None and step > 1 and zlib.crc32(item.name.encode()) % step != sorted(PLATFORMS).index(key):
            item.add_marker(pytest.mark.slow)
    if IS_CI:
        return
    for item in items:
        if not item.get_closest_marker("opencl"):
            continue
        key = getattr(item.cls, "platform_key", None)
        reason = REASON if REASON is not None or key is None or _indices(key) else _missing(key)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


def _indices(platform):
    from ort_sdk_opencl.devices import find_devices

    return [index for index, each in enumerate(find_devices()) if each.platform == PLATFORMS[platform]]


def _missing(platform):
    return f"no driver of platform '{PLATFORMS[platform]}'"


def index_of(platform):
    """Index of a platform's first device; the test is left out where there is none, except in CI."""
    found = _indices(platform)
    if not found and not IS_CI:
        pytest.skip(_missing(platform))
    return found[0]


@pytest.fixture(params=sorted(PLATFORMS))
def platform(request):
    """Each platform in turn."""
    index_of(request.param)
    return request.param


@pytest.fixture
def index(platform):
    """Of the platform's device."""
    return index_of(platform)


@pytest.fixture
def providers(platform):
    """The platform's device, and the host for what it leaves."""
    return [("OpenCLExecutionProvider", {"platform": PLATFORMS[platform]}), "CPUExecutionProvider"]


@pytest.fixture
def context(index):
    """The device layer's context of the platform's device."""
    from ort_sdk_opencl.device import device_context

    return device_context(index)


@functools.cache
def _namespace(name):
    from ort_sdk_opencl.device import context_in_form, device_context

    from ort_sdk.device import GPU_CLASS, OPENCL
    from ort_sdk.device.drivers import DeviceForm
    from ort_sdk.device.namespace.device_namespace import DeviceNamespace

    if name == "cpu":
        return DeviceNamespace(device_context(0))
    device_class = GPU_CLASS if name == "gpu" else dataclasses.replace(GPU_CLASS, units=64)
    return DeviceNamespace(context_in_form(0, DeviceForm(OPENCL, device_class)))


@pytest.fixture(params=["cpu", "gpu"])
def xp(request):
    """The first device's array namespace, by its own class and by that of GPUs, whose kernels run on any device."""
    return _namespace(request.param)


@pytest.fixture(params=["cpu", "gpu", "gpu of many units"])
def xp_of_units(request):
    """The same, and one with so many processors that kernels split their work."""
    return _namespace(request.param)
