"""An external data loader for ``.safetensors`` files: a model's weights are found in them by name."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np

from ort_sdk.api import (
    Array,
    ExternalDataInfo,
    ExternalDataLoader,
    Fail,
    HostArray,
    OrtMemoryInfo,
    PluginHooks,
    TensorElementType,
    hookimpl,
)

__all__ = ["SafetensorsLoader", "SafetensorsPlugin", "read_header"]

SUFFIX = ".safetensors"
MAX_HEADER_BYTES = 100_000_000
ELEMENT_TYPES = {
    "F64": TensorElementType.DOUBLE,
    "F32": TensorElementType.FLOAT,
    "F16": TensorElementType.FLOAT16,
    "BF16": TensorElementType.BFLOAT16,
    "I64": TensorElementType.INT64,
    "I32": TensorElementType.INT32,
    "I16": TensorElementType.INT16,
    "I8": TensorElementType.INT8,
    "U8": TensorElementType.UINT8,
    "BOOL": TensorElementType.BOOL,
}


class SafetensorsLoader:
    """Loads the tensors of ``.safetensors`` files onto the host; the location needs neither offset nor length."""

    def can_load(self, memory_info: OrtMemoryInfo) -> bool:
        """Host memory only; the host copies on to other devices."""
        return memory_info.device.is_cpu

    def can_load_tensor(self, info: ExternalDataInfo) -> bool:
        """Files of that suffix only."""
        return info.location.endswith(SUFFIX) and info.content is not None

    def load_tensor(self, info: ExternalDataInfo, tensor: Array) -> None:
        """Fill an array with the tensor of its name.

        Raises:
            Fail: the file has no such tensor, one of another type or shape, or is damaged.
        """
        content = info.content
        if content is None:
            raise Fail(f"loading '{info.name}': '{info.location}' is no file")
        start, header = read_header(content, info.location)
        entry = header.get(info.name)
        if not isinstance(entry, dict):
            raise Fail(f"loading '{info.name}': '{info.location}' has no tensor of that name; it has {len(header)} others")
        found = (ELEMENT_TYPES.get(entry["dtype"]), tuple(entry["shape"]))
        if found != (info.element_type, info.shape):
            raise Fail(
                f"loading '{info.name}': the model declares {info.element_type.onnx_name}{list(info.shape)}, "
                f"'{info.location}' has {entry['dtype']}{entry['shape']}"
            )
        first, end = entry["data_offsets"]
        if not 0 <= first <= end <= len(content) - start or end - first != info.element_type.nbytes(math.prod(info.shape)):
            raise Fail(f"loading '{info.name}': bytes {first} to {end} of '{info.location}' are not the tensor's")
        tensor.reshape(-1).view(np.uint8)[...] = content[start + first : start + end]


def read_header(content: HostArray, location: str) -> tuple[int, dict[str, Any]]:
    """Directory of a ``.safetensors`` file.

    Args:
        content: the file's bytes; only the header is read.
        location: the file, for messages.

    Returns:
        First byte of the data, and tensor name → entry.

    Raises:
        Fail: there is no header of that form.
    """
    size = struct.unpack("<Q", content[:8].tobytes())[0] if len(content) >= 8 else MAX_HEADER_BYTES
    if size >= min(MAX_HEADER_BYTES, len(content)):
        raise Fail(f"'{location}' is no safetensors file: its first eight bytes do not say how long its header is")
    try:
        return 8 + size, json.loads(content[8 : 8 + size].tobytes())
    except ValueError as error:
        raise Fail(f"'{location}' is no safetensors file: its header is no JSON: {error}") from error


class SafetensorsPlugin(PluginHooks):
    """The plugin; an installed package names it as an entry point of the group ``ort_sdk.plugins``."""

    name = "safetensors"

    def __init__(self) -> None:
        self._loader = SafetensorsLoader()

    @hookimpl
    def get_external_data_loader(self) -> ExternalDataLoader:
        """The same loader for all sessions, which therefore share what it loads."""
        return self._loader
