"""Reads and writes one device's memory: for a session, or with no session at all."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import CPU_DEVICE, Array, Fail, HostArray, OrtDevice, TensorElementType, element_type_of
from ort_sdk.api.foreign_errors import raise_foreign
from ort_sdk.memory import DataTransferManager
from ort_sdk.memory.provider_memory import allocated, described
from ort_sdk.plugins import ProviderHandle, plugin_manager

from .opened import SessionProvider, data_transfers, open_provider, run_scope_of

__all__ = ["DeviceAccess", "copy_between", "device_memory"]


class DeviceAccess:
    """The memory of one device. Keeps the provider, its allocator and its transfer alive.

    Args:
        device: the device.
        provider: a provider on it; None for host memory.
    """

    __slots__ = ("_transfers", "device", "provider")

    def __init__(self, device: OrtDevice, provider: SessionProvider | None) -> None:
        self.device = device
        self.provider = provider
        self._transfers = DataTransferManager([]) if provider is None else data_transfers([provider])

    def describe(self, array: Array) -> tuple[TensorElementType, tuple[int, ...]]:
        """Element type and shape of an array on the device."""
        if self.provider is None:
            return element_type_of(array), tuple(array.shape)
        return described(self.provider.execution_provider, array)

    def is_same(self, first: Array, second: Array) -> bool:
        """Whether two arrays on the device are the same elements in the same memory."""
        if self.provider is None or first is second:
            return first is second
        execution_provider = self.provider.execution_provider
        if described(execution_provider, first) != described(execution_provider, second):
            return False
        try:
            return execution_provider.shares_memory(first, second, entirely=True)
        except Exception as error:  # noqa: BLE001 - a provider may raise anything
            raise_foreign(error, f"raised in shares_memory of {self.provider.name}")

    def wrap(self, address: int, shape: tuple[int, ...], element_type: TensorElementType) -> Array:
        """An array of memory on the device, dense and row by row; whoever gave the address keeps it alive.

        Raises:
            NotImplemented: the provider makes no arrays of memory at an address.
        """
        if self.provider is None:
            return _host_memory(address, shape, element_type.numpy_dtype)
        try:
            return self.provider.execution_provider.wrap_memory(address, shape, element_type, None)
        except Exception as error:  # noqa: BLE001 - a provider may raise anything
            raise_foreign(error, f"while {self.provider.name} wrapped memory at {address:#x} on {self.device}")

    def to_host(self, array: Array) -> Any:
        """The contents in host memory; the array itself if it is there already."""
        return self._copy(array, self.device, CPU_DEVICE)

    def all_to_host(self, arrays: Sequence[Array]) -> list[Any]:
        """The contents of arrays in host memory, after one wait where the provider can do that."""
        if self.provider is None:
            return list(arrays)
        with run_scope_of(self.provider, waits=False):
            return self._transfers.copy_all(arrays, self.device, [None] * len(arrays))

    def from_host(self, array: HostArray) -> Array:
        """The contents in the device's memory; the array itself if the device is the host."""
        return self._copy(array, CPU_DEVICE, self.device)

    def _copy(self, array: Array, source: OrtDevice, target: OrtDevice) -> Any:
        if self.provider is None:
            return array
        with run_scope_of(self.provider, waits=not target.is_cpu):
            return self._transfers.copy(array, source, target)

    def fill(self, destination: Array, contents: Array, source: OrtDevice) -> bool:
        """Overwrite an array on the device with one on the host or on the same device; False if its provider cannot."""
        if self.provider is None:
            destination[...] = contents
            return True
        with run_scope_of(self.provider):
            return self._transfers.copy_into(contents, source, destination, self.device)

    def allocate(self, shape: Sequence[int], element_type: TensorElementType) -> Array:
        """A new array with undefined contents.

        Raises:
            Fail: the provider allocates nothing.
        """
        if self.provider is None:
            return _allocate_on_host(shape, element_type)
        if self.provider.allocator is None:
            raise Fail(f"{self.provider.name} offers no allocator for {self.device}; make the value from a NumPy array instead")
        return allocated(self.provider.allocator, self.provider.name, shape, element_type)


def _host_memory(address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if not nbytes:
        return np.empty(shape, dtype)
    memory = (ctypes.c_uint8 * nbytes).from_address(address)
    return np.frombuffer(memoryview(memory), dtype=dtype).reshape(shape)


def _allocate_on_host(shape: Sequence[int], element_type: TensorElementType) -> HostArray:
    dtype = element_type.numpy_dtype
    return np.full(tuple(shape), "", dtype) if dtype.hasobject else np.empty(tuple(shape), dtype)


_HOST = DeviceAccess(CPU_DEVICE, None)
_opened: dict[OrtDevice, tuple[ProviderHandle, DeviceAccess]] = {}
_lock = threading.Lock()


def device_memory(device: OrtDevice) -> DeviceAccess:
    """Access to a device outside of any session, through the first usable provider that has it.

    Raises:
        Fail: no provider has it.
    """
    if device.is_cpu:
        return _HOST
    handle = next((found for found in plugin_manager().available_providers() if device in found.devices), None)
    if handle is None:
        raise Fail(f"Can't allocate memory on the device {device}: no installed provider has it")
    with _lock:
        known = _opened.get(device)
        if known is None or known[0] is not handle:
            provider = open_provider(handle, {"device_id": str(device.index)}, {})
            known = _opened[device] = (handle, DeviceAccess(device, provider))
        return known[1]


def copy_between(array: Array, source: DeviceAccess, target: DeviceAccess) -> Any:
    """An array on another device; the array itself if the two are one device."""
    return array if source.device == target.device else target.from_host(source.to_host(array))
