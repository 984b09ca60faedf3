"""Tensors that share memory with those of other libraries, by DLPack: on the host by NumPy, on devices by their providers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ort_sdk.api import CPU_DEVICE, Array, InvalidArgument
from ort_sdk.api import NotImplemented as OrtNotImplemented
from ort_sdk.api.foreign_errors import raise_foreign
from ort_sdk.plugins import plugin_manager
from ort_sdk.session.providers.device_memory import DeviceAccess, device_memory
from ort_sdk.session.providers.readiness import Ready

__all__ = ["DLPACK_CPU", "array_of", "capsule_of", "device_of_array"]

DLPACK_CPU = (1, 0)
"""Type and index of the host (``kDLCPU``)."""
_HOST_TYPES = (1, 3, 11)
"""``kDLCPU``, ``kDLCUDAHost``, ``kDLROCMHost``: memory that NumPy reads."""


class _Capsule:
    """A DLPack capsule as an object that NumPy takes; NumPy itself looks on which device the tensor is.

    Args:
        capsule: not used yet.
    """

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return DLPACK_CPU


def array_of(data: Any) -> tuple[Array, DeviceAccess]:
    """An array around another library's tensor, and the memory it is in.

    Raises:
        InvalidArgument: its elements have gaps or another order than row by row.
        NotImplemented: no installed provider takes tensors of its device.
    """
    if type(data).__name__ == "PyCapsule":
        data = _Capsule(data)
    elif hasattr(data, "__dlpack_device__"):
        kind, index = data.__dlpack_device__()
        if int(kind) not in _HOST_TYPES:
            return _array_on_device(data, int(kind), int(index))
    array = np.from_dlpack(data)
    if not array.flags.c_contiguous:
        raise InvalidArgument(
            f"OrtValue.from_dlpack got a tensor of shape {array.shape} with strides of {array.strides} bytes; it must be "
            "contiguous, row by row. Copy it first"
        )
    return array, device_memory(CPU_DEVICE)


def _array_on_device(data: Any, kind: int, index: int) -> tuple[Array, DeviceAccess]:
    for access in _accelerators(index):
        if access.provider is None or access.provider.execution_provider.dlpack_device_type != kind:
            continue
        try:
            return access.provider.execution_provider.from_dlpack(data), access
        except Exception as error:  # noqa: BLE001 - a provider may raise anything
            raise_foreign(error, f"while {access.provider.name} took a DLPack tensor on {access.device}")
    raise OrtNotImplemented(
        f"OrtValue.from_dlpack got a tensor on DLPack's device {(kind, index)}; no installed provider takes tensors there. "
        "Copy it to the host first"
    )


def _accelerators(index: int) -> list[DeviceAccess]:
    """The memory of devices of that index that are not the host."""
    handles = plugin_manager().available_providers()
    devices = {device: None for handle in handles for device in handle.devices if device.index == index and not device.is_cpu}
    return [device_memory(device) for device in devices]


def capsule_of(array: Array, access: DeviceAccess, stream: Any, ready: Ready | None, options: Mapping[str, Any]) -> Any:
    """DLPack capsule of an array that shares its memory.

    Args:
        array: in the memory of ``access``.
        access: its device.
        stream: of the consumer; see ``ExecutionProvider.to_dlpack``.
        ready: when the device is done with the array.
        options: further arguments of ``__dlpack__``, for arrays of the host.

    Raises:
        NotImplemented: its provider gives no DLPack tensors.
    """
    provider = access.provider
    if provider is None:
        return array.__dlpack__(**options) if stream is None else array.__dlpack__(stream=stream, **options)
    if not _gives_tensors(array, access):
        raise OrtNotImplemented(
            f"arrays of {provider.name} on {access.device} cannot be handed out as DLPack tensors; numpy() copies one to the host"
        )
    try:
        return provider.execution_provider.to_dlpack(array, stream, None if ready is None else ready.event)
    except Exception as error:  # noqa: BLE001 - a provider may raise anything
        raise_foreign(error, f"while {provider.name} gave a DLPack tensor on {access.device}")


def device_of_array(array: Array, access: DeviceAccess) -> tuple[int, int]:
    """DLPack's type and index of the device an array is on.

    Raises:
        NotImplemented: its provider gives no DLPack tensors.
    """
    provider = access.provider
    if provider is not None and provider.execution_provider.dlpack_device_type:
        return (provider.execution_provider.dlpack_device_type, access.device.index)
    if not _gives_tensors(array, access):
        raise OrtNotImplemented(f"arrays on {access.device} have no DLPack device; numpy() copies one to the host")
    kind, index = array.__dlpack_device__()
    return (int(kind), int(index))


def _gives_tensors(array: Array, access: DeviceAccess) -> bool:
    is_declared = access.provider is not None and bool(access.provider.execution_provider.dlpack_device_type)
    return is_declared or hasattr(array, "__dlpack__")
