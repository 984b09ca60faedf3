"""External data: where a weight's bytes are, and who can load them straight to a device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .device import OrtMemoryInfo
from .element_type import TensorElementType
from .kernel import Array

__all__ = ["ExternalDataInfo", "ExternalDataLoader"]


@dataclass(frozen=True, slots=True)
class ExternalDataInfo:
    """A range of an external file that holds one tensor, after ORT's ``ExternalDataInfo``."""

    name: str
    """Initializer's name."""
    location: str
    """Location text of the model, relative to its folder."""
    path: Path | None
    """The file, checked to be inside the model's folder; None if the location is no file."""
    offset: int
    """First byte."""
    length: int
    """Bytes of the tensor."""
    element_type: TensorElementType
    shape: tuple[int, ...]


class ExternalDataLoader(Protocol):
    """Loads external tensors straight into the memory they are used in, after ORT's ``IExternalDataLoader``."""

    def can_load(self, memory_info: OrtMemoryInfo) -> bool:
        """Whether tensors can be loaded into this kind of memory."""

    def load_tensor(self, info: ExternalDataInfo, tensor: Array) -> None:
        """Fill ``tensor`` (allocated on the target, right shape and type) with exactly ``info.length`` bytes.

        Raises:
            OrtSdkError: the range cannot be read in full.
        """
