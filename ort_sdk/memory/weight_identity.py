"""What a weight's packed forms, and its copies on devices, are found by: equal for equal weights."""

from __future__ import annotations

import numpy as np

from ort_sdk.api import Tensor, TensorElementType
from ort_sdk.api.data_classes import NamedTuple
from ort_sdk.formats.files.byte_source import ByteSource
from ort_sdk.formats.files.mapped_tensor import MappedTensor
from ort_sdk.graph.derived_tensor import DerivedTensor

__all__ = ["WeightIdentity", "weight_identity"]


class WeightIdentity(NamedTuple):
    """A weight by its type, its shape and where its contents come from.

    A range of a file is named by the file's state (device, inode, size, times), one of a buffer that its owner cannot write by
    its address, a derived weight by its transformation and its sources. All others are hashed. It is made once for each kernel or
    device that a weight goes to, and handed on; making it reads no byte of the weight.
    """

    tensor: Tensor
    byte_sources: tuple[ByteSource, ...] = ()
    """The files and buffers its bytes are in; empty if it holds them itself."""
    is_named: bool = False
    """Whether its identity in this process is known without reading it."""
    name: str = ""
    """Of a range, its offset and length; of a derived weight, its transformation."""
    derived_from: tuple[WeightIdentity, ...] = ()

    @property
    def type_and_shape(self) -> str:
        """Both as text."""
        return f"{self.tensor.element_type.onnx_name}{list(self.tensor.shape)}"

    def text(self, *, is_durable: bool = False) -> str:
        """Text that is equal for equal weights.

        Args:
            is_durable: whether it is for later processes; else it holds as long as the ``byte_sources`` live.
        """
        return f"{self.type_and_shape} of {self.contents(is_durable=is_durable)}"

    def contents(self, *, is_durable: bool = False) -> str:
        """The same without type and shape."""
        if self.derived_from:
            return f"{self.name}({'; '.join([source.text(is_durable=is_durable) for source in self.derived_from])})"
        if self.is_named and (not is_durable or self.byte_sources[0].is_file):
            return f"{self.byte_sources[0].identity} at {self.name}"
        return f"sha256:{_digest(self.tensor)}"


def weight_identity(tensor: Tensor) -> WeightIdentity:
    """The identity of a weight."""
    if isinstance(tensor, MappedTensor):
        source = tensor.source
        # The range says what its bytes are if nobody may write there, and no loader makes something else of them.
        is_named = tensor.is_plain and source.identity is not None and not source.is_writable
        return WeightIdentity(tensor, (source,), is_named, f"{tensor.offset}, {tensor.nbytes} bytes")
    if isinstance(tensor, DerivedTensor):
        sources = tuple([weight_identity(source) for source in tensor.sources])
        byte_sources = tuple([each for source in sources for each in source.byte_sources])
        is_named = bool(sources) and all(source.is_named for source in sources)
        return WeightIdentity(tensor, byte_sources, is_named, tensor.transformation, sources)
    return WeightIdentity(tensor)


def _digest(tensor: Tensor) -> str:
    import hashlib

    if tensor.element_type is TensorElementType.STRING:
        return hashlib.sha256(repr(tensor.numpy().tolist()).encode("utf-8", "surrogatepass")).hexdigest()
    return hashlib.sha256(np.ascontiguousarray(tensor.packed()).data).hexdigest()
