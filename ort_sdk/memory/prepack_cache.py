"""A folder of packed weights, one file each, for models that are not saved again (``session.prepack_cache_dir``)."""

from __future__ import annotations

import json
import logging
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

from ort_sdk.api import Fail, HostArray, InvalidArgument, PrePackedWeights
from ort_sdk.loader.byte_source import ByteSource, map_descriptor
from ort_sdk.loader.checksum import checksum
from ort_sdk.loader.unfinished_file import UnfinishedFile, remove_leftovers

__all__ = ["PrepackCache"]

logger = logging.getLogger("ort_sdk.memory")

_MAGIC = b"ORTSDKPW"
_PREFIX = struct.Struct("<8sII")
"""Magic, bytes of the JSON text that follows, CRC-32 of that text."""
_MAX_HEADER_BYTES = 1 << 20
_ALIGNMENT_BYTES = 64
_SUFFIX = ".prepacked"
_TEMPORARY_NAME = "unfinished"
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class PrepackCache:
    """Finds and adds packed weights. Any number of processes may use one folder at once.

    A file is written whole before it gets its name, and never changed after. It is read under the process's shared map; key
    and checksums are verified before anything in it is used. Nothing is ever removed: delete files as you like.

    Args:
        folder: made if it is not there.

    Raises:
        InvalidArgument: it cannot be made, or is no folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidArgument(
                f"session.prepack_cache_dir: folder '{folder}' cannot be made: {error.strerror}; name another one"
            ) from error
        remove_leftovers(folder, _TEMPORARY_NAME)

    def load(self, key: str) -> PrePackedWeights | None:
        """Views of the file of a key; None if there is none, or it is damaged, which is logged."""
        path = self._path(key)
        try:
            descriptor = os.open(path, _FLAGS)
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

    def store(self, key: str, buffers: Sequence[HostArray]) -> PrePackedWeights | None:
        """Write the file of a key.

        Returns:
            The weights as views of the file, for use in place of those given; None if it cannot be written, which is logged.
        """
        path = self._path(key)
        try:
            with UnfinishedFile(self._folder, _TEMPORARY_NAME) as unfinished:
                _write(unfinished, key, buffers)
                unfinished.complete()
                unfinished.publish(path)
        except OSError as error:
            logger.warning("packed weight '%s' cannot be written: %s", path, error.strerror or error)
            return None
        return self.load(key)

    def _path(self, key: str) -> Path:
        import hashlib

        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:40]}{_SUFFIX}"


def _write(unfinished: UnfinishedFile, key: str, buffers: Sequence[HostArray]) -> None:
    described = [{"length": len(buffer), "checksum": checksum(buffer)} for buffer in buffers]
    header = json.dumps({"key": key, "buffers": described}).encode()
    file = unfinished.file
    file.write(_PREFIX.pack(_MAGIC, len(header), zlib.crc32(header)))
    file.write(header)
    for buffer in buffers:
        file.write(b"\0" * (-file.tell() % _ALIGNMENT_BYTES))
        file.write(buffer.data)


def _read(source: ByteSource, key: str) -> tuple[HostArray, ...] | None:
    """The buffers of a file, verified; None if it is not what was written for this key."""
    if len(source) < _PREFIX.size:
        return None
    magic, size, crc = _PREFIX.unpack(source.range(0, _PREFIX.size).tobytes())
    text = source.range(_PREFIX.size, size).tobytes() if size <= _MAX_HEADER_BYTES else b""
    if magic != _MAGIC or len(text) != size or zlib.crc32(text) != crc:
        return None
    described = _described_buffers(text, key)
    if described is None:
        return None
    end = _PREFIX.size + size
    found = []
    for length, value in described:
        offset = end + -end % _ALIGNMENT_BYTES
        end = offset + length
        if end > len(source) or source.checksum(offset, length) != value:
            return None
        found.append(source.range(offset, length))
    return tuple(found) if end == len(source) else None


def _described_buffers(text: bytes, key: str) -> list[tuple[int, int]] | None:
    """Length and checksum of each buffer, as the header of a key says; None if it is another key's, or no header."""
    try:
        header = json.loads(text)
        described = [(int(entry["length"]), int(entry["checksum"])) for entry in header["buffers"]]
        is_sound = header["key"] == key and bool(described) and all(length >= 0 for length, _ in described)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return described if is_sound else None
