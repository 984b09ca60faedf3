"""What is said of archives and cache folders of compiled kernels to who asks which are used, and why others are not."""

from __future__ import annotations

from collections.abc import Iterator

from ort_sdk_cpu.jit.cache_folder import CACHE_VARIABLE, kernel_folders
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.archives import Candidate, candidates
from ort_sdk_cpu.platform.targets import current_target

from .sources import compiled_modules, sources_digest

__all__ = ["report"]


def report() -> list[str]:
    """Which archive and which cache folder are used, and why others are not: one line each."""
    if libraries.DISABLED_KERNELS in libraries.disabled():
        return []
    return [f"code for the target {current_target().name}", *map(_of_archive, candidates()), *_of_folders()]


def _of_archive(found: Candidate) -> str:
    if found.archive is None:
        return f"archive {found.path}: not used: {found.reason or 'missing'}"
    about = found.archive.description
    text = f"archive {found.path}: {found.archive.count} kernels, made by {about.get('compiler', 'an unknown compiler')}"
    if about.get("sources") in {sources_digest(*compiled_modules()), None}:
        return text
    return f"{text}, from other sources: kernels whose sources were changed are not taken from it"


def _of_folders() -> Iterator[str]:
    folders = kernel_folders()
    for folder, reason in folders.unused:
        yield f"cache folder {folder}: not used: {reason}"
    for folder in folders.readable:
        yield f"cache folder {folder}: {'read and written' if folder == folders.writable else 'read'}"
    if folders.writable is None:
        yield f"what is compiled is not kept, as no cache folder can be written: set {CACHE_VARIABLE}"
