"""Exceptions and classes under the name of ONNX Runtime's extension module."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import (
    DeviceReset,
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoadCanceled,
    ModelLoaded,
    ModelRequiresCompilation,
    NoModel,
    NoSuchFile,
    NotFound,
    NotImplemented,
    RuntimeException,
)
from ort_sdk.session.calls.io_binding import IOBinding as SessionIOBinding
from ort_sdk.session.enums import (
    ArenaExtendStrategy,
    OrtAllocatorType,
    OrtCompileApiFlags,
    OrtCompiledModelCompatibility,
    OrtDeviceEpIncompatibilityReason,
    OrtDeviceMemoryType,
    OrtHardwareDeviceType,
    OrtMemoryInfoDeviceType,
    OrtMemType,
    OrtSparseFormat,
)
from ort_sdk.session.inference_session import InferenceSession
from ort_sdk.session.logging import set_default_logger_severity, set_default_logger_verbosity
from ort_sdk.session.model_compiler import AdapterFormat, LoraAdapter, ModelCompiler, OrtExternalInitializerInfo
from ort_sdk.session.option_enums import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, OrtExecutionProviderDevicePolicy
from ort_sdk.session.options.session_options import RunOptions, SessionOptions
from ort_sdk.session.values.ep_assignment import OrtEpAssignedNode, OrtEpAssignedSubgraph
from ort_sdk.session.values.ep_devices import OrtEpDevice, OrtHardwareDevice, OrtSyncStream, get_ep_devices, get_hardware_devices
from ort_sdk.session.values.memory_info import OrtArenaCfg, OrtMemoryInfo
from ort_sdk.session.values.node_arg import ModelMetadata, NodeArg
from ort_sdk.session.values.ort_device import OrtDevice
from ort_sdk.session.values.ort_value import OrtValue, OrtValueVector, copy_tensors
from ort_sdk.session.values.sparse_tensor import SparseBlockSparseView, SparseCooView, SparseCsrView, SparseTensor

from .module_functions import (
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
    register_execution_provider_library,
    set_global_thread_pool_sizes,
    set_seed,
    unregister_execution_provider_library,
)

__all__ = [
    "AdapterFormat",
    "ArenaExtendStrategy",
    "DeviceReset",
    "EPFail",
    "EngineError",
    "ExecutionMode",
    "ExecutionOrder",
    "Fail",
    "GraphOptimizationLevel",
    "InferenceSession",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "LoraAdapter",
    "ModelCompiler",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelMetadata",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NodeArg",
    "NotFound",
    "NotImplemented",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtCompileApiFlags",
    "OrtCompiledModelCompatibility",
    "OrtDevice",
    "OrtDeviceEpIncompatibilityReason",
    "OrtDeviceMemoryType",
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
    "OrtValueVector",
    "RunOptions",
    "RuntimeException",
    "SessionIOBinding",
    "SessionOptions",
    "SparseBlockSparseView",
    "SparseCooView",
    "SparseCsrView",
    "SparseTensor",
    "copy_tensors",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_default_session_options",
    "get_device",
    "get_ep_devices",
    "get_hardware_devices",
    "get_version_string",
    "has_collective_ops",
    "is_dlpack_uint8_tensor",
    "register_execution_provider_library",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
    "unregister_execution_provider_library",
]


def get_default_session_options() -> SessionOptions:
    """New options with every default."""
    return SessionOptions()


def is_dlpack_uint8_tensor(tensor: Any) -> bool:
    """Whether an object with ``__dlpack__`` is a tensor of bytes, which may stand for booleans."""
    import numpy as np

    return bool(np.from_dlpack(tensor).dtype == np.uint8)
