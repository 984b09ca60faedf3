"""Constants placed on the devices they are read on. The same bytes on the same device exist once in the process."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable, Iterable, Mapping, Sequence

from ort_sdk.api import (
    CPU_DEVICE,
    Allocator,
    Array,
    ExternalDataLoader,
    HostArray,
    MemoryAccount,
    MemoryUse,
    OrtDevice,
    OrtMemoryInfo,
    Tensor,
)
from ort_sdk.api.data_classes import dataclass
from ort_sdk.formats.files.byte_source import ByteSource
from ort_sdk.formats.files.loaded_tensor import LoadedTensor
from ort_sdk.formats.files.mapped_tensor import ExternalTensor, MappedTensor
from ort_sdk.graph.derived_tensor import DerivedTensor, StreamedTensor

from .data_transfer_manager import DataTransferManager
from .external_data_manager import ExternalDataManager, loaded_key
from .provider_memory import allocated, bytes_of
from .weight_identity import WeightIdentity, weight_identity

__all__ = ["DeviceMemory", "InitializerPlacement"]


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Where a session's weights for one device go."""

    owner: Hashable
    """The provider's registration: only its sessions share its arrays."""
    name: str
    """The provider's."""
    memory_info: OrtMemoryInfo
    allocator: Allocator | None
    """None: loaders cannot fill this memory, it is copied to."""
    account: MemoryAccount
    """Counts the session's weights, those that it shares with others among them."""


class _PlacedWeight:
    """One weight on one device."""

    __slots__ = ("__weakref__", "array", "sources")

    def __init__(self, array: Array, sources: tuple[ByteSource, ...]) -> None:
        self.array = array
        # Its key may be an address; nothing else may be allocated there meanwhile.
        self.sources = tuple(source for source in sources if not source.is_file)


_weights: weakref.WeakValueDictionary[Hashable, _PlacedWeight] = weakref.WeakValueDictionary()
_device_locks: dict[OrtDevice, threading.Lock] = {}


class InitializerPlacement:
    """The constants of one session by tensor and device.

    On the host they are views of their source, taken when they are first used. On other devices they are put at session
    creation, unless another session has them there already.

    Args:
        transfers: copies to other devices.
        external_data: loads external weights that a loader takes.
        memories: device → its memory.
    """

    def __init__(
        self, transfers: DataTransferManager, external_data: ExternalDataManager, memories: Mapping[OrtDevice, DeviceMemory]
    ) -> None:
        self._transfers = transfers
        self._external_data = external_data
        self._memories = memories
        self._placed: dict[tuple[int, OrtDevice], tuple[Tensor, Array]] = {}
        self._wanted: dict[tuple[int, OrtDevice], Tensor] = {}
        self._held: list[_PlacedWeight] = []
        self._counted: set[Hashable] = set()
        """Keys of the weights on devices that the accounts have."""

    def want(self, constants: Iterable[tuple[Tensor, OrtDevice]]) -> None:
        """Say which constants will be asked for."""
        for tensor, device in constants:
            if not device.is_cpu or isinstance(tensor, LoadedTensor):
                self._wanted[id(tensor), device] = tensor

    def finish(self) -> None:
        """Place what is wanted and cannot wait for the first run: all that is on other devices, or that a loader takes."""
        by_device: dict[OrtDevice, list[Tensor]] = {}
        for (_, device), tensor in self._wanted.items():
            by_device.setdefault(device, []).append(tensor)
        self._wanted.clear()
        for device, tensors in by_device.items():
            if device.is_cpu:
                self._load_on_host([tensor for tensor in tensors if isinstance(tensor, LoadedTensor)], device)
            else:
                with _device_lock(device):
                    self._place_on_device(tensors, device)
        self._external_data.forget()

    def place(self, tensor: Tensor, device: OrtDevice) -> Array:
        """The tensor's elements on a device; the same array each time it is asked."""
        key = (id(tensor), device)
        found = self._placed.get(key)
        if found is None:
            if device.is_cpu:
                found = self._placed[key] = (tensor, self._host_array(tensor))
            else:
                with _device_lock(device):
                    self._place_on_device([tensor], device)
                found = self._placed[key]
        return found[1]

    def _host_array(self, tensor: Tensor) -> HostArray:
        """The tensor's own array; a derived one's is computed once for all sessions that derive it from the same bytes."""
        identity = weight_identity(tensor) if isinstance(tensor, DerivedTensor) else None
        if identity is None or not identity.is_named:
            return tensor.numpy()
        key = (CPU_DEVICE, identity.text())
        with _device_lock(CPU_DEVICE):
            weight = _weights.get(key)
            if weight is None:
                weight = _weights[key] = _PlacedWeight(tensor.numpy(), identity.byte_sources)
        self._held.append(weight)
        array: HostArray = weight.array
        return array

    def _load_on_host(self, tensors: list[LoadedTensor], device: OrtDevice) -> None:
        for tensor, array in zip(tensors, self._external_data.load_on_host(tensors), strict=True):
            self._placed[id(tensor), device] = (tensor, array)

    def _place_on_device(self, tensors: list[Tensor], device: OrtDevice) -> None:
        memory = self._memories[device]
        batches: dict[int, tuple[ExternalDataLoader, dict[Hashable, list[ExternalTensor]]]] = {}
        for tensor in tensors:
            loader = None if memory.allocator is None else self._external_data.direct_loader(tensor, memory.memory_info)
            identity = weight_identity(tensor)
            key: Hashable = (memory.owner, device, _contents(identity, loader))
            self._count(key, tensor, memory.account)
            shared = _weights.get(key)
            if shared is not None:
                self._take(tensor, device, shared)
            elif loader is not None and isinstance(tensor, ExternalTensor):
                batches.setdefault(id(loader), (loader, {}))[1].setdefault(key, []).append(tensor)
            else:
                array = self._copied(tensor, device, memory.allocator)
                self._add(key, [tensor], device, _PlacedWeight(array, identity.byte_sources))
        if memory.allocator is not None:
            for loader, wanted in batches.values():
                infos = [same[0].info for same in wanted.values()]
                arrays = self._external_data.load(loader, infos, memory.allocator, memory.name)
                for (key, same), array in zip(wanted.items(), arrays, strict=True):
                    self._add(key, same, device, _PlacedWeight(array, (same[0].source,)))

    def _count(self, key: Hashable, tensor: Tensor, account: MemoryAccount) -> None:
        """Count a weight once.

        Raises:
            OutOfMemory: the session would hold more of the device than its limit.
        """
        if key not in self._counted:
            nbytes = bytes_of(tensor.shape, tensor.element_type)
            account.take(MemoryUse.WEIGHTS, nbytes, f"an initializer of {tensor.element_type.name}{list(tensor.shape)}")
            self._counted.add(key)

    def _copied(self, tensor: Tensor, device: OrtDevice, allocator: Allocator | None) -> Array:
        """The tensor on a device: piece by piece if it is computed so and the device's transfer can take that."""
        if allocator is not None and isinstance(tensor, StreamedTensor) and self._transfers.can_stream(device):
            array = allocated(allocator, self._memories[device].name, tensor.shape, tensor.element_type)
            self._transfers.stream_into(tensor.pieces(), array, device)
            return array
        return self._transfers.copy(_host_elements(tensor), CPU_DEVICE, device)

    def _add(self, key: Hashable, tensors: Sequence[Tensor], device: OrtDevice, weight: _PlacedWeight) -> None:
        _weights[key] = weight
        for tensor in tensors:
            self._take(tensor, device, weight)

    def _take(self, tensor: Tensor, device: OrtDevice, weight: _PlacedWeight) -> None:
        self._held.append(weight)
        self._placed[id(tensor), device] = (tensor, weight.array)


def _device_lock(device: OrtDevice) -> threading.Lock:
    """Held while weights are put on a device, so that two sessions do not both put the same one."""
    return _device_locks.setdefault(device, threading.Lock())


def _contents(identity: WeightIdentity, loader: ExternalDataLoader | None) -> Hashable:
    """What a tensor's array on a device is found by: its contents, or what is loaded from where."""
    tensor = identity.tensor
    if loader is None or not isinstance(tensor, LoadedTensor):
        return identity.text()
    # Nothing but the loader knows what it loads. A key that equals no other is not found again.
    return loaded_key(loader, tensor.info, tensor.source) or object()


def _host_elements(tensor: Tensor) -> HostArray:
    # What the tensor makes to be read, an aligned copy for one, is not needed once it is copied.
    return (tensor.transient() if isinstance(tensor, MappedTensor) else tensor).numpy()
