"""Texts that are equal for equal weights: what packed forms and device copies are found by."""

from __future__ import annotations

import numpy as np

from ort_sdk.api import Tensor, TensorElementType
from ort_sdk.formats.files.byte_source import ByteSource
from ort_sdk.formats.files.mapped_tensor import ExternalTensor, MappedTensor
from ort_sdk.graph.derived_tensor import DerivedTensor

__all__ = ["byte_sources", "has_name", "source_identity", "type_and_shape"]


def source_identity(tensor: Tensor, *, is_durable: bool = False) -> str:
    """Text that names a weight's contents, type and shape.

    A range of a file is named by the file's state (device, inode, size, times) without reading it, one of a buffer that its
    owner cannot write by its place in memory, a derived weight by its transformation and its sources. All others are hashed.

    Args:
        tensor: the weight.
        is_durable: whether the text is for later processes; else it holds as long as the weight's ``byte_sources`` live.
    """
    return f"{type_and_shape(tensor)} of {_contents(tensor, is_durable)}"


def has_name(tensor: Tensor) -> bool:
    """Whether a weight's identity in this process is known without reading it."""
    if isinstance(tensor, DerivedTensor):
        return bool(tensor.sources) and all(has_name(source) for source in tensor.sources)
    return isinstance(tensor, MappedTensor) and _is_named(tensor, False)


def type_and_shape(tensor: Tensor) -> str:
    """Both as text."""
    return f"{tensor.element_type.onnx_name}{list(tensor.shape)}"


def byte_sources(tensor: Tensor) -> tuple[ByteSource, ...]:
    """The files and buffers a weight's bytes are in; empty if it holds them itself."""
    if isinstance(tensor, MappedTensor):
        return (tensor.source,)
    if isinstance(tensor, DerivedTensor):
        return tuple(source for inner in tensor.sources for source in byte_sources(inner))
    return ()


def _contents(tensor: Tensor, is_durable: bool) -> str:
    if isinstance(tensor, DerivedTensor) and tensor.sources:
        sources = [source_identity(source, is_durable=is_durable) for source in tensor.sources]
        return f"{tensor.transformation}({'; '.join(sources)})"
    if isinstance(tensor, MappedTensor) and _is_named(tensor, is_durable):
        return f"{tensor.source.identity} at {tensor.offset}, {tensor.nbytes} bytes"
    return f"sha256:{_digest(tensor)}"


def _is_named(tensor: MappedTensor, is_durable: bool) -> bool:
    """Whether the place of a weight's bytes says what they are."""
    source = tensor.source
    if source.identity is None or source.is_writable or (isinstance(tensor, ExternalTensor) and not tensor.is_plain):
        return False
    return not is_durable or source.is_file


def _digest(tensor: Tensor) -> str:
    import hashlib

    if tensor.element_type is TensorElementType.STRING:
        return hashlib.sha256(repr(tensor.numpy().tolist()).encode("utf-8", "surrogatepass")).hexdigest()
    return hashlib.sha256(np.ascontiguousarray(tensor.packed()).data).hexdigest()
