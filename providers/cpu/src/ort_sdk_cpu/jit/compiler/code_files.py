"""Files of compiled code: images, which are mapped, and object files, which LLVM loads where images cannot be used."""

from __future__ import annotations

import contextlib

from ort_sdk.api import RuntimeException
from ort_sdk_cpu.jit import cache_folder
from ort_sdk_cpu.jit.archive.lookup import is_archived, map_archived
from ort_sdk_cpu.jit.cache_files import is_file_cached, read_cached, write_atomically, write_cached
from ort_sdk_cpu.jit.elf.image import LinkError, can_link
from ort_sdk_cpu.jit.elf.loader import HEADER_BYTES, can_map, file_content, map_content, map_file
from ort_sdk_cpu.platform.targets import ISA_VARIABLE, TARGET_VARIABLE, current_target, is_for_building

__all__ = ["has_file", "has_sound_file", "load_content", "load_file", "write_code"]

IMAGE, OBJECT = ".image", ".o"


def has_file(name: str) -> bool:
    """Whether an archive or a cache folder has a function's file; its content is not checked."""
    return is_archived(f"{name}{IMAGE}") or any(is_file_cached(f"{name}{suffix}") for suffix in (IMAGE, OBJECT))


def has_sound_file(name: str) -> bool:
    """Whether a cache folder has a function's file that is trusted and undamaged."""
    return any(read_cached(f"{name}{suffix}") is not None for suffix in (IMAGE, OBJECT))


def load_file(name: str) -> int | None:
    """Load a function; returns its address, None if neither an archive nor a cache folder has it, trusted and undamaged.

    Raises:
        RuntimeException: this process makes code for other machines.
    """
    _require_own_target()
    file = f"{name}{IMAGE}"
    found = (map_archived(file) or _mapped(file)) if can_link() else None
    if found is not None:
        return found
    content = read_cached(f"{name}{OBJECT}")
    return None if content is None else _loaded_object(content)


def write_code(name: str, symbol: str, code: bytes) -> tuple[str, bytes, bool]:
    """Link an object file, if this machine's can be linked and mapped, and write it to the cache folder.

    Args:
        name: of the function's file, without suffix.
        symbol: the function's.
        code: the object file.

    Returns:
        The file's name, its content, and whether it was written.
    """
    from ort_sdk_cpu.jit.elf.linker import link

    with contextlib.suppress(LinkError):
        if can_link() and can_map():
            file = f"{name}{IMAGE}"
            content = file_content(link(code, symbol, HEADER_BYTES), file)
            return file, content, write_atomically(file, content)
    file, content = f"{name}{OBJECT}", symbol.encode() + b"\n" + code
    return file, content, write_cached(file, content)


def load_content(file: str, content: bytes) -> int | None:
    """Load a function from what ``write_code`` returned; returns its address, None for an image that is damaged.

    Raises:
        OSError: the system does not allow executable memory.
        RuntimeException: the object file has no such function.
    """
    return map_content(content, file) if file.endswith(IMAGE) else _loaded_object(content)


def _require_own_target() -> None:
    if is_for_building():
        raise RuntimeException(
            f"compiled code was to be run while {TARGET_VARIABLE} is {current_target().name!r}: such a process makes code for "
            f"machines of this target, and runs none; unset it, or force a level of this machine by {ISA_VARIABLE}"
        )


def _mapped(file: str) -> int | None:
    for folder in cache_folder.kernel_folders().readable:
        # The system may not allow executable mappings; LLVM may still be able to load the object file.
        with contextlib.suppress(OSError):
            found = map_file(folder, file)
            if found is not None:
                return found
    return None


def _loaded_object(content: bytes) -> int:
    from ort_sdk_cpu.jit.llvm import load_object

    symbol, _, code = content.partition(b"\n")
    found = load_object(code, symbol.decode())
    if not found:
        raise RuntimeException(f"compiled code has no function {symbol.decode()!r}")
    return found
