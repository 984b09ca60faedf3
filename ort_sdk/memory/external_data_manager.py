"""The external data loaders of a session: which one takes a weight, and what they loaded on the host."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import (
    Allocator,
    Array,
    ExternalDataInfo,
    ExternalDataLoader,
    Fail,
    HostArray,
    OrtMemoryInfo,
    Tensor,
    TensorElementType,
)
from ort_sdk.api.foreign_errors import raise_foreign
from ort_sdk.formats.files.byte_source import ByteSource
from ort_sdk.formats.files.loaded_tensor import LoadedTensor, host_buffer
from ort_sdk.formats.files.mapped_tensor import ExternalTensor

from .provider_memory import allocated

__all__ = ["ExternalDataManager", "loaded_key"]

HOST_MEMORY = OrtMemoryInfo()

_lock = threading.Lock()
_loaded: weakref.WeakValueDictionary[Hashable, HostArray] = weakref.WeakValueDictionary()
"""Host arrays that loaders filled from files; sessions share them."""


class ExternalDataManager:
    """Chooses loaders and calls them (ORT's ``ExternalDataLoaderManager``).

    The first loader that takes a tensor at all has it: straight into the planned memory if it can, else over the host.

    Args:
        loaders: those of plugins that are no providers, then the providers', each in order.
        owners: ``id`` of a loader → whose it is, for errors.
    """

    def __init__(self, loaders: Sequence[ExternalDataLoader], owners: Mapping[int, str] | None = None) -> None:
        self._loaders = tuple(loaders)
        self._owners = dict(owners or {})
        # What was loaded last is often read again at once: its contents name it, then it is packed.
        self._last: HostArray | None = None

    def host_source(self, info: ExternalDataInfo, file: ByteSource | None) -> Callable[[], HostArray] | None:
        """See ``ort_sdk.formats.files.loaded_tensor.ExternalLoaders``."""
        loader = self._choose(info, HOST_MEMORY)
        if loader is not None:
            return lambda: self._load_one(loader, info, file)
        if file is None and any(self._wants(loader, info) for loader in self._loaders):
            return lambda: _refuse_host(info)
        return None

    def direct_loader(self, tensor: Tensor, memory_info: OrtMemoryInfo) -> ExternalDataLoader | None:
        """The loader that can load a tensor straight into a kind of memory; None if it goes over the host."""
        element_type = tensor.element_type
        # Arrays of booleans must hold 0 and 1, and those of sub-byte types are not packed: neither need be true of the bytes.
        if not isinstance(tensor, ExternalTensor) or element_type is TensorElementType.BOOL or element_type.is_packed:
            return None
        return self._choose(tensor.info, memory_info)

    def load(
        self, loader: ExternalDataLoader, infos: Sequence[ExternalDataInfo], allocator: Allocator, owner: str
    ) -> list[Array]:
        """Load tensors into new memory of an allocator, which is of the provider ``owner``, all at once if the loader can.

        Raises:
            OutOfMemory: the device has not enough memory.
        """
        arrays = [allocated(allocator, owner, info.shape, info.element_type) for info in infos]
        self._fill(loader, infos, arrays)
        return arrays

    def load_on_host(self, tensors: Sequence[LoadedTensor]) -> list[HostArray]:
        """Elements of tensors that loaders take, those of one loader at once if it can."""
        batches: dict[int, tuple[ExternalDataLoader, list[LoadedTensor]]] = {}
        for tensor in tensors:
            loader = self._choose(tensor.info, HOST_MEMORY)
            if loader is None or tensor.is_loaded or _find(loader, tensor.info, tensor.source) is not None:
                continue
            if hasattr(loader, "load_tensors"):
                batches.setdefault(id(loader), (loader, []))[1].append(tensor)
        held = [self._load_batch(loader, batch) for loader, batch in batches.values()]
        arrays = [tensor.numpy() for tensor in tensors]
        del held
        self.forget()
        return arrays

    def forget(self) -> None:
        """Let go of what was kept in case it is read again."""
        self._last = None

    def _choose(self, info: ExternalDataInfo, memory_info: OrtMemoryInfo) -> ExternalDataLoader | None:
        for loader in self._loaders:
            if not self._wants(loader, info):
                continue
            if self._can_load(loader, memory_info):
                return loader
            if self._can_load(loader, HOST_MEMORY):
                return None
        return None

    def _load_one(self, loader: ExternalDataLoader, info: ExternalDataInfo, file: ByteSource | None) -> HostArray:
        found = _find(loader, info, file)
        if found is None:
            found = host_buffer(info)
            self._fill(loader, [info], [found])
            _keep(loader, info, file, found)
        self._last = found
        return found

    def _load_batch(self, loader: ExternalDataLoader, tensors: Sequence[LoadedTensor]) -> list[HostArray]:
        arrays = [host_buffer(tensor.info) for tensor in tensors]
        self._fill(loader, [tensor.info for tensor in tensors], arrays)
        for tensor, array in zip(tensors, arrays, strict=True):
            _keep(loader, tensor.info, tensor.source, array)
            tensor.adopt(array)
        return arrays

    def _wants(self, loader: Any, info: ExternalDataInfo) -> bool:
        can_load_tensor = getattr(loader, "can_load_tensor", None)
        try:
            return can_load_tensor is None or bool(can_load_tensor(info))
        except Exception as error:  # noqa: BLE001 - a loader may raise anything
            raise_foreign(error, f"raised in can_load_tensor of {self._label(loader)} for '{info.name}' ({info.location})")

    def _can_load(self, loader: ExternalDataLoader, memory_info: OrtMemoryInfo) -> bool:
        try:
            return bool(loader.can_load(memory_info))
        except Exception as error:  # noqa: BLE001 - a loader may raise anything
            raise_foreign(error, f"raised in can_load of {self._label(loader)} for {memory_info}")

    def _fill(self, loader: Any, infos: Sequence[ExternalDataInfo], arrays: Sequence[Array]) -> None:
        try:
            if hasattr(loader, "load_tensors"):
                loader.load_tensors(list(zip(infos, arrays, strict=True)))
                return
            for info, array in zip(infos, arrays, strict=True):
                loader.load_tensor(info, array)
        except Exception as error:  # noqa: BLE001 - a loader may raise anything
            names = ", ".join(f"'{info.name}' ({info.location})" for info in infos[:5])
            raise_foreign(error, f"while {self._label(loader)} loaded {len(infos)} external tensors: {names}")

    def _label(self, loader: Any) -> str:
        """A loader as messages name it."""
        owner = self._owners.get(id(loader))
        return f"{type(loader).__name__} of {owner}" if owner else type(loader).__name__


class _Same:
    """An object as a part of a key: equal to itself only."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def loaded_key(loader: ExternalDataLoader, info: ExternalDataInfo, file: ByteSource | None) -> Hashable:
    """What says that the same elements were loaded before; None if nothing can say it."""
    if file is None or not file.is_file:
        return None
    return (_Same(loader), file.identity, info.name, info.offset, info.element_type, info.shape)


def _find(loader: ExternalDataLoader, info: ExternalDataInfo, file: ByteSource | None) -> HostArray | None:
    key = loaded_key(loader, info, file)
    with _lock:
        return None if key is None else _loaded.get(key)


def _keep(loader: ExternalDataLoader, info: ExternalDataInfo, file: ByteSource | None, array: HostArray) -> None:
    """Make an array read-only and let other sessions find it."""
    if info.element_type is TensorElementType.BOOL:
        codes = array.view(np.uint8)
        np.minimum(codes, np.uint8(1), out=codes)
    array.flags.writeable = False
    key = loaded_key(loader, info, file)
    if key is not None:
        with _lock:
            _loaded[key] = array


def _refuse_host(info: ExternalDataInfo) -> HostArray:
    raise Fail(
        f"initializer '{info.name}' is read on the host, and its external data '{info.location}' is no file; the loaders that "
        "take it only load the memory of other devices"
    )
