"""Images: code and data at fixed offsets from each other, ready to be mapped."""

from __future__ import annotations

import platform
import sys

from ort_sdk.api import RuntimeException
from ort_sdk.api.data_classes import NamedTuple, dataclass

__all__ = ["DynamicRelocation", "Image", "LinkError", "can_link"]


class LinkError(RuntimeException):
    """An object file cannot be linked into an image."""


class DynamicRelocation(NamedTuple):
    """A dynamic relocation: a word that is set to an address when the image is mapped."""

    offset: int
    """Of the word, from the start of the mapping."""
    addend: int
    symbol: str
    """Function or variable of another library that the addend is added to; empty for the start of the mapping."""


@dataclass(frozen=True, slots=True)
class Image:
    """Code and data. Offsets count from the start of the mapping.

    Args:
        content: the bytes, from the linker's ``start`` on.
        entry: offset of the function that was linked.
        writable: offset from which on pages must be writable: a multiple of the page size, or the image's end if none must be.
        pointers: words that must be set before the code runs.
    """

    content: bytes
    entry: int
    writable: int
    pointers: tuple[DynamicRelocation, ...]


def can_link() -> bool:
    """Whether this machine's object files can be linked: on x86-64 Linux."""
    return sys.platform == "linux" and platform.machine() == "x86_64"
