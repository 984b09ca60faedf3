"""A folder of packed weights, one file each, for models that are not saved again (``session.prepack_cache_dir``)."""

from __future__ import annotations

import json
import logging
import os
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from ort_sdk.api import Allocator, Fail, HostArray, InvalidArgument, NotPacked, PrePackedWeights
from ort_sdk.api.file_trust import file_mode, make_private_folder, open_trusted_file, require_trusted_folder
from ort_sdk.formats.files.byte_source import ByteSource, map_descriptor
from ort_sdk.formats.files.checksum import checksum
from ort_sdk.formats.files.file_memory import FileMemory
from ort_sdk.formats.files.unfinished_file import UnfinishedFile, remove_leftovers

from .storable import is_storable

__all__ = ["PrepackCache"]

logger = logging.getLogger("ort_sdk.memory")

_MAGIC = b"ORTSDKP2"
_PREFIX = struct.Struct("<8sQII")
"""Magic, offset and bytes of the JSON text at the file's end, CRC-32 of that text."""
_MAX_HEADER_BYTES = 1 << 20
_ALIGNMENT_BYTES = 64
_SUFFIX = ".prepacked"
_TEMPORARY_NAME = "unfinished"

Pack = Callable[[Allocator], "PrePackedWeights | NotPacked"]
"""``pack(allocator)`` gives a packed weight, made in memory of the allocator's or elsewhere."""


class PrepackCache:
    """Finds and adds packed weights. Any number of processes may use one folder at once.

    A file is written whole before it gets its name, and never changed after. It is read under the process's shared map; key
    and checksums are verified before anything in it is used. Nothing is ever removed: delete files as you like. Folder and
    files are used as far as ``ort_sdk.api.file_trust`` trusts them.

    Args:
        folder: an existing folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._has_warned = False
        remove_leftovers(folder, _TEMPORARY_NAME)

    @classmethod
    def opened(cls, folder: Path) -> PrepackCache | None:
        """The cache in a folder, which is made, for the user alone, if it is not there.

        Returns:
            None if the system refuses to make it, or somebody else may write it, which is logged.

        Raises:
            InvalidArgument: something else is there.
        """
        folder = Path(os.path.realpath(folder))
        try:
            make_private_folder(folder)
            require_trusted_folder(folder)
        except (FileExistsError, NotADirectoryError) as error:
            raise InvalidArgument(
                f"session.prepack_cache_dir: folder '{folder}' cannot be made: {error.strerror}; name another one"
            ) from error
        except OSError as error:
            logger.warning(
                "packed weights are not kept: folder '%s' cannot be used: %s; a folder that is not there is made for you alone",
                folder,
                error.strerror or error,
            )
            return None
        return cls(folder)

    def load(self, key: str) -> PrePackedWeights | None:
        """Views of the file of a key; None if there is none, or it is damaged or not trusted, which is logged."""
        path = self._path(key)
        try:
            descriptor = open_trusted_file(self._folder, path.name)
        except FileNotFoundError:
            return None
        except OSError as error:
            logger.warning("packed weight '%s' cannot be opened (%s); it is packed anew", path, error.strerror)
            return None
        try:
            source = map_descriptor(descriptor, f"'{path}'")
        except Fail as error:
            logger.warning("packed weight '%s' cannot be mapped (%s); it is packed anew", path, error.text)
            return None
        finally:
            os.close(descriptor)
        buffers = _read(source, key)
        if buffers is None:
            logger.warning("packed weight '%s' is damaged; it is packed anew", path)
            return None
        return PrePackedWeights(buffers)

    def fill(self, key: str, pack: Pack) -> PrePackedWeights | NotPacked:
        """Pack a weight and write the file of a key.

        Args:
            key: the weight's.
            pack: gives the packed weight; what it makes in the memory it is given is in the file already.

        Returns:
            The weights as views of the file; what ``pack`` gave if that cannot be in a file, or none can be written, which is
            logged.
        """
        path = self._path(key)
        with _Target(self._folder) as target:
            weights = pack(target.memory)
            if not isinstance(weights, PrePackedWeights) or not is_storable(weights):
                return weights
            try:
                target.write(key, weights.buffers)
                target.publish(path)
            except OSError as error:
                self._warn_unwritten(path, error)
                return weights
        return self.load(key) or weights

    def _warn_unwritten(self, path: Path, error: OSError) -> None:
        """Log the first file that cannot be written; of a full or a read-only folder, the others cannot be either."""
        level = logging.DEBUG if self._has_warned else logging.WARNING
        self._has_warned = True
        logger.log(level, "packed weight '%s' cannot be written: %s", path, error.strerror or error)

    def _path(self, key: str) -> Path:
        import hashlib

        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:40]}{_SUFFIX}"


class _Target:
    """The file of one weight being written; made when there is something to write."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._unfinished: UnfinishedFile | None = None
        self.memory = FileMemory(self._reserve)
        """For the packed weight."""

    def write(self, key: str, buffers: Sequence[HostArray]) -> None:
        """Write the buffers that are not in the file, and the header.

        Raises:
            OSError: the file system refuses.
        """
        described = [{"offset": self._offset(buffer), "length": len(buffer), "checksum": checksum(buffer)} for buffer in buffers]
        self.memory.forget()
        header = json.dumps({"key": key, "buffers": described}).encode()
        file, offset = self._reserve(len(header))
        file.write(header)
        file.truncate()
        file.seek(0)
        file.write(_PREFIX.pack(_MAGIC, offset, len(header), zlib.crc32(header)))

    def publish(self, path: Path) -> None:
        """Give the file its name.

        Raises:
            OSError: the file system refuses.
        """
        unfinished = self._opened()
        unfinished.complete()
        unfinished.publish(path, sync_folder=False)

    def _opened(self) -> UnfinishedFile:
        if self._unfinished is None:
            self._unfinished = UnfinishedFile(self._folder, _TEMPORARY_NAME, file_mode(self._folder))
        return self._unfinished

    def _reserve(self, _nbytes: int) -> tuple[IO[bytes], int]:
        """The file, at the next offset for an object."""
        file = self._opened().file
        end = max(file.tell(), _PREFIX.size)
        return file, file.seek(end + -end % _ALIGNMENT_BYTES)

    def _offset(self, buffer: HostArray) -> int:
        """Where a buffer is, written now if it is elsewhere."""
        offset = self.memory.offset_of(buffer)
        if offset is None:
            file, offset = self._reserve(len(buffer))
            file.write(buffer.data)
        return offset

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /) -> None:
        if self._unfinished is not None:
            self._unfinished.close()


def _read(source: ByteSource, key: str) -> tuple[HostArray, ...] | None:
    """The buffers of a file, verified; None if it is not what was written for this key."""
    text = _header(source)
    described = None if text is None else _described_buffers(text, key)
    if text is None or described is None:
        return None
    end = len(source) - len(text)
    for offset, length, value in described:
        if offset % _ALIGNMENT_BYTES or offset + length > end or source.checksum(offset, length) != value:
            return None
    return tuple(source.range(offset, length) for offset, length, _ in described)


def _header(source: ByteSource) -> bytes | None:
    """The JSON text of a complete file."""
    if len(source) < _PREFIX.size:
        return None
    magic, offset, size, crc = _PREFIX.unpack(source.range(0, _PREFIX.size).tobytes())
    if magic != _MAGIC or size > _MAX_HEADER_BYTES or offset < _PREFIX.size or offset + size != len(source):
        return None
    text = source.range(offset, size).tobytes()
    return text if zlib.crc32(text) == crc else None


def _described_buffers(text: bytes, key: str) -> list[tuple[int, int, int]] | None:
    """Offset, length and checksum of each buffer, as the header of a key says; None if it is another key's, or no header."""
    try:
        header = json.loads(text)
        described = [(int(entry["offset"]), int(entry["length"]), int(entry["checksum"])) for entry in header["buffers"]]
        is_sound = header["key"] == key and bool(described) and all(min(entry) >= 0 for entry in described)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return described if is_sound else None
