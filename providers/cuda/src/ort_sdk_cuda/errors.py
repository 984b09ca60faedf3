"""CUDA's errors as those of the host."""

from __future__ import annotations

from ort_sdk.api import DeviceReset, OrtSdkError, OutOfMemory, RuntimeException

from .driver import CudaError

__all__ = ["NO_ROOM", "is_loss", "lost_text", "translated"]

NO_ROOM = 2
"""``CUDA_ERROR_OUT_OF_MEMORY``."""
_STICKY = frozenset(
    {
        *(214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999),
        # the driver was shut down, or the device went away
        *(4, 46, 101, 201),
    }
)
"""Codes after which a context answers nothing else: kernels that went wrong or took too long, faults of memory, devices that are
gone."""
_REMEDIES = {
    46: "another process uses the device alone (compute mode EXCLUSIVE_PROCESS); end it",
    209: "the kernel was compiled for another architecture; remove the folder of compiled kernels",
    222: "the driver is older than the compiler; update it",
    701: "the kernel needs more registers or shared memory than the device has",
}


def is_loss(error: CudaError) -> bool:
    """Whether the device's context is gone, with all its memory."""
    return error.code in _STICKY


def lost_text(device: str) -> str:
    """What there is to do about a lost device."""
    return f"{device} was lost: CUDA does not work on it in this process any more. Restart the process; others are not concerned"


def translated(error: CudaError, attempt: str, device: str) -> OrtSdkError:
    """The host's error for one of CUDA's.

    Args:
        error: CUDA's.
        attempt: what was being done.
        device: name of the device.
    """
    text = f"{attempt} on {device}: {error}"
    if error.code == NO_ROOM:
        return OutOfMemory(f"{text}; close sessions, take smaller batches, or another device")
    if is_loss(error):
        return DeviceReset(f"{text}: {lost_text('the device')}")
    remedy = _REMEDIES.get(error.code)
    return RuntimeException(text if remedy is None else f"{text}: {remedy}")
