"""ort_sdk: ONNX Runtime's machinery as a plugin-based SDK in Python.

``import ort_sdk as ort`` serves code written for onnxruntime. Names are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import version

if TYPE_CHECKING:
    from .capi.module_functions import (
        create_and_register_allocator,
        create_and_register_allocator_v2,
        disable_telemetry_events,
        enable_telemetry_events,
        get_all_providers,
        get_available_providers,
        get_build_info,
        get_device,
        get_version_string,
        has_collective_ops,
        preload_dlls,
        print_debug_info,
        register_execution_provider_library,
        set_global_thread_pool_sizes,
        set_seed,
        unregister_execution_provider_library,
    )
    from .kernels.type_str_resolver import KernelTypeStrResolver
    from .memory.prepacked_weights_container import PrepackedWeightsContainer
    from .session.calls.io_binding import IOBinding
    from .session.calls.io_binding import IOBinding as SessionIOBinding
    from .session.enums import (
        OrtAllocatorType,
        OrtCompileApiFlags,
        OrtDeviceMemoryType,
        OrtDeviceVendorId,
        OrtHardwareDeviceType,
        OrtMemoryInfoDeviceType,
        OrtMemType,
        OrtSparseFormat,
    )
    from .session.inference_session import InferenceSession
    from .session.logging import set_default_logger_severity, set_default_logger_verbosity
    from .session.model_compiler import AdapterFormat, LoraAdapter, ModelCompiler, OrtExternalInitializerInfo
    from .session.option_enums import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, OrtExecutionProviderDevicePolicy
    from .session.options.session_options import RunOptions, SessionOptions
    from .session.values.ep_assignment import OrtEpAssignedNode, OrtEpAssignedSubgraph
    from .session.values.ep_devices import OrtEpDevice, OrtHardwareDevice, OrtSyncStream, get_ep_devices
    from .session.values.memory_info import OrtArenaCfg, OrtMemoryInfo
    from .session.values.node_arg import ModelMetadata, NodeArg
    from .session.values.ort_device import OrtDevice
    from .session.values.ort_value import OrtValue, copy_tensors
    from .session.values.sparse_tensor import SparseTensor

__version__ = version.__version__
"""Version of the package; all distributions of the project share it."""

_HOMES = {
    "AdapterFormat": "session.model_compiler",
    "ExecutionMode": "session.option_enums",
    "ExecutionOrder": "session.option_enums",
    "GraphOptimizationLevel": "session.option_enums",
    "IOBinding": "session.calls.io_binding",
    "InferenceSession": "session.inference_session",
    "KernelTypeStrResolver": "kernels.type_str_resolver",
    "LoraAdapter": "session.model_compiler",
    "ModelCompiler": "session.model_compiler",
    "ModelMetadata": "session.values.node_arg",
    "NodeArg": "session.values.node_arg",
    "OrtAllocatorType": "session.enums",
    "OrtArenaCfg": "session.values.memory_info",
    "OrtCompileApiFlags": "session.enums",
    "OrtDevice": "session.values.ort_device",
    "OrtDeviceMemoryType": "session.enums",
    "OrtDeviceVendorId": "session.enums",
    "OrtEpAssignedNode": "session.values.ep_assignment",
    "OrtEpAssignedSubgraph": "session.values.ep_assignment",
    "OrtEpDevice": "session.values.ep_devices",
    "OrtExecutionProviderDevicePolicy": "session.option_enums",
    "OrtExternalInitializerInfo": "session.model_compiler",
    "OrtHardwareDevice": "session.values.ep_devices",
    "OrtHardwareDeviceType": "session.enums",
    "OrtMemType": "session.enums",
    "OrtMemoryInfo": "session.values.memory_info",
    "OrtMemoryInfoDeviceType": "session.enums",
    "OrtSparseFormat": "session.enums",
    "OrtSyncStream": "session.values.ep_devices",
    "OrtValue": "session.values.ort_value",
    "PrepackedWeightsContainer": "memory.prepacked_weights_container",
    "RunOptions": "session.options.session_options",
    "SessionIOBinding": "session.calls.io_binding",
    "SessionOptions": "session.options.session_options",
    "SparseTensor": "session.values.sparse_tensor",
    "copy_tensors": "session.values.ort_value",
    "create_and_register_allocator": "capi.module_functions",
    "create_and_register_allocator_v2": "capi.module_functions",
    "disable_telemetry_events": "capi.module_functions",
    "enable_telemetry_events": "capi.module_functions",
    "get_all_providers": "capi.module_functions",
    "get_available_providers": "capi.module_functions",
    "get_build_info": "capi.module_functions",
    "get_device": "capi.module_functions",
    "get_ep_devices": "session.values.ep_devices",
    "get_version_string": "capi.module_functions",
    "has_collective_ops": "capi.module_functions",
    "preload_dlls": "capi.module_functions",
    "print_debug_info": "capi.module_functions",
    "register_execution_provider_library": "capi.module_functions",
    "set_default_logger_severity": "session.logging",
    "set_default_logger_verbosity": "session.logging",
    "set_global_thread_pool_sizes": "capi.module_functions",
    "set_seed": "capi.module_functions",
    "unregister_execution_provider_library": "capi.module_functions",
}
_MODULES = ("backend", "capi", "datasets")
_OTHER_NAMES = {"SessionIOBinding": "IOBinding"}

__all__ = [
    "AdapterFormat",
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "KernelTypeStrResolver",
    "LoraAdapter",
    "ModelCompiler",
    "ModelMetadata",
    "NodeArg",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtCompileApiFlags",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtEpAssignedNode",
    "OrtEpAssignedSubgraph",
    "OrtEpDevice",
    "OrtExecutionProviderDevicePolicy",
    "OrtExternalInitializerInfo",
    "OrtHardwareDevice",
    "OrtHardwareDeviceType",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
    "OrtSparseFormat",
    "OrtSyncStream",
    "OrtValue",
    "PrepackedWeightsContainer",
    "RunOptions",
    "SessionIOBinding",
    "SessionOptions",
    "SparseTensor",
    "__version__",
    "copy_tensors",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_ep_devices",
    "get_version_string",
    "has_collective_ops",
    "preload_dlls",
    "print_debug_info",
    "register_execution_provider_library",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
    "unregister_execution_provider_library",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from .session.stages.gc_pause import gc_pause

    with gc_pause:
        value = getattr(importlib.import_module(f".{home}", __name__), _OTHER_NAMES.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
