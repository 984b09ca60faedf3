"""The execution provider: how arrays come and go, and the device layer's kernels. What every such provider has."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ort_sdk.api import (
    CPU_DEVICE,
    Allocator,
    DataTransfer,
    ExecutionProvider,
    KernelRegistry,
    OrtDevice,
    OrtMemoryInfo,
    ProviderHooks,
    StepFusion,
    TensorElementType,
    hookimpl,
)
from ort_sdk.device import DeviceArray, DeviceContext, device_registry, fuse_neighbours

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


class TallyExecutionProvider(ExecutionProvider):
    """The provider in a session."""

    @contextlib.contextmanager
    def run_scope(self) -> Iterator[None]:
        """Waits where a run ends."""
        yield
        board().launcher.finish()

    def describe(self, array: Any) -> tuple[TensorElementType, tuple[int, ...]]:
        """Element type and shape."""
        return (array.element_type, array.shape) if isinstance(array, DeviceArray) else super().describe(array)

    def fuse_steps(self, program: Any) -> StepFusion:
        """Neighbours become one kernel where they can."""
        return fuse_neighbours(program, board())


class TallyTransfer:
    """Copies between the host and the device."""

    def can_copy(self, source: OrtDevice, target: OrtDevice) -> bool:
        """Both ways."""
        return {source, target} == {CPU_DEVICE, DEVICE}

    def copy(self, array: Any, source: OrtDevice, target: OrtDevice) -> Any:
        """A new array on ``target``."""
        if target == CPU_DEVICE:
            return board().download(array.node)
        return DeviceArray(board(), board().upload(array, TensorElementType.from_numpy_dtype(array.dtype)))


class TallyAllocator:
    """Memory for what the host plans."""

    memory_info = OrtMemoryInfo(DEVICE)

    def allocate(self, shape: Sequence[int], element_type: TensorElementType) -> DeviceArray:
        """A new array with undefined contents."""
        return DeviceArray(board(), board().new(tuple(shape), element_type))

    def release(self, array: DeviceArray) -> None:
        """Nothing: memory ends with its last array."""


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
        return TallyExecutionProvider(self.name, device, provider_options)

    @hookimpl
    def get_kernel_registry(self, execution_provider: ExecutionProvider) -> KernelRegistry:
        """The shared operator set on the device."""
        return kernel_registry()

    @hookimpl
    def create_allocator(self, execution_provider: ExecutionProvider, memory_info: OrtMemoryInfo) -> Allocator:
        """The device's memory."""
        return TallyAllocator()

    @hookimpl
    def get_data_transfer(self, execution_provider: ExecutionProvider) -> DataTransfer:
        """Copies between the host and the device."""
        return TallyTransfer()
