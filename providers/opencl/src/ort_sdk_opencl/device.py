"""Devices of all OpenCL platforms, and what the device layer knows of each that is used."""

from __future__ import annotations

import functools
from typing import Any

import pyopencl as cl

from ort_sdk.api import Fail
from ort_sdk.device import OPENCL, DeviceClass, DeviceContext

from .launcher import OpenClLauncher

__all__ = ["device_context", "find_devices"]


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


def class_of(device: Any) -> DeviceClass:
    """The class that plans choose by."""
    is_cpu = bool(device.type & cl.device_type.CPU)
    most = 1 << (min(device.max_work_group_size, 1024).bit_length() - 1)
    return DeviceClass(
        kind="cpu" if is_cpu else "gpu",
        vector_width=16 if is_cpu else 4,
        lanes=min(64 if is_cpu else 256, most),
        most_lanes=most,
        local_bytes=device.local_mem_size,
        units=device.max_compute_units,
        has_float64="cl_khr_fp64" in device.extensions,
    )


@functools.cache
def device_context(index: int) -> DeviceContext:
    """The device layer's context of the device with this index among ``find_devices()``."""
    device = find_devices()[index]
    return DeviceContext(OpenClLauncher(device, class_of(device), OPENCL))
