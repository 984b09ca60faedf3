"""ONNX's protobuf messages for reading, without the onnx package.

The descriptor is shipped as data and kept in a pool of its own, so that it never meets that of an installed onnx package
of another version. Importing onnx costs several times what this does, in time and in memory, and reading needs none of
the rest of it.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from ort_sdk.api.optional_packages import needs_package

__all__ = ["message_class", "newest_ir_version"]


@functools.cache
def _pool() -> Any:
    with needs_package("protobuf", "reading a model in ONNX format"):
        from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    pool.AddSerializedFile((Path(__file__).parent / "data" / "onnx.desc").read_bytes())
    return pool


@functools.cache
def message_class(name: str) -> Any:
    """Class of an ONNX message, ``ModelProto``."""
    pool = _pool()
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(pool.FindMessageTypeByName(f"onnx.{name}"))


@functools.cache
def newest_ir_version() -> int:
    """Newest IR version the descriptor describes."""
    values = _pool().FindEnumTypeByName("onnx.Version").values_by_name
    return int(values["IR_VERSION"].number)
