"""The devices of all OpenCL platforms, and what plans of kernels need to know of them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import pyopencl as cl

from ort_sdk.api import Fail
from ort_sdk.api.data_classes import dataclass
from ort_sdk.device import OPENCL, OPENCL_SUBGROUPS, DeviceClass, Dialect

__all__ = ["DIALECTS", "FoundDevice", "find_devices"]

DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in (OPENCL, OPENCL_SUBGROUPS)}
"""Name, as the provider option ``dialect`` gives it → dialect."""


@dataclass(frozen=True, slots=True, eq=False)
class FoundDevice:
    """A device of a platform."""

    device: Any
    """``pyopencl.Device``."""
    platform: str
    """Name of its platform."""
    name: str
    driver: str
    """Version of the platform and of the driver."""
    is_cpu: bool

    @property
    def label(self) -> str:
        """For reports and errors."""
        return f"'{self.name}' of platform '{self.platform}'"

    @property
    def identity(self) -> Mapping[str, str]:
        """All that says which device and driver it is."""
        return {"platform": self.platform, "device": self.name, "driver": self.driver}

    @property
    def has_subgroups(self) -> bool:
        """Whether its compiler knows sub-groups."""
        try:
            most = int(self.device.max_num_sub_groups)
        except (AttributeError, cl.Error):
            most = 0
        return most > 0 or "cl_khr_subgroups" in self.device.extensions.split()

    @property
    def dialects(self) -> list[str]:
        """Names of the dialects it takes."""
        return [name for name in DIALECTS if name == OPENCL.name or self.has_subgroups]

    @property
    def default_dialect(self) -> str:
        """Name of the one that is used if none is asked for."""
        # A processor's work-groups have one lane where kernels reduce rows: there is nothing to do together.
        return OPENCL_SUBGROUPS.name if self.has_subgroups and not self.is_cpu else OPENCL.name

    def device_class(self) -> DeviceClass:
        """The class that plans choose by."""
        device, is_cpu = self.device, self.is_cpu
        most = 1 << (min(device.max_work_group_size, 1024).bit_length() - 1)
        return DeviceClass(
            kind="cpu" if is_cpu else "gpu",
            vector_width=16 if is_cpu else 4,
            lanes=min(64 if is_cpu else 256, most),
            most_lanes=most,
            local_bytes=device.local_mem_size,
            units=device.max_compute_units,
            has_float64="cl_khr_fp64" in device.extensions.split(),
        )


@functools.cache
def find_devices() -> tuple[FoundDevice, ...]:
    """Every device of every platform, in OpenCL's order, but those that are processors last.

    Raises:
        Fail: there is none; says whether a driver is installed.
    """
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise Fail(
            f"looked for OpenCL platforms, the loader answered {error}: install a driver (Debian's for processors is "
            "pocl-opencl-icd), or name the folder of its .icd file in OCL_ICD_VENDORS"
        ) from error
    found, failures = [], []
    for platform in platforms:
        try:
            found += [_described(platform, device) for device in platform.get_devices()]
        except cl.Error as error:
            failures.append(f"{platform.name}: {error}")
    if not found:
        raise Fail(
            f"looked for devices of {len(platforms)} OpenCL platforms: there is none ({'; '.join(failures) or 'all empty'})"
        )
    return tuple(sorted(found, key=lambda each: each.is_cpu))


def _described(platform: Any, device: Any) -> FoundDevice:
    driver = f"{platform.version.strip()}, driver {device.driver_version.strip()}"
    is_cpu = bool(device.type & cl.device_type.CPU)
    return FoundDevice(device, platform.name.strip(), device.name.strip(), driver, is_cpu)
