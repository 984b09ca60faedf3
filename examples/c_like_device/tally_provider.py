"""The execution provider: the device layer's, with the board's launcher."""

from __future__ import annotations

import functools
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
from ort_sdk.device import DeviceAllocator, DeviceContext, DeviceDataTransfer, DeviceExecutionProvider, device_registry

__all__ = ["NAME", "TallyProvider"]

NAME = "TallyExecutionProvider"
DEVICE = OrtDevice("tally", 0)


@functools.cache
def board() -> DeviceContext:
    """The device, opened when a session first wants it."""
    from tally_device import TallyLauncher

    return DeviceContext(TallyLauncher())


@functools.cache
def kernel_registry() -> KernelRegistry:
    """ONNX's operators on the device."""
    return device_registry(NAME, board())


class TallyProvider(ProviderHooks):
    """The hooks."""

    name = NAME
    api_version = 1

    @hookimpl
    def get_supported_devices(self) -> Sequence[OrtDevice]:
        """One board."""
        return [DEVICE]

    @hookimpl
    def create_execution_provider(
        self, device: OrtDevice, provider_options: Mapping[str, str], session_options: Mapping[str, str]
    ) -> ExecutionProvider:
        """The provider of one session."""
        return DeviceExecutionProvider(self.name, device, provider_options, board())

    @hookimpl
    def get_kernel_registry(self, execution_provider: ExecutionProvider) -> KernelRegistry:
        """The shared operator set on the device."""
        return kernel_registry()

    @hookimpl
    def create_allocator(self, execution_provider: ExecutionProvider, memory_info: OrtMemoryInfo) -> Allocator:
        """The device's memory."""
        return DeviceAllocator(board(), memory_info)

    @hookimpl
    def get_data_transfer(self, execution_provider: ExecutionProvider) -> DataTransfer:
        """Copies between the host and the device."""
        return DeviceDataTransfer(DEVICE, board())
