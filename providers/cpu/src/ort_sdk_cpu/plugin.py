"""The CPU provider's hooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ort_sdk.api import (
    CPU_DEVICE,
    Allocator,
    ExecutionProvider,
    KernelRegistry,
    OrtDevice,
    OrtMemoryInfo,
    ProviderHooks,
    hookimpl,
)

__all__ = ["CpuProvider"]


class CpuProvider(ProviderHooks):
    """``CPUExecutionProvider``: every ONNX operator, on any platform, with NumPy alone."""

    name = "CPUExecutionProvider"
    api_version = 1

    @hookimpl
    def get_supported_devices(self) -> Sequence[OrtDevice]:
        return [CPU_DEVICE]

    @hookimpl
    def create_execution_provider(
        self, device: OrtDevice, provider_options: Mapping[str, str], session_options: Mapping[str, str]
    ) -> ExecutionProvider:
        from .execution_provider import CpuExecutionProvider

        return CpuExecutionProvider(self.name, device, provider_options, session_options)

    @hookimpl
    def get_kernel_registry(self, execution_provider: ExecutionProvider) -> KernelRegistry:
        from .registry import kernel_registry

        return kernel_registry()

    @hookimpl
    def create_allocator(self, execution_provider: ExecutionProvider, memory_info: OrtMemoryInfo) -> Allocator:
        from ort_sdk_cpu.memory.allocator import CpuAllocator

        return CpuAllocator(memory_info)
