"""A provider of one device whose Add writes into its first input where the caller wants the output there.

Two of its arrays may be in the same memory.
"""

from collections.abc import Sequence

import numpy as np

from ort_sdk.api import (
    API_VERSION,
    ExecutionProvider,
    KernelDef,
    KernelRegistry,
    OpKernel,
    OrtDevice,
    ProviderHooks,
    Slot,
    hookimpl,
    may_overwrite,
)

DEVICE = OrtDevice("in-place")


class DeviceArray:
    """An array of the device; ``storage`` is what it holds."""

    def __init__(self, storage: np.ndarray) -> None:
        self.storage = storage

    @property
    def shape(self) -> tuple[int, ...]:
        return self.storage.shape

    @property
    def dtype(self) -> np.dtype:
        return self.storage.dtype


class InPlaceAdd(OpKernel):
    """Adds to its first input's memory, if it may."""

    in_place = ((0, 0),)

    def compute(self, first, second):
        if may_overwrite(first):
            first.storage += second.storage
            return DeviceArray(first.storage)
        return DeviceArray(first.storage + second.storage)


class BoundInPlaceAdd(InPlaceAdd):
    """As what a program calls."""

    binds_moving_slots = True
    deterministic = True
    shape_inputs = ()

    def bind(self, inputs: Sequence[Slot | None], outputs: Sequence[Slot | None]):
        first, second = inputs
        (target,) = outputs
        return lambda: np.add(first.array.storage, second.array.storage, out=target.array.storage)


class InPlaceExecutionProvider(ExecutionProvider):
    """Compares memory if ``compares``, and objects otherwise."""

    compares = True

    def shares_memory(self, first, second, *, entirely=False):
        if not self.compares:
            return super().shares_memory(first, second, entirely=entirely)
        if entirely:
            return first.storage.ctypes.data == second.storage.ctypes.data
        return np.shares_memory(first.storage, second.storage)


class JoiningInPlaceExecutionProvider(InPlaceExecutionProvider):
    def join_calls(self, calls):
        def call():
            for each in calls:
                each()

        return [(len(calls), call)]


class Allocator:
    def __init__(self, memory_info):
        self.memory_info = memory_info

    def allocate(self, shape, element_type):
        return DeviceArray(np.empty(shape, element_type.numpy_dtype))

    def release(self, array):
        """Nothing to give back."""


class Transfer:
    def __init__(self):
        self.fills = 0

    def can_copy(self, source, target):
        return {source, target} <= {OrtDevice(), DEVICE} and DEVICE in (source, target)

    def copy(self, array, source, target):
        contents = (array if source.is_cpu else array.storage).copy()
        return contents if target.is_cpu else DeviceArray(contents)

    def copy_into(self, array, source, destination, target):
        self.fills += 1
        contents = array if source.is_cpu else array.storage
        (destination if target.is_cpu else destination.storage)[...] = contents


class InPlaceProvider(ProviderHooks):
    """Its hooks.

    Args:
        kernel: of Add.
        joins_calls: whether calls that follow each other in a program become one.
    """

    name = "InPlaceExecutionProvider"
    api_version = API_VERSION

    def __init__(self, kernel: type[InPlaceAdd], *, joins_calls: bool = False) -> None:
        self.transfer = Transfer()
        self._made = JoiningInPlaceExecutionProvider if joins_calls else InPlaceExecutionProvider
        self._registry = KernelRegistry(self.name)
        self._registry.register(KernelDef("Add", 14), lambda _info: kernel())

    @hookimpl
    def get_supported_devices(self):
        return [DEVICE]

    @hookimpl
    def create_execution_provider(self, device, provider_options, session_options):
        return self._made(self.name, device, provider_options)

    @hookimpl
    def get_kernel_registry(self, execution_provider):
        return self._registry

    @hookimpl
    def create_allocator(self, execution_provider, memory_info):
        return Allocator(memory_info) if memory_info.device == DEVICE else None

    @hookimpl
    def get_data_transfer(self, execution_provider):
        return self.transfer
