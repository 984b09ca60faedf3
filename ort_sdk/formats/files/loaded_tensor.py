"""Constants whose elements an external data loader makes, wherever it gets them from."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Protocol

import numpy as np

from ort_sdk.api import ExternalDataInfo, HostArray
from ort_sdk.graph.tensor import pack_elements, unpack_elements

from .byte_source import ByteSource
from .mapped_tensor import ExternalTensor, MappedTensor

__all__ = ["ExternalLoaders", "LoadedTensor", "host_buffer"]


class ExternalLoaders(Protocol):
    """The external data loaders of a session, as far as reading a model needs them."""

    def host_source(self, info: ExternalDataInfo, file: ByteSource | None) -> Callable[[], HostArray] | None:
        """How to get a tensor's elements on the host; None if no loader takes it, so that it is read from its file.

        What is given returns an array as ``host_buffer`` makes it, filled and read-only; booleans are 0 and 1.
        """


def host_buffer(info: ExternalDataInfo) -> HostArray:
    """New memory for a loader to fill on the host: the tensor's shape and type, or packed bytes for sub-byte types."""
    if info.element_type.is_packed:
        return np.empty(info.length, dtype=np.uint8)
    return np.empty(info.shape, dtype=info.element_type.numpy_dtype)


class LoadedTensor(ExternalTensor):
    """A constant that a loader takes. It is loaded when it is read, and kept while it is referenced.

    Args:
        source: the file it is in, for packed weights saved there; empty if there is none.
        info: the range.
        prepacked: values of the ``prepacked_N`` entries, in order.
        load: gives the elements, see ``ExternalLoaders``.
    """

    __slots__ = ("_load", "_loaded", "_lock")

    is_plain = False

    def __init__(
        self, source: ByteSource, info: ExternalDataInfo, prepacked: tuple[str, ...], load: Callable[[], HostArray]
    ) -> None:
        super().__init__(source, info, prepacked)
        self._load = load
        self._loaded: weakref.ref[HostArray] | None = None
        self._lock = threading.Lock()

    @property
    def identity(self) -> Hashable:
        """None: only the loader knows what it will load."""
        return None

    def transient(self) -> MappedTensor:
        """The constant itself, which keeps nothing."""
        return self

    def packed(self) -> HostArray:
        """The bytes as ONNX packs them."""
        loaded = self._elements()
        return loaded if self.element_type.is_packed else pack_elements(loaded, self.element_type)

    def numpy(self) -> HostArray:
        """The elements, read-only."""
        loaded = self._elements()
        if not self.element_type.is_packed:
            return loaded
        array = unpack_elements(loaded, self.element_type, int(np.prod(self.shape, dtype=np.int64))).reshape(self.shape)
        array.flags.writeable = False
        return array

    @property
    def is_loaded(self) -> bool:
        """Whether the elements are loaded and referenced."""
        return self._loaded is not None and self._loaded() is not None

    def adopt(self, loaded: HostArray) -> None:
        """Take elements that were loaded together with others'."""
        self._loaded = weakref.ref(loaded)

    def _elements(self) -> HostArray:
        with self._lock:
            loaded = None if self._loaded is None else self._loaded()
            if loaded is None:
                loaded = self._load()
                self.adopt(loaded)
            return loaded
