"""OpenCL's errors as those of the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyopencl as cl

from ort_sdk.api import DeviceReset, OrtSdkError, OutOfMemory, RuntimeException

__all__ = ["NO_ROOM", "is_loss", "translated"]

_status = cl.status_code
NO_ROOM = frozenset({_status.MEM_OBJECT_ALLOCATION_FAILURE, _status.OUT_OF_HOST_MEMORY, _status.INVALID_BUFFER_SIZE})
_LOST = frozenset(
    {
        *(_status.DEVICE_NOT_AVAILABLE, _status.INVALID_COMMAND_QUEUE, _status.INVALID_CONTEXT, _status.INVALID_DEVICE),
        _status.EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
    }
)
"""What drivers answer when a device was reset or unplugged, or a kernel of it was stopped: queue and memory are gone."""
_FIRST_OF_DRIVERS = -9000
"""Codes below are of drivers; NVIDIA's -9999 is an illegal access, after which a context answers nothing else."""


def is_loss(error: Any, answers: Callable[[], bool]) -> bool:
    """Whether the device is gone, with all its memory.

    Args:
        error: ``pyopencl.Error``.
        answers: whether the queue still works. Drivers that run out of registers say the same as some that lost their device.
    """
    if error.code == _status.OUT_OF_RESOURCES:
        return not answers()
    return error.code in _LOST or error.code < _FIRST_OF_DRIVERS


def translated(error: Any, attempt: str, device: str, *, is_lost: bool) -> OrtSdkError:
    """The host's error for one of OpenCL's.

    Args:
        error: ``pyopencl.Error``.
        attempt: what was being done.
        device: name of the device.
        is_lost: whether it is gone.
    """
    text = f"{attempt} on {device}: {error}"
    if error.code in NO_ROOM:
        return OutOfMemory(f"{text}; close sessions, take smaller batches, or another device")
    if is_lost:
        return DeviceReset(f"{text}: the device was lost. Close all sessions on it, and make new ones; others are not concerned")
    return RuntimeException(text)
