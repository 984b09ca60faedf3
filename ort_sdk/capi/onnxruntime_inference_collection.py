"""The classes of onnxruntime's module of this name."""

from __future__ import annotations

from ort_sdk.session.calls.io_binding import IOBinding
from ort_sdk.session.enums import OrtDeviceVendorId
from ort_sdk.session.inference_session import InferenceSession
from ort_sdk.session.inference_session import InferenceSession as Session
from ort_sdk.session.model_compiler import AdapterFormat, ModelCompiler
from ort_sdk.session.values.ort_device import OrtDevice
from ort_sdk.session.values.ort_value import OrtValue, copy_tensors
from ort_sdk.session.values.sparse_tensor import SparseTensor

__all__ = [
    "AdapterFormat",
    "IOBinding",
    "InferenceSession",
    "ModelCompiler",
    "OrtDevice",
    "OrtDeviceVendorId",
    "OrtValue",
    "Session",
    "SparseTensor",
    "copy_tensors",
    "get_ort_device_type",
]


def get_ort_device_type(device_type: str) -> int:
    """ONNX Runtime's code of a device type.

    Raises:
        Fail: no such type.
    """
    return OrtDevice.make(device_type, 0).device_type()
