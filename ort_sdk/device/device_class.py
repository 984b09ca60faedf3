"""What plans of kernels need to know of a device: its shape, not its vendor."""

from __future__ import annotations

from ort_sdk.api import TensorElementType
from ort_sdk.api.data_classes import dataclass

from .element_types import STORAGE

__all__ = ["CPU_CLASS", "GPU_CLASS", "DeviceClass"]


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A kind of device, by which kernels choose their form."""

    kind: str
    """``cpu``: a lane is a processor's thread that computes on vectors; ``gpu``: a lane is one of a warp's."""
    vector_width: int
    """float32 elements that a lane of an element-wise kernel computes."""
    lanes: int
    """Lanes of a work-group of kernels that need no certain number. A power of two."""
    most_lanes: int
    """Lanes that a work-group may have."""
    subgroup_lanes: int = 0
    """Lanes that run together; 0 where it is not known."""
    local_bytes: int = 32768
    """Local memory of a work-group."""
    units: int = 1
    """Processors, or streaming multiprocessors."""
    has_float64: bool = True

    @property
    def is_cpu(self) -> bool:
        """Whether kernels had better be written as for a processor."""
        return self.kind == "cpu"

    @property
    def element_types(self) -> frozenset[TensorElementType]:
        """What the device stores and computes on; narrower types are stored, and computed in wider ones."""
        types = set(STORAGE) - {TensorElementType.DOUBLE}
        return frozenset(types | {TensorElementType.DOUBLE} if self.has_float64 else types)

    def row_lanes(self, elements: int) -> int:
        """Lanes for a kernel in which a work-group goes through a row of so many elements together."""
        if self.is_cpu:
            return 1
        lanes = max(self.subgroup_lanes, 32)
        while lanes < elements // 4 and lanes < min(self.most_lanes, 1024):
            lanes *= 2
        return min(lanes, self.most_lanes)


CPU_CLASS = DeviceClass("cpu", vector_width=16, lanes=64, most_lanes=256, local_bytes=32768)
GPU_CLASS = DeviceClass("gpu", vector_width=4, lanes=256, most_lanes=256, subgroup_lanes=32, local_bytes=32768)
