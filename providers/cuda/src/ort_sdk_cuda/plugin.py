"""The CUDA provider's hooks. CUDA's libraries are imported when a hook first needs them."""

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
    from .execution_provider import CudaExecutionProvider

__all__ = ["CudaProvider"]


class CudaProvider(ProviderHooks):
    """``CUDAExecutionProvider``: one NVIDIA GPU."""

    name = "CUDAExecutionProvider"
    api_version = 1

    @hookimpl
    def get_supported_devices(self) -> Sequence[OrtDevice]:
        from .device import listed_devices

        return [OrtDevice("cuda", index) for index in listed_devices()]

    @hookimpl
    def create_execution_provider(
        self, device: OrtDevice, provider_options: Mapping[str, str], session_options: Mapping[str, str]
    ) -> ExecutionProvider:
        from .execution_provider import CudaExecutionProvider
        from .options import parsed_options

        return CudaExecutionProvider(self.name, parsed_options(provider_options, device.index), provider_options)

    @hookimpl
    def get_kernel_registry(self, execution_provider: ExecutionProvider) -> KernelRegistry:
        from .registry import kernel_registry

        return kernel_registry(self.name, _own(execution_provider).context)

    @hookimpl
    def create_allocator(self, execution_provider: ExecutionProvider, memory_info: OrtMemoryInfo) -> Allocator:
        from ort_sdk.device import DeviceAllocator

        return DeviceAllocator(_own(execution_provider).context, memory_info)

    @hookimpl
    def get_data_transfer(self, execution_provider: ExecutionProvider) -> DataTransfer:
        from .data_transfer import CudaDataTransfer

        own = _own(execution_provider)
        return CudaDataTransfer(own.device, own.context)

    @hookimpl
    def get_external_data_loader(self, execution_provider: ExecutionProvider) -> ExternalDataLoader:
        from .external_data_loader import CudaExternalDataLoader

        own = _own(execution_provider)
        return CudaExternalDataLoader(own.device, own.context)


def _own(execution_provider: ExecutionProvider) -> CudaExecutionProvider:
    from .execution_provider import CudaExecutionProvider

    if not isinstance(execution_provider, CudaExecutionProvider):
        raise TypeError(f"expected a CudaExecutionProvider, got {type(execution_provider).__name__}")
    return execution_provider
