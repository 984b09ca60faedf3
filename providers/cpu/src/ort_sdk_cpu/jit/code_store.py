"""Cache of compiled functions, by name: in memory, in the cache folders, or compiled now and written there."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable

from ort_sdk.api import RuntimeException
from ort_sdk_cpu.jit.elf.image import LinkError, can_link
from ort_sdk_cpu.jit.elf.loader import HEADER_BYTES, file_content, map_content, map_file

from . import cache_folder
from .cache_files import is_file_cached, read_cached, writable_path, write_atomically, write_cached
from .cache_folder import build_lock

__all__ = ["code_address", "is_cached"]

IMAGE, OBJECT = ".image", ".o"
"""Suffixes of files: images, which are mapped, and object files, which LLVM loads where images cannot be used."""


def code_address(name: str, build: Callable[[], tuple[str, bytes]]) -> int:
    """Address of a compiled function. Thread-safe; only one process at a time builds it.

    Args:
        name: of the file, with a digest of all that the code depends on.
        build: returns the function's symbol and its object file.

    Raises:
        RuntimeException: the object file has no such function, or calls one that no library has.
    """
    return _store().address(name, build)


def is_cached(name: str) -> bool:
    """Whether a function is cached, in memory or in a folder."""
    return _store().has(name) or any(is_file_cached(f"{name}{end}") for end in (IMAGE, OBJECT))


@functools.cache
def _store() -> _Store:
    return _Store()


class _Store:
    def __init__(self) -> None:
        self._lock = threading.RLock()  # building may need other functions
        self._addresses: dict[str, int] = {}

    def has(self, name: str) -> bool:
        return name in self._addresses

    def address(self, name: str, build: Callable[[], tuple[str, bytes]]) -> int:
        with self._lock:
            found = self._addresses.get(name)
            if found is None:
                found = self._addresses[name] = _kept(name) or _kept_or_built(name, build)
        return found


def _kept(name: str) -> int | None:
    found = _mapped(f"{name}{IMAGE}") if can_link() else None
    if found is not None:
        return found
    content = read_cached(f"{name}{OBJECT}")
    if content is None:
        return None
    symbol, _, code = content.partition(b"\n")
    return _loaded(symbol.decode(), code)


def _mapped(file: str) -> int | None:
    for folder in cache_folder.kernel_folders().readable:
        # The system may not allow executable mappings; LLVM may still be able to load the object file.
        with contextlib.suppress(OSError):
            found = map_file(folder, file)
            if found is not None:
                return found
    return None


def _kept_or_built(name: str, build: Callable[[], tuple[str, bytes]]) -> int:
    with build_lock(writable_path(name)):
        found = _kept(name)
        if found is not None:
            return found
        symbol, code = build()
        with contextlib.suppress(OSError):
            found = _imaged(name, symbol, code)
            if found is not None:
                return found
        write_cached(f"{name}{OBJECT}", symbol.encode() + b"\n" + code)
        return _loaded(symbol, code)


def _imaged(name: str, symbol: str, code: bytes) -> int | None:
    """Link code into an image, cache and map it; returns the function's address, None if it cannot be linked.

    Raises:
        OSError: the system does not allow executable memory.
    """
    from ort_sdk_cpu.jit.elf.linker import link

    file = f"{name}{IMAGE}"
    try:
        image = link(code, symbol, HEADER_BYTES) if can_link() else None
    except LinkError:
        image = None
    if image is None:
        return None
    content = file_content(image, file)
    found = _mapped(file) if write_atomically(file, content) else None
    return map_content(content, file) if found is None else found


def _loaded(symbol: str, code: bytes) -> int:
    from .llvm import load_object

    found = load_object(code, symbol)
    if not found:
        raise RuntimeException(f"compiled code has no function {symbol!r}")
    return found
