"""Compiled functions by name: in memory, else in the folder of compiled kernels, else made now and kept there."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from pathlib import Path

from ort_sdk.api import RuntimeException
from ort_sdk_cpu.digests import DIGEST_BYTES, digest
from ort_sdk_cpu.jit import cache_folder, one_process

from .image import LinkError, can_link
from .mapping import HEADER_BYTES, map_content, map_file, written

__all__ = ["code_address", "is_kept", "read_text", "write_text"]

IMAGE, OBJECT = ".image", ".o"
"""Ends of files' names: what is mapped, and what the compiler's library loads where nothing can be mapped."""


def code_address(name: str, build: Callable[[], tuple[str, bytes]]) -> int:
    """Address of a compiled function. Thread-safe; only one process at a time builds it.

    Args:
        name: of the file, which says all that the code depends on.
        build: gives the function's symbol and its object file.

    Raises:
        RuntimeException: the object file has no such function, or calls one that no library has.
    """
    return _store().address(name, build)


def is_kept(name: str) -> bool:
    """Whether a function is in memory or in the folder."""
    folder = cache_folder()
    kept = folder is not None and any((folder / f"{name}{end}").is_file() for end in (IMAGE, OBJECT))
    return kept or _store().has(name)


def read_text(path: Path | None) -> bytes | None:
    """What :func:`write_text` kept in a file; None if there is none, or a damaged one."""
    if path is None or not path.is_file():
        return None
    content = memoryview(path.read_bytes())
    if digest(path.name.encode(), content[DIGEST_BYTES:]) != content[:DIGEST_BYTES]:
        return None
    return bytes(content[DIGEST_BYTES:])


def write_text(path: Path | None, content: bytes) -> None:
    """Keep something in a file, with its digest; None keeps nothing."""
    if path is not None:
        _write(path, digest(path.name.encode(), content) + content)


def _write(path: Path, content: bytes) -> None:
    import tempfile  # brings archives and their compression

    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    Path(file.name).replace(path)


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
    folder = cache_folder()
    if folder is None:
        return None
    # Where the system lets no such memory be executed, the compiler's library may still find a way.
    with contextlib.suppress(OSError):
        found = map_file(folder / f"{name}{IMAGE}") if can_link() else None
        if found is not None:
            return found
    content = read_text(folder / f"{name}{OBJECT}")
    if content is None:
        return None
    symbol, _, code = content.partition(b"\n")
    return _loaded(symbol.decode(), code)


def _kept_or_built(name: str, build: Callable[[], tuple[str, bytes]]) -> int:
    folder = cache_folder()
    with one_process(None if folder is None else folder / name):
        found = _kept(name)
        if found is not None:
            return found
        symbol, code = build()
        with contextlib.suppress(OSError):
            found = _imaged(name, symbol, code)
            if found is not None:
                return found
        write_text(None if folder is None else folder / f"{name}{OBJECT}", symbol.encode() + b"\n" + code)
        return _loaded(symbol, code)


def _imaged(name: str, symbol: str, code: bytes) -> int | None:
    """Address of the code as an image; None if it cannot be one."""
    from .linker import link

    folder, file = cache_folder(), f"{name}{IMAGE}"
    try:
        image = link(code, symbol, HEADER_BYTES) if can_link() else None
    except LinkError:
        image = None
    if image is None:
        return None
    content = written(image, file)
    if folder is None:
        return map_content(content, file)
    _write(folder / file, content)
    return map_file(folder / file)


def _loaded(symbol: str, code: bytes) -> int:
    from .compiler import load_object

    found = load_object(code, symbol)
    if not found:
        raise RuntimeException(f"compiled code has no function {symbol!r}")
    return found
