"""What strict devices share with other libraries: tensors by an exchange like DLPack's, of which no host library can read one."""

from __future__ import annotations

from typing import Any, NamedTuple

from ort_sdk.api import Event, InvalidArgument

from .memory import StrictArray, StrictDevice

__all__ = ["DLPACK_TYPE", "StrictCapsule", "array_of"]

DLPACK_TYPE = 12
"""DLPack's ``kDLExtDev``."""
STREAM = 7
"""Number of a strict device's own stream, as producers of tensors are told it."""


class StrictCapsule(NamedTuple):
    """What a DLPack capsule is for other devices."""

    array: StrictArray
    stream: Any
    """Of the consumer, whose work comes after ``ready``."""
    ready: Event | None


def array_of(tensor: Any, device: StrictDevice) -> StrictArray:
    """An array that shares the memory of another library's tensor.

    Raises:
        InvalidArgument: it is not on this device.
    """
    capsule = tensor.__dlpack__(stream=STREAM)
    if not isinstance(capsule, StrictCapsule) or capsule.array.strict_device is not device:
        raise InvalidArgument(f"device {device.device} got {type(capsule).__name__}, which is no tensor of its own")
    return device.alias(capsule.array)
