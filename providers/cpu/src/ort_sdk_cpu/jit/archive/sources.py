"""Digests of the sources that compiled code is made from: code is named by them, so that an edited source never runs old code.

A module's code depends on the module and on those it imports, from file to file: numba inlines what they define. What it does not
depend on is not read, as a process computes these digests before its first kernel runs.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.platform.digests import digest, short_digest

__all__ = ["PACKAGE", "compiled_modules", "files_of_compiler", "forget", "sources_digest", "sources_of"]

PACKAGE = Path(__file__).parents[2]
"""Folder of the package."""
_COMPILER = (
    *("jit/argument_types.py", "jit/arguments.py", "jit/extents/sizes.py", "jit/llvm.py", "jit/numba_frontend.py"),
    *("jit/elf/linker.py", "jit/elf/object_file.py", "platform/targets.py"),
)
"""Files that decide what code becomes of any source."""
_OWN = PACKAGE
"""Where these files are, also while other sources are looked at."""
_FOLDERS_OF_COMPILER = frozenset({"jit", "platform"})
_NAME = Path(__file__).parents[2].name
_IMPORT = rb"^[ \t]*from (\.*)([\w.]*) import (\([^)]*\)|[^\n#]*)"
_WORD = r"[A-Za-z_]\w*"
"""Compiled when a source is read, which an installed package whose archive is used does not do."""


@dataclass(frozen=True, slots=True)
class _Source:
    digest: bytes
    imports: tuple[tuple[int, str, str], ...]
    """Leading dots, module and names of each import."""


def compiled_modules() -> list[str]:
    """Modules of compiled tasks, below the package, sorted."""
    paths = [path for pattern in ("*/compiled/*.py", "*/*/compiled/*.py") for path in PACKAGE.glob(pattern)]
    return sorted(".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in paths if path.stem != "__init__")


@functools.cache
def sources_digest(*modules: str) -> str:
    """Digest of all sources that the code of some modules depends on.

    Args:
        modules: names below the package.
    """
    found = {path: _source(PACKAGE / path).digest for path in sources_of(*modules)}
    return short_digest(_compiler_digest(), *(part for path in sorted(found) for part in (path, found[path])))


def sources_of(*modules: str) -> set[str]:
    """Paths, below the package, of some modules and of those that they import, directly or not, without the compiler's own.

    Args:
        modules: names below the package.

    Raises:
        FileNotFoundError: there is no such module.
    """
    found: set[str] = set()
    waiting = [f"{module.replace('.', '/')}.py" for module in modules]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported(path)
    return found


def files_of_compiler() -> tuple[str, ...]:
    """Paths, below the package, of the files that decide what code becomes of any source."""
    return _COMPILER


def forget() -> None:
    """Read sources anew when they are asked for next, as a new process does."""
    for function in (sources_digest, _source, _is_file, _imported):
        function.cache_clear()


@functools.cache
def _compiler_digest() -> bytes:
    return digest(*((_OWN / path).read_bytes() for path in _COMPILER))


@functools.cache
def _source(path: Path) -> _Source:
    content = path.read_bytes()
    found = re.findall(_IMPORT, content, re.MULTILINE)
    imports = tuple((len(dots), module.decode(), names.decode()) for dots, module, names in found)
    return _Source(digest(content), imports)


@functools.cache
def _imported(path: str) -> tuple[str, ...]:
    """Paths of what a file imports from this package."""
    folders = path.split("/")[:-1]
    return tuple(
        found for dots, module, names in _source(PACKAGE / path).imports for found in _paths(_parts(folders, dots, module), names)
    )


def _parts(folders: list[str], dots: int, module: str) -> list[str] | None:
    """Folders and name of an imported module, below the package; None if it is not of the package or part of the compiler."""
    parts = module.split(".") if module else []
    if not dots:
        parts = parts[1:] if parts[:1] == [_NAME] else []
        return parts if parts and parts[0] not in _FOLDERS_OF_COMPILER else None
    return [*folders[: len(folders) - dots + 1], *parts]


def _paths(parts: list[str] | None, names: str) -> Iterator[str]:
    if parts is None:
        return
    module = "/".join(parts)
    if _is_file(f"{module}.py"):
        yield f"{module}.py"
        return
    for name in re.findall(_WORD, names):
        if _is_file(f"{module}/{name}.py"):
            yield f"{module}/{name}.py"


@functools.cache
def _is_file(path: str) -> bool:
    return (PACKAGE / path).is_file()
