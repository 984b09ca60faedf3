"""Whose a step is: the provider that its call is joined with others by, and the one in whose memory its outputs are."""

from __future__ import annotations

from collections.abc import Mapping

from ort_sdk.memory import DeviceCopy
from ort_sdk.run.program.specialisation import ProgramStep
from ort_sdk.run.types import BindingProvider

__all__ = ["host_provider", "is_copy", "is_upload", "memory_of", "owner_of"]


def is_copy(launched: ProgramStep) -> bool:
    """Whether a step copies between devices."""
    return isinstance(launched.step.kernel, DeviceCopy)


def is_upload(launched: ProgramStep) -> bool:
    """Whether a step copies from the host to a device."""
    kernel = launched.step.kernel
    return isinstance(kernel, DeviceCopy) and kernel.is_upload


def owner_of(launched: ProgramStep, providers: Mapping[str, BindingProvider]) -> BindingProvider | None:
    """The provider of a step; of a copy, that of the device. None if it cannot preallocate."""
    kernel = launched.step.kernel
    if not isinstance(kernel, DeviceCopy):
        return providers.get(launched.step.provider)
    return next((provider for provider in providers.values() if provider.device == kernel.device), None)


def memory_of(launched: ProgramStep, providers: Mapping[str, BindingProvider]) -> BindingProvider | None:
    """The provider in whose memory a bound step's outputs are; None if nothing can be preallocated there."""
    kernel = launched.step.kernel
    is_download = isinstance(kernel, DeviceCopy) and kernel.target.is_cpu
    return host_provider(providers) if is_download else owner_of(launched, providers)


def host_provider(providers: Mapping[str, BindingProvider]) -> BindingProvider | None:
    """The first provider that allocates on the host."""
    return next((provider for provider in providers.values() if provider.device.is_cpu), None)
