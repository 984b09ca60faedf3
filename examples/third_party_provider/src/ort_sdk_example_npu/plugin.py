"""The hooks: what the host asks the provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ort_sdk.api import (
    Allocator,
    DataTransfer,
    ExecutionProvider,
    KernelRegistry,
    OrtDevice,
    OrtMemoryInfo,
    ProviderHooks,
    hookimpl,
)

from .kernels import registry
from .npu import NPU, NpuAllocator, NpuDataTransfer

__all__ = ["ExampleProvider"]


class ExampleProvider(ProviderHooks):
    """``ExampleExecutionProvider``: Abs, Relu and Add on a device in host memory."""

    name = "ExampleExecutionProvider"
    api_version = 1

    @hookimpl
    def get_supported_devices(self) -> Sequence[OrtDevice]:
        """The one device."""
        return [NPU]

    @hookimpl
    def create_execution_provider(
        self, device: OrtDevice, provider_options: Mapping[str, str], session_options: Mapping[str, str]
    ) -> ExecutionProvider:
        """The provider of one session."""
        return ExecutionProvider(self.name, device, provider_options)

    @hookimpl
    def get_kernel_registry(self, execution_provider: ExecutionProvider) -> KernelRegistry:
        """The same kernels for every session."""
        return registry

    @hookimpl
    def create_allocator(self, execution_provider: ExecutionProvider, memory_info: OrtMemoryInfo) -> Allocator | None:
        """Memory of the device; of no other."""
        return NpuAllocator(memory_info) if memory_info.device == NPU else None

    @hookimpl
    def get_data_transfer(self, execution_provider: ExecutionProvider) -> DataTransfer:
        """Copies between the host and the device."""
        return NpuDataTransfer()
