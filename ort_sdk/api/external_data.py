"""External data: where a weight's bytes are, and who can load them straight to a device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from .data_classes import dataclass, field
from .device import OrtMemoryInfo
from .element_type import TensorElementType
from .kernel import Array
from .memory import HostArray

__all__ = ["ExternalDataInfo", "ExternalDataLoader", "SupportsCanLoadTensor", "SupportsLoadTensors"]


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
    content: HostArray | None = field(default=None, compare=False, repr=False)
    """All bytes of the file as it was checked, or of the buffer given instead: a read-only ``uint8`` vector that keeps its
    memory alive, pages read as they are touched. None if the location is neither."""


class ExternalDataLoader(Protocol):
    """Loads external tensors straight into the memory they are used in, after ORT's ``IExternalDataLoader``.

    A location need not be a file: the host asks loaders before a missing file is an error. Two more abilities are optional,
    ``SupportsCanLoadTensor`` and ``SupportsLoadTensors``.
    """

    def can_load(self, memory_info: OrtMemoryInfo) -> bool:
        """Whether tensors can be loaded into this kind of memory."""

    def load_tensor(self, info: ExternalDataInfo, tensor: Array) -> None:
        """Fill ``tensor`` (allocated on the target, right shape and type) with exactly ``info.length`` bytes.

        On the host, tensors of sub-byte types come as ``uint8`` vectors to be filled with packed elements.

        Raises:
            OrtSdkError: the range cannot be read in full.
        """


class SupportsCanLoadTensor(Protocol):
    """External data loaders that only load some tensors: those of a kind of file, or of addresses of a kind."""

    def can_load_tensor(self, info: ExternalDataInfo) -> bool:
        """Whether the loader wants this tensor. One without this method wants all that ``can_load`` lets it have."""


class SupportsLoadTensors(Protocol):
    """External data loaders that load several tensors at once, so that reading and uploading overlap."""

    def load_tensors(self, batch: Sequence[tuple[ExternalDataInfo, Array]]) -> None:
        """Fill every tensor as ``load_tensor`` does; called once per session and memory instead of it."""
