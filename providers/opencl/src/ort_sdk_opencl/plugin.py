"""The OpenCL provider's hooks. pyopencl is imported when a hook first needs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ort_sdk.api import (
    Allocator,
    DataTransfer,
    ExecutionProvider,
    ExternalDataLoader,
    KernelRegistry,
    OrtDevice,
    OrtMemoryInfo,
    ProviderHooks,
    hookimpl,
)

if TYPE_CHECKING:
    from .execution_provider import OpenClExecutionProvider

__all__ = ["OpenClProvider"]


class OpenClProvider(ProviderHooks):
    """``OpenCLExecutionProvider``: one device of any OpenCL platform."""

    name = "OpenCLExecutionProvider"
    api_version = 1

    @hookimpl
    def get_supported_devices(self) -> Sequence[OrtDevice]:
        from .device import find_devices

        return [OrtDevice("opencl", index) for index in range(len(find_devices()))]

    @hookimpl
    def create_execution_provider(
        self, device: OrtDevice, provider_options: Mapping[str, str], session_options: Mapping[str, str]
    ) -> ExecutionProvider:
        from .execution_provider import OpenClExecutionProvider

        return OpenClExecutionProvider(self.name, device, provider_options)

    @hookimpl
    def get_kernel_registry(self, execution_provider: ExecutionProvider) -> KernelRegistry:
        from .registry import kernel_registry

        return kernel_registry(execution_provider.device.index)

    @hookimpl
    def create_allocator(self, execution_provider: ExecutionProvider, memory_info: OrtMemoryInfo) -> Allocator:
        from .allocator import OpenClAllocator

        return OpenClAllocator(_own(execution_provider).context, memory_info)

    @hookimpl
    def get_data_transfer(self, execution_provider: ExecutionProvider) -> DataTransfer:
        from .data_transfer import OpenClDataTransfer

        return OpenClDataTransfer(_own(execution_provider).context)

    @hookimpl
    def get_external_data_loader(self, execution_provider: ExecutionProvider) -> ExternalDataLoader:
        from .external_data_loader import OpenClExternalDataLoader

        own = _own(execution_provider)
        return OpenClExternalDataLoader(own.device, own.context)


def _own(execution_provider: ExecutionProvider) -> OpenClExecutionProvider:
    from .execution_provider import OpenClExecutionProvider

    if not isinstance(execution_provider, OpenClExecutionProvider):
        raise TypeError(f"expected an OpenClExecutionProvider, got {type(execution_provider).__name__}")
    return execution_provider
