"""Writes archives of compiled kernels, and makes their entries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ort_sdk.api.distributions import version_of
from ort_sdk.api.sealed_files import replace_file
from ort_sdk_cpu.jit.elf.image import LinkError
from ort_sdk_cpu.jit.elf.linker import link
from ort_sdk_cpu.jit.elf.loader import HEADER_BYTES, file_content
from ort_sdk_cpu.platform.archives import archive_name, write_content
from ort_sdk_cpu.platform.digests import sealed

__all__ = ["compiler_versions", "content_entry", "image_entry", "write_archive"]

_OF_ALL_MACHINES = frozenset(
    {
        *("floorf", "fmaf", "memcpy", "memmove", "memset"),
        *("GOMP_barrier", "omp_get_num_threads", "omp_get_thread_num"),
    }
)
"""Functions of the C library and of OpenMP. LLVM calls others, too, of the compiler's runtime library, which is in no process."""


def write_archive(path: Path, entries: Mapping[str, bytes], description: Mapping[str, str]) -> None:
    """Write an archive for this process's target: whole, or not at all.

    Processes look for it under ``platform.archives.archive_name()``, in the folder ``platform.archives.PACKAGED``.

    Args:
        path: of the file; its folder must be there. One that is there is replaced.
        entries: name → content, as ``image_entry`` and ``content_entry`` return them, or as files of a cache folder have them.
        description: what else is said of the archive, beside the target: ``compiler``, ``sources``.

    Raises:
        OSError: the file cannot be written.
    """
    about = {"target": archive_name().removesuffix(".kernels"), **description}
    replace_file(path, lambda file: write_content(file, about, entries))


def image_entry(name: str, symbol: str, code: bytes) -> tuple[str, bytes]:
    """Name and content of the entry of a function.

    Args:
        name: of the function's code, as the code store knows it.
        symbol: the function in the object file.
        code: the object file.

    Raises:
        LinkError: the file has sections or relocations that images do not support, or no such function; or it calls functions
            that not every machine has.
    """
    file, image = f"{name}.image", link(code, symbol, HEADER_BYTES)
    foreign = {pointer.symbol for pointer in image.pointers if pointer.symbol} - _OF_ALL_MACHINES
    if foreign:
        raise LinkError(
            f"the code {name} for {archive_name()} calls {', '.join(sorted(foreign))}, which machines may lack; archives' code "
            f"may call {', '.join(sorted(_OF_ALL_MACHINES))}"
        )
    return file, file_content(image, file)


def content_entry(name: str, content: bytes) -> tuple[str, bytes]:
    """Name and content of an entry that is no image."""
    return name, sealed(name, content)


def compiler_versions() -> str:
    """What makes code in this process."""
    import llvmlite.binding as llvm

    version: Any = llvm.llvm_version_info
    return f"numba {version_of('numba')}, llvmlite {version_of('llvmlite')}, LLVM {'.'.join(map(str, version))}"
