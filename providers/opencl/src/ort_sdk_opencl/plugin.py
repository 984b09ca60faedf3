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
        from .device import listed_devices

        return [OrtDevice("opencl", index) for index in listed_devices()]

    @hookimpl
    def create_execution_provider(
        self, device: OrtDevice, provider_options: Mapping[str, str], session_options: Mapping[str, str]
    ) -> ExecutionProvider:
        from .devices import find_devices
        from .execution_provider import OpenClExecutionProvider
        from .options import parsed_options

        options = parsed_options(provider_options, find_devices(), device.index)
        return OpenClExecutionProvider(self.name, options, provider_options)

    @hookimpl
    def get_kernel_registry(self, execution_provider: ExecutionProvider) -> KernelRegistry:
        from .registry import kernel_registry

        return kernel_registry(_own(execution_provider).context)

    @hookimpl
    def create_allocator(self, execution_provider: ExecutionProvider, memory_info: OrtMemoryInfo) -> Allocator:
        from ort_sdk.device import DeviceAllocator

        return DeviceAllocator(_own(execution_provider).context, memory_info)

    @hookimpl
    def get_data_transfer(self, execution_provider: ExecutionProvider) -> DataTransfer:
        from .data_transfer import OpenClDataTransfer

        own = _own(execution_provider)
        return OpenClDataTransfer(own.device, own.context)

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
