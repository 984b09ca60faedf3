"""What a process and its compiler say to each other: pickled objects with their length before them, over two pipes."""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Callable
from typing import Any

from ort_sdk.api.data_classes import dataclass

__all__ = ["Build", "CompileReply", "CompileRequest", "read_message", "write_message"]

Build = Callable[[], tuple[str, bytes]]
"""Returns a function's symbol and its object file."""

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """A function to compile.

    Args:
        name: of its file, with a digest of all that the code depends on.
        build: a function of a module, or ``functools.partial`` of one, with arguments that can be pickled.
        wants_content: whether the reply is to have the file's content, whether or not there is such a file.
    """

    name: str
    build: Build
    wants_content: bool = False


@dataclass(frozen=True, slots=True)
class CompileReply:
    """A function that was compiled, or could not be.

    Args:
        file: name of its file; empty if it could not be compiled, or if another process did.
        content: of the file, if it is wanted or no folder is writable; empty otherwise.
        seconds: that compiling took.
        error: what was raised, as text; empty if nothing was.
    """

    file: str = ""
    content: bytes = b""
    seconds: float = 0.0
    error: str = ""


def write_message(pipe: int, message: object) -> None:
    """Write a message.

    Raises:
        BrokenPipeError: the other process ended.
    """
    content = pickle.dumps(message)
    left = memoryview(_LENGTH.pack(len(content)) + content)
    while left:
        left = left[os.write(pipe, left) :]


def read_message(pipe: int) -> Any:
    """Read a message.

    Raises:
        EOFError: the other process ended.
    """
    (length,) = _LENGTH.unpack(_read(pipe, _LENGTH.size))
    return pickle.loads(_read(pipe, length))  # noqa: S301 - of a process that this one started, or was started by


def _read(pipe: int, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        part = os.read(pipe, size - len(content))
        if not part:
            raise EOFError("the other end of the pipe was closed")
        content += part
    return bytes(content)
