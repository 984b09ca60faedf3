"""ort_sdk: ONNX Runtime's machinery as a plugin-based SDK in Python.

``import ort_sdk as ort`` serves code written for onnxruntime. Names are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .kernels.type_str_resolver import KernelTypeStrResolver
    from .memory.prepacked_weights_container import PrepackedWeightsContainer
    from .session.enums import (
        ExecutionMode,
        ExecutionOrder,
        GraphOptimizationLevel,
        OrtAllocatorType,
        OrtCompileApiFlags,
        OrtDeviceMemoryType,
        OrtDeviceVendorId,
        OrtExecutionProviderDevicePolicy,
        OrtHardwareDeviceType,
        OrtMemoryInfoDeviceType,
        OrtMemType,
        OrtSparseFormat,
    )
    from .session.ep_devices import OrtEpDevice, OrtHardwareDevice, OrtSyncStream, get_ep_devices
    from .session.inference_session import InferenceSession
    from .session.io_binding import IOBinding
    from .session.io_binding import IOBinding as SessionIOBinding
    from .session.log import set_default_logger_severity, set_default_logger_verbosity
    from .session.memory_info import OrtArenaCfg, OrtMemoryInfo
    from .session.model_compiler import AdapterFormat, LoraAdapter, ModelCompiler, OrtExternalInitializerInfo
    from .session.module_functions import (
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
    from .session.node_arg import ModelMetadata, NodeArg
    from .session.options import RunOptions, SessionOptions
    from .session.ort_device import OrtDevice
    from .session.ort_value import OrtValue, copy_tensors
    from .session.sparse_tensor import SparseTensor
    from .session.stages import OrtEpAssignedNode, OrtEpAssignedSubgraph

__version__ = "0.1.0"
"""Version of the package; all distributions of the project share it."""

_HOMES = {
    "AdapterFormat": "session.model_compiler",
    "ExecutionMode": "session.enums",
    "ExecutionOrder": "session.enums",
    "GraphOptimizationLevel": "session.enums",
    "IOBinding": "session.io_binding",
    "InferenceSession": "session.inference_session",
    "KernelTypeStrResolver": "kernels.type_str_resolver",
    "LoraAdapter": "session.model_compiler",
    "ModelCompiler": "session.model_compiler",
    "ModelMetadata": "session.node_arg",
    "NodeArg": "session.node_arg",
    "OrtAllocatorType": "session.enums",
    "OrtArenaCfg": "session.memory_info",
    "OrtCompileApiFlags": "session.enums",
    "OrtDevice": "session.ort_device",
    "OrtDeviceMemoryType": "session.enums",
    "OrtDeviceVendorId": "session.enums",
    "OrtEpAssignedNode": "session.stages",
    "OrtEpAssignedSubgraph": "session.stages",
    "OrtEpDevice": "session.ep_devices",
    "OrtExecutionProviderDevicePolicy": "session.enums",
    "OrtExternalInitializerInfo": "session.model_compiler",
    "OrtHardwareDevice": "session.ep_devices",
    "OrtHardwareDeviceType": "session.enums",
    "OrtMemType": "session.enums",
    "OrtMemoryInfo": "session.memory_info",
    "OrtMemoryInfoDeviceType": "session.enums",
    "OrtSparseFormat": "session.enums",
    "OrtSyncStream": "session.ep_devices",
    "OrtValue": "session.ort_value",
    "PrepackedWeightsContainer": "memory.prepacked_weights_container",
    "RunOptions": "session.options",
    "SessionIOBinding": "session.io_binding",
    "SessionOptions": "session.options",
    "SparseTensor": "session.sparse_tensor",
    "copy_tensors": "session.ort_value",
    "create_and_register_allocator": "session.module_functions",
    "create_and_register_allocator_v2": "session.module_functions",
    "disable_telemetry_events": "session.module_functions",
    "enable_telemetry_events": "session.module_functions",
    "get_all_providers": "session.module_functions",
    "get_available_providers": "session.module_functions",
    "get_build_info": "session.module_functions",
    "get_device": "session.module_functions",
    "get_ep_devices": "session.ep_devices",
    "get_version_string": "session.module_functions",
    "has_collective_ops": "session.module_functions",
    "preload_dlls": "session.module_functions",
    "print_debug_info": "session.module_functions",
    "register_execution_provider_library": "session.module_functions",
    "set_default_logger_severity": "session.log",
    "set_default_logger_verbosity": "session.log",
    "set_global_thread_pool_sizes": "session.module_functions",
    "set_seed": "session.module_functions",
    "unregister_execution_provider_library": "session.module_functions",
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
    from .session.collection_pause import collection_pause

    with collection_pause:
        value = getattr(importlib.import_module(f".{home}", __name__), _OTHER_NAMES.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
