"""Archives of compiled kernels: one file with the code of many kernels for one target, which wheels carry.

An archive is a header, a description, an index and the entries. The header has a digest over all that comes before the entries.
The index has one row for each entry, sorted by the digest of its name, and is searched in place. Entries are files
as a cache folder keeps them, each with a digest over its name and content, and begin at pages, so that code is mapped where it
is. Nothing is believed of an archive before it was checked against the file's size.
"""

from __future__ import annotations

import bisect
import functools
import os
import platform
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from ort_sdk.api import RuntimeException
from ort_sdk.api.data_classes import NamedTuple, dataclass

from .digests import DIGEST_BYTES, digest
from .targets import current_target

__all__ = [
    "PACKAGED",
    "Archive",
    "ArchiveError",
    "Candidate",
    "archive_name",
    "archives",
    "candidates",
    "open_archive",
    "platform_name",
    "write_content",
]

PACKAGED = Path(__file__).parents[1] / "kernels"
"""Folder of the archives that the installed package brought; there is none in a source tree."""

_FORMAT = b"kernels1"
_HEADER = struct.Struct(f"<{DIGEST_BYTES}s8sQQQ")
"""Digest of all that follows up to the first entry, format identifier, bytes of the file and of the description, entries."""
_ROW = struct.Struct("<16sQQ")
"""Digest of an entry's name, its offset and its bytes."""
_KEY_BYTES = 16
_PAGE = 4096
_MOST_INDEXED = 1 << 26
"""Most bytes before the entries: a damaged header must not make a process read gigabytes."""
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)


class ArchiveError(RuntimeException):
    """A file is no archive for this process, or damaged."""


class Entry(NamedTuple):
    """Where an entry is in its file."""

    offset: int
    size: int


class _Identity(NamedTuple):
    """What changes if a file is replaced or written to."""

    device: int
    number: int
    size: int
    modified: int


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive whose header, description and index were checked.

    Args:
        path: of the file.
        description: what is said of all entries, by name: target, compiler, sources.
        rows: the index.
        identity: of the file as it was checked.
        open_file: opens the file again; the archive holds no descriptor, which a program may close with all others.
    """

    path: Path
    description: Mapping[str, str]
    rows: bytes
    identity: _Identity
    open_file: Callable[[], int]

    @property
    def count(self) -> int:
        """Number of entries."""
        return len(self.rows) // _ROW.size

    def find(self, name: str) -> Entry | None:
        """Place of an entry; None if there is none of this name.

        Raises:
            ArchiveError: the index has a place outside of the file.
        """
        wanted, keys = _key(name), range(self.count)
        position = bisect.bisect_left(keys, wanted, key=self._key_at)
        if position == self.count or self._key_at(position) != wanted:
            return None
        _, offset, size = _ROW.unpack_from(self.rows, position * _ROW.size)
        if offset % _PAGE or offset + size > self.identity.size:
            raise ArchiveError(f"{self.path} has an entry of {size} bytes at {offset} and is {self.identity.size} bytes long")
        return Entry(offset, size)

    def _key_at(self, position: int) -> bytes:
        start = position * _ROW.size
        return self.rows[start : start + _KEY_BYTES]

    def opened(self) -> int:
        """A descriptor of the file, for the caller to close.

        Raises:
            ArchiveError: the file is another one than was checked.
            OSError: it cannot be opened.
        """
        file = self.open_file()
        if _identity(file) != self.identity:
            os.close(file)
            raise ArchiveError(f"{self.path} was changed while this process used it")
        return file


def _key(name: str) -> bytes:
    return digest(name.encode())[:_KEY_BYTES]


def _identity(file: int) -> _Identity:
    status = os.fstat(file)
    return _Identity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def platform_name() -> str:
    """Architecture and system that code of this process is for."""
    return f"{platform.machine().lower()}-{sys.platform}"


def archive_name() -> str:
    """File name of archives for this process's target."""
    return f"{platform_name()}-{current_target().name}.kernels"


def open_archive(path: Path, open_file: Callable[[], int]) -> Archive:
    """Open an archive for this process's target.

    Args:
        path: of the file.
        open_file: returns a new descriptor of it.

    Raises:
        ArchiveError: it is damaged, of another format or for another target.
        OSError: it cannot be read.
    """
    file = open_file()
    try:
        identity = _identity(file)
        description, rows = _indexed(path, file, identity.size)
    finally:
        os.close(file)
    fields = dict(line.partition(" ")[::2] for line in description.decode(errors="replace").splitlines())
    if fields.get("target") != archive_name().removesuffix(".kernels"):
        raise ArchiveError(f"{path} is for {fields.get('target')}, this process runs {archive_name().removesuffix('.kernels')}")
    return Archive(path, fields, rows, identity, open_file)


def _indexed(path: Path, file: int, size: int) -> tuple[bytes, bytes]:
    """Description and index of a file, whose digest was checked."""
    header = os.pread(file, _HEADER.size, 0)
    if len(header) < _HEADER.size:
        raise ArchiveError(f"{path} has {size} bytes, fewer than an archive's header")
    wanted, found, whole, described, count = _HEADER.unpack(header)
    if found != _FORMAT:
        raise ArchiveError(f"{path} is of the format {found!r}; this version reads {_FORMAT!r}")
    indexed = described + count * _ROW.size
    if whole != size or indexed > min(size, _MOST_INDEXED):
        raise ArchiveError(f"{path} is {size} bytes long; its header says {whole}, with {indexed} of them before the entries")
    content = os.pread(file, indexed, _HEADER.size)
    if digest(header[DIGEST_BYTES:], content) != wanted:
        raise ArchiveError(f"{path} is damaged: its index does not fit its digest")
    return content[:described], content[described:]


class Candidate(NamedTuple):
    """A file that was looked for."""

    path: Path
    archive: Archive | None
    """None if it is not used."""
    reason: str
    """Why it is not used; empty if it is used, or missing."""


@functools.cache
def candidates() -> tuple[Candidate, ...]:
    """The package's archive for this process's target, used or not; none where there are no archives for the system.

    Whoever can write the package's folder can write its code, so that nothing else is asked of its owner.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return ()
    name = archive_name()
    packaged = PACKAGED / name
    return (_candidate(packaged, lambda: os.open(packaged, _READ_FLAGS)),)


def _candidate(path: Path, open_file: Callable[[], int]) -> Candidate:
    try:
        return Candidate(path, open_archive(path, open_file), "")
    except FileNotFoundError:
        return Candidate(path, None, "")
    except ArchiveError as error:
        return Candidate(path, None, error.text)
    except OSError as error:
        return Candidate(path, None, error.strerror or str(error))


@functools.cache
def archives() -> tuple[Archive, ...]:
    """The archives that this process uses."""
    return tuple(candidate.archive for candidate in candidates() if candidate.archive is not None)


def write_content(file: BinaryIO, description: Mapping[str, str], entries: Mapping[str, bytes]) -> None:
    """Write an archive's bytes.

    Args:
        file: to write to.
        description: what is said of all entries, by name, without line ends.
        entries: name → content.
    """
    described = "".join(f"{name} {value}\n" for name, value in description.items()).encode()
    first = _HEADER.size + len(described) + len(entries) * _ROW.size
    names = sorted(entries, key=_key)
    places = list(_placed(first, [len(entries[name]) for name in names]))
    end = places[-1].offset + places[-1].size if places else first
    rows = b"".join(_ROW.pack(_key(name), *place) for name, place in zip(names, places, strict=True))
    header = _HEADER.pack(bytes(DIGEST_BYTES), _FORMAT, end, len(described), len(entries))[DIGEST_BYTES:]
    file.write(digest(header, described, rows) + header + described + rows)
    position = first
    for name, place in zip(names, places, strict=True):
        file.write(bytes(place.offset - position) + entries[name])
        position = place.offset + place.size


def _placed(first: int, sizes: Iterable[int]) -> Iterator[Entry]:
    """Places of entries of these sizes, from an offset on."""
    end = first
    for size in sizes:
        offset = end + -end % _PAGE
        yield Entry(offset, size)
        end = offset + size
