"""A provider for the device layer without a device: it keeps what would be launched, and all contents are zeros."""

import threading
from types import SimpleNamespace

from ort_sdk.api import CPU_DEVICE, ExecutionProvider, OrtDevice, OrtMemoryInfo, ProviderHooks, TensorElementType, hookimpl
from ort_sdk.device import DeviceArray, DeviceContext, Memory, device_registry, fuse_neighbours

NAME = "RecordingExecutionProvider"
DEVICE = OrtDevice("recording", 0)


class RecordingLauncher:
    """Keeps launches.

    Args:
        device_class: that kernels are planned for.
        dialect: that they are to be compiled in.
    """

    alignment_bytes = 256

    def __init__(self, device_class, dialect):
        self.device_class, self.dialect = device_class, dialect
        self.launches = []
        self._lock = threading.Lock()

    def allocate(self, nbytes):
        return Memory(nbytes, object())

    def part(self, memory, offset_bytes, nbytes):
        return Memory(nbytes, memory)

    def upload(self, array, memory):
        assert array.nbytes <= memory.nbytes

    def download(self, memory, array):
        assert array.nbytes <= memory.nbytes
        array[...] = 0

    def launch(self, launch):
        self.bind([launch], {}, [])

    def bind(self, launches, places, moving):
        with self._lock:
            self.launches.extend(launches)
        return lambda: None

    def finish(self):
        pass


class _Transfer:
    def __init__(self, context):
        self._context = context

    def can_copy(self, source, target):
        return {source, target} == {CPU_DEVICE, DEVICE}

    def copy(self, array, source, target):
        if target == CPU_DEVICE:
            return self._context.download(array.node)
        element_type = TensorElementType.from_numpy_dtype(array.dtype)
        return DeviceArray(self._context, self._context.upload(array, element_type))


class _ExecutionProvider(ExecutionProvider):
    def __init__(self, context):
        super().__init__(NAME, DEVICE)
        self.context = context

    def describe(self, array):
        return (array.element_type, array.shape) if isinstance(array, DeviceArray) else super().describe(array)

    def fuse_steps(self, program):
        return fuse_neighbours(program, self.context)


def provider_of(launcher):
    """A plugin class whose sessions launch there."""
    context = DeviceContext(launcher)
    registry = device_registry(NAME, context)

    class RecordingProvider(ProviderHooks):
        name = NAME
        api_version = 1

        @hookimpl
        def get_supported_devices(self):
            return [DEVICE]

        @hookimpl
        def create_execution_provider(self, device, provider_options, session_options):
            return _ExecutionProvider(context)

        @hookimpl
        def get_kernel_registry(self, execution_provider):
            return registry

        @hookimpl
        def create_allocator(self, execution_provider, memory_info):
            def allocate(shape, element_type):
                return DeviceArray(context, context.new(tuple(shape), element_type))

            return SimpleNamespace(memory_info=OrtMemoryInfo(DEVICE), allocate=allocate, release=lambda _array: None)

        @hookimpl
        def get_data_transfer(self, execution_provider):
            return _Transfer(context)

    return RecordingProvider
