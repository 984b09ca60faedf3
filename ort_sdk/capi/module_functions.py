"""Functions of onnxruntime's top level."""

from __future__ import annotations

import operator
import os
import platform
import sys
from typing import Any

import numpy as np

from ort_sdk.api import Fail
from ort_sdk.api import NotImplemented as OrtNotImplemented
from ort_sdk.api.foreign_errors import only_ort_errors
from ort_sdk.opset.random_state import set_seed as seed_operators
from ort_sdk.plugins import plugin_manager
from ort_sdk.plugins.known import OFFERED_PROVIDERS
from ort_sdk.plugins.report import report_text
from ort_sdk.session.stages.select_providers import CPU_PROVIDER
from ort_sdk.session.values.memory_info import OrtArenaCfg, OrtMemoryInfo
from ort_sdk.version import __version__

__all__ = [
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "has_collective_ops",
    "preload_dlls",
    "print_debug_info",
    "register_execution_provider_library",
    "set_global_thread_pool_sizes",
    "set_seed",
    "unregister_execution_provider_library",
]


@only_ort_errors
def get_available_providers() -> list[str]:
    """Names of the providers that are installed and usable, in order of preference."""
    return [handle.name for handle in plugin_manager().available_providers()]


@only_ort_errors
def get_all_providers() -> list[str]:
    """Names of all providers that are installed, usable or not, or that this project offers; the CPU provider last."""
    installed = [record.provider_name or record.entry_point_name for record in plugin_manager().provider_records()]
    offered = [provider.provider_name for provider in OFFERED_PROVIDERS]
    names = dict.fromkeys([*get_available_providers(), *installed, *offered])
    return [*(name for name in names if name != CPU_PROVIDER), CPU_PROVIDER]


@only_ort_errors
def get_device() -> str:
    """``GPU`` if an accelerator is usable, else ``CPU``."""
    devices = [device for handle in plugin_manager().available_providers() for device in handle.devices]
    return "CPU" if all(device.is_cpu for device in devices) else "GPU"


def get_version_string() -> str:
    """Version of this package."""
    return __version__


@only_ort_errors
def get_build_info() -> str:
    """Versions of this package, Python, NumPy and the providers, in a line."""
    versions = {record.entry_point_name: record.version or record.state for record in plugin_manager().provider_records()}
    records = ", ".join(f"{name}={version}" for name, version in versions.items())
    return (
        f"ORT Build Info: ort_sdk {__version__}, Python {platform.python_version()}, NumPy {np.__version__}, providers: {records}"
    )


@only_ort_errors
def print_debug_info() -> None:
    """Print what a report of a fault should contain."""
    report = report_text(plugin_manager())
    sys.stdout.write(f"{get_build_info()}\n{platform.platform()}, {os.cpu_count()} processors\n{report}\n")


@only_ort_errors
def set_seed(seed: int) -> None:
    """Seed the random operators of sessions made later."""
    seed_operators(seed)


def has_collective_ops() -> bool:
    """False: there are no collective operators."""
    return False


def enable_telemetry_events() -> None:
    """Nothing to do: there is no telemetry."""


def disable_telemetry_events() -> None:
    """Nothing to do: there is no telemetry."""


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None) -> None:
    """Nothing to do: providers load their libraries themselves."""
    del cuda, cudnn, msvc, directory


def set_global_thread_pool_sizes(intra_op_num_threads: int = 0, inter_op_num_threads: int = 0) -> None:
    """Accepted: kernels use their libraries' threads."""
    operator.index(intra_op_num_threads)
    operator.index(inter_op_num_threads)


def create_and_register_allocator(mem_info: OrtMemoryInfo, arena_cfg: OrtArenaCfg | None) -> None:
    """Accepted: host memory is NumPy's, and shared by all sessions."""
    _check_allocator(mem_info, arena_cfg)


def create_and_register_allocator_v2(
    provider_type: str, mem_info: OrtMemoryInfo, options: dict[str, str], arena_cfg: OrtArenaCfg | None
) -> None:
    """Accepted: providers share their own allocators between sessions."""
    del provider_type, options
    _check_allocator(mem_info, arena_cfg)


def _check_allocator(mem_info: Any, arena_cfg: Any) -> None:
    if not isinstance(mem_info, OrtMemoryInfo) or not isinstance(arena_cfg, OrtArenaCfg | None):
        raise TypeError(
            "incompatible function arguments: takes an OrtMemoryInfo and an OrtArenaCfg or None, "
            f"got {mem_info!r} and {arena_cfg!r}"
        )


def register_execution_provider_library(registration_name: str, library_path: str | os.PathLike[str]) -> None:
    """Not possible: providers are Python packages.

    Raises:
        NotImplemented: always.
    """
    raise OrtNotImplemented(
        f"register_execution_provider_library('{registration_name}', '{os.fspath(library_path)}'): libraries of ONNX Runtime's C "
        "API cannot be loaded; install the provider's Python package, or register an object in-process with "
        "ort_sdk.plugins.plugin_manager().register"
    )


def unregister_execution_provider_library(registration_name: str) -> None:
    """Nothing can be registered, so there is nothing to take back.

    Raises:
        Fail: always.
    """
    raise Fail(f"Execution provider library: {registration_name} was not registered.")
