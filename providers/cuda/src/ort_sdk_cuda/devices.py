"""The devices of CUDA, and what plans of kernels need to know of them."""

from __future__ import annotations

from collections.abc import Mapping

from ort_sdk.api import ProviderUnavailableError
from ort_sdk.api.data_classes import dataclass
from ort_sdk.device import DeviceClass

from .driver import Cuda, CudaError, cuda

__all__ = ["FoundDevice", "find_devices"]


@dataclass(frozen=True, slots=True, eq=False)
class FoundDevice:
    """A device."""

    cuda: Cuda
    """Driver and compiler."""
    ordinal: int
    """That the driver counts it by."""
    name: str
    capability: tuple[int, int]
    """Compute capability, major and minor."""
    units: int
    """Streaming multiprocessors."""
    local_bytes: int
    """Shared memory of a block that is not asked for."""
    memory_bytes: int
    has_pools: bool
    """Whether memory is allocated in the order of a stream."""

    @property
    def label(self) -> str:
        """For reports and errors."""
        return f"'{self.name}' (cuda:{self.ordinal})"

    @property
    def architecture(self) -> str:
        """That kernels are compiled for: the newest one that the compiler knows and the device runs; empty if there is none."""
        major, minor = self.capability
        fitting = [number for number in self.cuda.compiler.architectures if 10 * major <= number <= 10 * major + minor]
        return f"sm_{max(fitting)}" if fitting else ""

    @property
    def identity(self) -> Mapping[str, str]:
        """All that says which device, driver and compiler it is."""
        driver, compiler = self.cuda.driver, self.cuda.compiler
        return {
            "device": self.name,
            "architecture": self.architecture,
            "driver": ".".join(map(str, driver.version)),
            "compiler": f"NVRTC {compiler.version} {' '.join(compiler.options)}",
        }

    @property
    def reason(self) -> str | None:
        """Why it cannot be used; None if it can."""
        if not self.architecture:
            known, has = self.cuda.compiler.architectures, ".".join(map(str, self.capability))
            version = self.cuda.compiler.version
            text = f"{self.label} has compute capability {has}, NVRTC {version} knows {min(known)} to {max(known)}"
            is_new = 10 * self.capability[0] > min(known)
            return f"{text}: {'python -m pip install --upgrade nvidia-cuda-nvrtc' if is_new else 'the device is too old'}"
        return None if self.has_pools else f"{self.label} does not allocate memory in the order of streams (no memory pools)"

    def device_class(self) -> DeviceClass:
        """The class that plans choose by."""
        return DeviceClass(
            kind="gpu",
            vector_width=4,
            lanes=256,
            most_lanes=256,
            subgroup_lanes=32,
            local_bytes=self.local_bytes,
            units=self.units,
        )


def find_devices() -> tuple[FoundDevice, ...]:
    """Every device, in CUDA's order.

    Raises:
        ProviderUnavailableError: there is none, or CUDA does not work here; says what to do.
    """
    found = cuda()
    try:
        return tuple(_described(found, ordinal) for ordinal in range(found.driver.device_count()))
    except CudaError as error:
        raise ProviderUnavailableError(f"asking CUDA for its devices: {error}; `nvidia-smi` shows whether they work") from error


def _described(found: Cuda, ordinal: int) -> FoundDevice:
    driver = found.driver

    def attribute(name: str) -> int:
        return driver.attribute(ordinal, name)

    return FoundDevice(
        cuda=found,
        ordinal=ordinal,
        name=driver.device_name(ordinal),
        capability=(attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")),
        units=attribute("MULTIPROCESSOR_COUNT"),
        local_bytes=attribute("MAX_SHARED_MEMORY_PER_BLOCK"),
        memory_bytes=driver.memory_bytes(ordinal),
        has_pools=bool(attribute("MEMORY_POOLS_SUPPORTED")),
    )
