"""These tests need no GPU: a stand-in with CUDA's semantics takes the driver's place. It computes on an OpenCL device.

Without the package, or an OpenCL device, they are left out, and say so, except in CI.
"""

import importlib.util
import os
import sys
import zlib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

IS_CI = bool(os.environ.get("CI"))


def _reason():
    if any(importlib.util.find_spec(name) is None for name in ("ort_sdk_cuda", "pyopencl")):
        return "ort-sdk-cuda or pyopencl is not installed: python -m pip install . ./providers/cuda pyopencl"
    import pyopencl as cl

    try:
        cl.get_platforms()[0].get_devices()
    except (cl.Error, IndexError) as error:
        return f"no OpenCL device: {error}"
    return None


REASON = _reason()
collect_ignore_glob = ["test_*.py"] if REASON is not None and not IS_CI else []
CASES = ("test_node_case", "test_node_case_in_double", "test_packing_changes_no_result", "test_whole_model")
ONE_IN = 8
"""Of the kit's cases: the OpenCL provider's tests run them all, with the same kernels."""


def pytest_report_header():
    return None if REASON is None else f"CUDA tests left out: {REASON}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        is_case = item.path.parent == Path(__file__).parent and getattr(item, "originalname", "") in CASES
        if is_case and zlib.crc32(item.name.encode()) % ONE_IN:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def _no_stand_in_afterwards():
    yield
    from ort_sdk_cuda.driver import use_cuda

    use_cuda(None)


@pytest.fixture
def on_stand_in():
    """Register the provider on a stand-in of one's own, or on the shared one."""
    from ort_sdk_cuda.driver import use_cuda
    from stand_in import stand_in
    from stand_in.plugin import NAME, Shared, StandInCudaProvider

    from ort_sdk.plugins import plugin_manager

    def register(*, is_shared=False, **options):
        cuda = Shared.cuda() if is_shared else stand_in(**options)
        plugin_manager().register(StandInCudaProvider(cuda))
        use_cuda(cuda)
        return cuda

    yield register
    plugin_manager().unregister(NAME)


@pytest.fixture
def cuda(on_stand_in):
    """The shared stand-in in CUDA's place."""
    return on_stand_in(is_shared=True)


@pytest.fixture
def driver(cuda):
    """The shared stand-in's driver, whose calls are counted from now on."""
    cuda.driver.calls.clear()
    return cuda.driver
