"""Code and data at fixed places relative to each other, ready to be mapped."""

from __future__ import annotations

import platform
import sys
from typing import NamedTuple

from ort_sdk.api import RuntimeException
from ort_sdk.api.data_classes import dataclass

__all__ = ["Image", "LinkError", "Pointer", "can_link"]


class LinkError(RuntimeException):
    """An object file has what an image cannot have."""


class Pointer(NamedTuple):
    """A word of an image that holds an address."""

    place: int
    addend: int
    symbol: str
    """Function or variable of another library; empty for the start of the mapping."""


@dataclass(frozen=True, slots=True)
class Image:
    """Code and data. Places count from the start of the mapping.

    Args:
        content: the bytes, from the ``start`` given to the linker on.
        entry: where the function asked for is.
        writable: from where on pages must be writable; a multiple of the page size, or the image's end if none must be.
        pointers: what must be written there before the code runs.
    """

    content: bytes
    entry: int
    writable: int
    pointers: tuple[Pointer, ...]


def can_link() -> bool:
    """Whether object files of this machine can be linked."""
    return sys.platform == "linux" and platform.machine() == "x86_64"
