"""Providers with one fault each, through the kit. Not collected by itself: ``test_broken_providers.py`` runs it.

All derive from the provider of ``examples/third_party_provider``.
"""

import contextlib
import sys
import threading
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "third_party_provider" / "src"))

from ort_sdk_example_npu import kernels
from ort_sdk_example_npu.npu import NPU, NpuAllocator, NpuArray, NpuDataTransfer
from ort_sdk_example_npu.plugin import ExampleProvider

from ort_sdk.api import (
    CPU_DEVICE,
    ExecutionProvider,
    InvalidArgument,
    KernelRegistry,
    OpKernel,
    PrePackedWeights,
    hookimpl,
)
from ort_sdk.testing import ProviderConformance


class Suite(ProviderConformance):
    def read_back(self, tensor):
        return tensor.memory.copy()


class FileLoader:
    def can_load(self, memory_info):
        return memory_info.device == NPU

    def load_tensor(self, info, tensor):
        data = np.fromfile(info.path, np.uint8, info.length, offset=info.offset)
        if data.nbytes != info.length:
            raise InvalidArgument(f"'{info.name}': {info.length} bytes wanted at {info.offset}, {data.nbytes} are there")
        tensor.memory[...] = data.view(tensor.dtype).reshape(tensor.shape)


class WithLoader(ExampleProvider):
    loader = FileLoader()

    @hookimpl
    def get_external_data_loader(self, execution_provider):
        return self.loader


class TestSound(Suite):
    plugin = WithLoader


def with_transfer(transfer):
    class Provider(ExampleProvider):
        @hookimpl
        def get_data_transfer(self, execution_provider):
            return transfer()

    return Provider


class AliasingUpload(NpuDataTransfer):
    def copy(self, array, source, target):
        return (
            super().copy(array, source, target) if target.is_cpu else NpuArray(np.ascontiguousarray(array).reshape(array.shape))
        )


class TestAliasingUpload(Suite):
    plugin = with_transfer(AliasingUpload)


class AliasingDownload(NpuDataTransfer):
    def copy(self, array, source, target):
        return array.memory if target.is_cpu else super().copy(array, source, target)


class TestAliasingDownload(Suite):
    plugin = with_transfer(AliasingDownload)


class Unsynchronised(NpuDataTransfer):
    """Starts a copy to the host and does not wait for it."""

    def copy(self, array, source, target):
        if not target.is_cpu:
            return super().copy(array, source, target)
        host = np.zeros(array.shape, array.dtype)
        threading.Timer(0.01, lambda: np.copyto(host, array.memory)).start()
        return host


class TestUnsynchronised(Suite):
    plugin = with_transfer(Unsynchronised)


class Boastful(NpuDataTransfer):
    def can_copy(self, source, target):
        return True


class TestBoastful(Suite):
    plugin = with_transfer(Boastful)


class BindingWhatIsThere(NpuDataTransfer):
    """Looks into the slots when it is bound, and not when it is called."""

    def bind_copy(self, source, target):
        read, written = source.array, target.array

        def copy():
            if isinstance(read, NpuArray):
                written[...] = read.memory
            elif written is not None:
                written.memory[...] = read

        return copy


class TestBindingWhatIsThere(Suite):
    plugin = with_transfer(BindingWhatIsThere)


class Truncating(NpuDataTransfer):
    """Moves whole blocks of eight elements only."""

    def copy(self, array, source, target):
        result = super().copy(array, source, target)
        flat = (result if target.is_cpu else result.memory).reshape(-1)
        flat[flat.size // 8 * 8 :] = np.zeros((), flat.dtype)
        return result


class TestTruncating(Suite):
    plugin = with_transfer(Truncating)


class WrongSignature(ExampleProvider):
    @hookimpl
    def create_allocator(self, memory_info):
        return NpuAllocator(memory_info)


class TestWrongSignature(Suite):
    plugin = WrongSignature


class Unmarked(ExampleProvider):
    def get_kernel_registry(self, execution_provider):
        return kernels.registry


class TestUnmarked(Suite):
    plugin = Unmarked


class OneArrayForAll(NpuAllocator):
    """Hands out the same memory again and again."""

    buffer = np.zeros(1 << 20, np.uint8)

    def allocate(self, shape, element_type):
        array = super().allocate(shape, element_type)
        nbytes = array.memory.nbytes
        return NpuArray(self.buffer[:nbytes].view(array.dtype).reshape(shape))


class Limitless(NpuAllocator):
    """Says yes to any size, and gives less."""

    def allocate(self, shape, element_type):
        try:
            return super().allocate(shape, element_type)
        except MemoryError:
            return NpuArray(np.broadcast_to(np.zeros((), element_type.numpy_dtype), shape))


class Rounding(NpuAllocator):
    """Gives at least one element."""

    def allocate(self, shape, element_type):
        return super().allocate(tuple(max(size, 1) for size in shape), element_type)


def with_allocator(allocator):
    class Provider(ExampleProvider):
        @hookimpl
        def create_allocator(self, execution_provider, memory_info):
            return allocator(memory_info)

    return Provider


class WithBlocks(NpuAllocator):
    """Blocks of the device's memory, as they should be."""

    block_alignment_bytes = 64

    def allocate_block(self, nbytes):
        if nbytes > 1 << 30:
            raise MemoryError(f"{nbytes} bytes asked")
        return [np.zeros(nbytes, np.uint8)]

    def grow_block(self, block, nbytes):
        return False

    def view(self, block, offset_bytes, shape, element_type):
        dtype = element_type.numpy_dtype
        nbytes = int(np.prod(shape)) * dtype.itemsize
        return NpuArray(block[0][offset_bytes : offset_bytes + nbytes].view(dtype).reshape(shape))


class TestSoundBlocks(Suite):
    plugin = with_allocator(WithBlocks)


class OverlappingViews(WithBlocks):
    """Takes no heed of where a view begins."""

    def view(self, block, offset_bytes, shape, element_type):
        return super().view(block, 0, shape, element_type)


class TestOverlappingViews(Suite):
    plugin = with_allocator(OverlappingViews)


class MovingBlock(WithBlocks):
    """Grows by taking other memory, and says that its views are as they were."""

    def grow_block(self, block, nbytes):
        block[0].fill(0xFF)
        block[0] = np.zeros(nbytes, np.uint8)
        return True


class TestMovingBlock(Suite):
    plugin = with_allocator(MovingBlock)


class TestOneArrayForAll(Suite):
    plugin = with_allocator(OneArrayForAll)


class TestLimitless(Suite):
    plugin = with_allocator(Limitless)


class TestRounding(Suite):
    plugin = with_allocator(Rounding)


def with_kernel(op_type, factory, **options):
    """The example's provider with one kernel more, which comes first."""
    registry = KernelRegistry(ExampleProvider.name)
    registry.kernel(op_type, 13, kernels.FLOAT, **options)(factory)
    registry.add_source(kernels.registry.candidates, kernels.registry.operators())

    class Provider(ExampleProvider):
        @hookimpl
        def get_kernel_registry(self, execution_provider):
            return registry

    return Provider


class TestWrongResult(Suite):
    plugin = with_kernel("Abs", lambda info: lambda x: NpuArray(x.memory * np.float32(1.01)))


class TestWrongType(Suite):
    plugin = with_kernel("Abs", lambda info: lambda x: NpuArray(np.abs(x.memory).astype(np.float32)))


class TestUnreachable(Suite):
    plugin = with_kernel("Neg", lambda info: lambda x: x, when=lambda info: "never")


def remembering(info):
    known = []

    def compute(x):
        known.append(NpuArray(np.abs(x.memory)))
        return known[0]

    return compute


class TestRemembering(Suite):
    plugin = with_kernel("Abs", remembering)


def sharing_a_buffer(info):
    held = {}

    def compute(x):
        held["x"] = x.memory
        time.sleep(0.002)
        return NpuArray(np.abs(held["x"]))

    return compute


class TestSharingABuffer(Suite):
    plugin = with_kernel("Abs", sharing_a_buffer)


class BadlyPacked(OpKernel):
    """Adds what it packed twice."""

    packed = None

    def compute(self, a, b):
        return NpuArray(a.memory + (b.memory if self.packed is None else 2 * self.packed))

    def packing_identity(self, input_index):
        return "twice"

    def prepack(self, tensor, input_index, allocator):
        return PrePackedWeights((tensor.numpy().copy(),))

    def use_prepacked(self, weights, input_index):
        self.packed = weights.buffers[0]


class TestBadlyPacked(Suite):
    plugin = with_kernel("Add", lambda info: BadlyPacked(), end_version=14)


class TestOffsetIgnored(Suite):
    class plugin(WithLoader):
        class loader(FileLoader):
            def load_tensor(self, info, tensor):
                data = np.fromfile(info.path, np.uint8, info.length)
                tensor.memory[...] = np.resize(data, info.length).view(tensor.dtype).reshape(tensor.shape)

        loader = loader()


class TestNewRegistryEachTime(Suite):
    class plugin(ExampleProvider):
        @hookimpl
        def get_kernel_registry(self, execution_provider):
            registry = KernelRegistry(self.name)
            registry.add_source(kernels.registry.candidates, kernels.registry.operators())
            return registry


class Swallowing(ExecutionProvider):
    def run_scope(self):
        return contextlib.suppress(Exception)


class TestSwallowing(Suite):
    class plugin(ExampleProvider):
        @hookimpl
        def create_execution_provider(self, device, provider_options, session_options):
            return Swallowing(self.name, device, provider_options)


def with_execution_provider(execution_provider, transfer=NpuDataTransfer):
    class Provider(with_transfer(transfer)):
        @hookimpl
        def create_execution_provider(self, device, provider_options, session_options):
            return execution_provider(self.name, device, provider_options)

    return Provider


class Late(NpuDataTransfer):
    """Uploads later, in its own time."""

    def copy(self, array, source, target):
        if target.is_cpu:
            return super().copy(array, source, target)
        made = NpuArray(np.zeros_like(array))
        threading.Timer(0.05, lambda: np.copyto(made.memory, array)).start()
        return made


class Hasty(ExecutionProvider):
    """Says that its work is done when it is queued."""

    def synchronize(self):
        """Wait for nothing."""


class TestHasty(Suite):
    plugin = with_execution_provider(Hasty, Late)


class Waiting(ExecutionProvider):
    """Waits until uploads that come late are there."""

    def synchronize(self):
        time.sleep(0.1)


class TestReadingLate(Suite):
    plugin = with_execution_provider(Waiting, Late)


class Sharing(ExecutionProvider):
    def shares_memory(self, first, second, *, entirely=False):
        return first.shape == second.shape


class TestSharing(Suite):
    plugin = with_execution_provider(Sharing)


class CopyingTensors(ExecutionProvider):
    dlpack_device_type = 12

    def to_dlpack(self, array, stream, ready):
        return array

    def from_dlpack(self, tensor):
        return NpuArray(tensor.__dlpack__(stream=1).memory.copy())


class TestCopyingTensors(Suite):
    plugin = with_execution_provider(CopyingTensors)


class LeavingMemory(NpuDataTransfer):
    """Gives new arrays, and leaves those that it should fill."""

    def copy_all(self, arrays, source, destinations):
        pairs = zip(arrays, destinations, strict=True)
        return [self.copy(array, source, CPU_DEVICE) if given is None else given for array, given in pairs]


class TestLeavingMemory(Suite):
    plugin = with_transfer(LeavingMemory)


class CopyingViews(ExecutionProvider):
    def reshaped(self, array, shape):
        return NpuArray(array.memory.copy().reshape(shape))


class TestCopyingViews(Suite):
    plugin = with_execution_provider(CopyingViews)


class TestWithoutTransfer(Suite):
    class plugin(ExampleProvider):
        @hookimpl
        def get_data_transfer(self, execution_provider):
            return None
