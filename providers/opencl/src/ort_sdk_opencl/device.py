"""Devices of all OpenCL platforms, and one context with its queue for each that is used."""

from __future__ import annotations

import functools
import threading
from typing import Any

import pyopencl as cl

from ort_sdk.api import Fail
from ort_sdk.api.data_classes import dataclass, field

__all__ = ["DeviceContext", "device_context", "find_devices"]


@functools.cache
def find_devices() -> tuple[Any, ...]:
    """Every device of every platform, in OpenCL's order.

    Raises:
        Fail: no OpenCL driver is installed.
    """
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise Fail(
            f"looked for OpenCL platforms, the loader answered {error}: install a driver (Debian's CPU driver is pocl-opencl-icd)"
        ) from error
    return tuple(device for platform in platforms for device in platform.get_devices())


@dataclass(slots=True)
class DeviceContext:
    """A device in use: its context, an in-order queue, and the programs built for it. Shared by the sessions of the process."""

    device: Any
    context: Any
    queue: Any
    _programs: dict[str, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def kernel(self, source: str, name: str) -> Any:
        """A kernel object of a source text, for one node: OpenCL kernels hold their arguments, so none is shared."""
        with self._lock:
            program = self._programs.get(source)
            if program is None:
                program = self._programs[source] = cl.Program(self.context, source).build()
        return cl.Kernel(program, name)


@functools.cache
def device_context(index: int) -> DeviceContext:
    """The context of the device with this index among ``find_devices()``."""
    device = find_devices()[index]
    context = cl.Context([device])
    return DeviceContext(device, context, cl.CommandQueue(context))
