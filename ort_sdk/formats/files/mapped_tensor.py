"""Constant tensors that are ranges of a file or of a caller's buffer."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from ort_sdk.api import ExternalDataInfo, HostArray, TensorElementType
from ort_sdk.graph.tensor import unpack_elements

from .byte_source import ByteSource

__all__ = ["ExternalTensor", "MappedTensor"]

SHORT_BYTES = 1 << 14
"""Few enough elements that a copy takes less memory than the pages they are in, which may be megabytes large."""


class MappedTensor:
    """A constant whose bytes stay where they are until someone reads them.

    Args:
        source: holds the bytes.
        offset: first byte in it; the range was checked to be inside.
        element_type: not strings.
        shape: dimensions in elements.
        nbytes: bytes in ONNX's packed form.
    """

    __slots__ = ("_array", "element_type", "nbytes", "offset", "shape", "source")

    is_plain = True
    """Whether the elements are the bytes of the range, not what a loader makes of them."""

    def __init__(
        self, source: ByteSource, offset: int, element_type: TensorElementType, shape: tuple[int, ...], nbytes: int
    ) -> None:
        self.source = source
        self.offset = offset
        self.element_type = element_type
        self.shape = shape
        self.nbytes = nbytes
        self._array: HostArray | None = None

    @property
    def identity(self) -> Hashable:
        """Equal for tensors over the same bytes: source, offset, length."""
        return (self.source.identity, self.offset, self.nbytes)

    def transient(self) -> MappedTensor:
        """The same constant for one use: what it makes to be read goes with it."""
        return MappedTensor(self.source, self.offset, self.element_type, self.shape, self.nbytes)

    @property
    def model_file_bytes(self) -> int:
        return len(self.source) if self.source.is_file else 0

    def packed(self) -> HostArray:
        """The bytes as ONNX packs them: a view, whatever its alignment; booleans as 0 and 1."""
        if self.element_type is TensorElementType.BOOL:
            return self.numpy().reshape(-1).view(np.uint8)
        return self.source.range(self.offset, self.nbytes)

    def numpy(self) -> HostArray:
        """The elements, read-only: a view if its address is aligned for the type, else a copy shared by all users of the bytes.

        Few elements in a model's file are a copy, too: reading them there keeps the file around them in memory.
        Sub-byte elements are unpacked anew at each call, so that memory never has both forms.
        """
        if self._array is not None:
            return self._array
        if self.element_type.is_packed:
            return self._unpacked()
        self._array = self._boolean() if self.element_type is TensorElementType.BOOL else self._viewed()
        return self._array

    def _viewed(self) -> HostArray:
        dtype = self.element_type.numpy_dtype
        if self.nbytes <= SHORT_BYTES and self.model_file_bytes:
            data = self.source.copy(self.offset, self.nbytes)
        else:
            data = self.source.aligned(self.offset, self.nbytes, dtype.alignment)
        return data.view(dtype).reshape(self.shape)

    def _boolean(self) -> HostArray:
        data = self.source.range(self.offset, self.nbytes)
        if data.size and data.max() > 1:
            data = np.minimum(data, np.uint8(1))
            data.flags.writeable = False
        return data.view(np.bool_).reshape(self.shape)

    def _unpacked(self) -> HostArray:
        elements = int(np.prod(self.shape, dtype=np.int64))
        array = unpack_elements(self.source.range(self.offset, self.nbytes), self.element_type, elements).reshape(self.shape)
        array.flags.writeable = False
        return array

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.element_type.onnx_name}, {list(self.shape)}, {self.nbytes} bytes at {self.offset})"


class ExternalTensor(MappedTensor):
    """A constant in an external data file.

    Args:
        source: the file's map, or the buffer given instead.
        info: the range.
        prepacked: values of the ``prepacked_N`` entries, in order.
    """

    __slots__ = ("info", "prepacked")

    def __init__(self, source: ByteSource, info: ExternalDataInfo, prepacked: tuple[str, ...] = ()) -> None:
        super().__init__(source, info.offset, info.element_type, info.shape, info.length)
        self.info = info
        self.prepacked = prepacked

    @property
    def model_file_bytes(self) -> int:
        return 0
