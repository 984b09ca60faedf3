"""An execution provider for an array library, with ONNX's whole operator set, made from ``ort_sdk.opset``.

``array_api_strict`` stands for any library that follows the Python array API standard; put yours in its place.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import array_api_strict
import numpy as np

from ort_sdk.api import (
    CPU_DEVICE,
    Array,
    DataTransfer,
    ExecutionProvider,
    InvalidArgument,
    KernelRegistry,
    OrtDevice,
    ProviderHooks,
    TensorElementType,
    hookimpl,
)
from ort_sdk.opset import ArrayNamespace, add_opset

__all__ = ["ArrayApiProvider"]

DEVICE = OrtDevice("array-api", 0)
NAME = "ArrayApiExecutionProvider"
NAMESPACE = ArrayNamespace(array_api_strict)


class ArrayApiExecutionProvider(ExecutionProvider):
    """The provider in a session."""

    def describe(self, array: Array) -> tuple[TensorElementType, tuple[int, ...]]:
        """Element type and shape. The library's dtypes are not NumPy's."""
        return NAMESPACE.element_type(array), tuple(array.shape)


class ArrayApiDataTransfer:
    """Copies NumPy arrays to the library's, and back."""

    def can_copy(self, source: OrtDevice, target: OrtDevice) -> bool:
        """Between the host and the library."""
        return (source, target) in ((CPU_DEVICE, DEVICE), (DEVICE, CPU_DEVICE))

    def copy(self, array: Array, source: OrtDevice, target: OrtDevice) -> Array:
        """A new array on ``target``.

        Raises:
            InvalidArgument: the library has no such element type.
        """
        if target == CPU_DEVICE:
            return np.array(NAMESPACE.to_host(array))
        if TensorElementType.from_numpy_dtype(array.dtype) not in NAMESPACE.element_types:
            raise InvalidArgument(f"copying {array.dtype}{list(array.shape)} to {target}: the library has no such element type")
        return NAMESPACE.from_host(array)


@functools.cache
def kernel_registry() -> KernelRegistry:
    """Every operator, for every type the library has."""
    registry = KernelRegistry(NAME)
    add_opset(registry, NAMESPACE)
    return registry


class ArrayApiProvider(ProviderHooks):
    """The hooks."""

    name = NAME
    api_version = 1

    @hookimpl
    def get_supported_devices(self) -> Sequence[OrtDevice]:
        """The library's default device."""
        return [DEVICE]

    @hookimpl
    def create_execution_provider(
        self, device: OrtDevice, provider_options: Mapping[str, str], session_options: Mapping[str, str]
    ) -> ExecutionProvider:
        """The provider of one session."""
        return ArrayApiExecutionProvider(self.name, device, provider_options)

    @hookimpl
    def get_kernel_registry(self, execution_provider: ExecutionProvider) -> KernelRegistry:
        """The shared operator set over the library."""
        return kernel_registry()

    @hookimpl
    def get_data_transfer(self, execution_provider: ExecutionProvider) -> DataTransfer:
        """Copies between the host and the library."""
        return ArrayApiDataTransfer()
