"""Repeated strings: each has a tag and a length of its own, one behind the other; see ``runs``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.api.long_lists import MANY_ELEMENTS, CodedList
from ort_sdk.formats.few_strings import FewStrings, codes_of

from .runs import FEW_ELEMENTS, growing_blocks

__all__ = ["ByteStrings"]

_SHORT = 0x80
"""Lengths of strings below this are one byte."""
_BYTES, _LEAST_BYTES = 16, 6
"""Of a string with its tag and length, about; and so few that many strings would be short."""


class ByteStrings:
    """Reads a list of bytes.

    Args:
        name: of the field.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def read(self, values: dict[str, Any], data: memoryview | bytes, tag: int, start: int, stop: int, end: int) -> int:
        """Read one, and those of the same field that follow it, if there are many; returns where they end."""
        read = values.get(self._name)
        if read.__class__ is not list:
            read = values[self._name] = list(read or ())
        read.append(bytes(data[start:stop]))
        if len(read) < FEW_ELEMENTS or stop >= end or data[stop] != tag:
            return stop
        if len(read) == FEW_ELEMENTS and end - stop >= MANY_ELEMENTS * _LEAST_BYTES:
            found, stop = _few_different(data, tag, stop, end, read)
            if stop >= end or data[stop] != tag:
                values[self._name] = found
                return stop
            read = values[self._name] = list(found)
        others, stop = _string_run(data, tag, stop, end)
        read += others
        return stop


def _few_different(data: memoryview | bytes, tag: int, position: int, end: int, before: list[bytes]) -> tuple[list[bytes], int]:
    """Strings of less than 128 bytes of which few are different, in a list that does not make them.

    Args:
        data: the model's bytes, or some of them.
        tag: of each string, one byte.
        position: of the first tag.
        end: of the message.
        before: the first ones of the list.

    Returns:
        The list as far as it is so, and the position of what follows.
    """
    strings = FewStrings()
    codes = [np.array([strings.code(each) for each in before])]
    if len(strings.values) > FEW_ELEMENTS // 2:
        return before, position
    for most in growing_blocks():
        content = np.frombuffer(data, np.uint8, min(end - position, _BYTES * most), position)
        starts, lengths, length = _records(content, tag)
        found = codes_of(content, starts, lengths, strings)
        if found is None:
            break
        codes.append(found)
        position += length
        # A block has room for a string at its end. One that contains the byte of its tag is found alone each time: too slow.
        if content.size - length > _SHORT + 1 or not length:
            break
    return CodedList(strings.values, np.concatenate(codes, dtype=np.uint8, casting="unsafe")), position


def _records(content: HostArray, tag: int) -> tuple[HostArray, HostArray, int]:
    """Where strings start, their lengths, and where the last one ends: as many as stand behind each other, none in part."""
    # Most strings do not contain the byte of their tag. If one does, that place and the one before it do not follow each other.
    at = np.flatnonzero(content[:-1] == tag)
    if not at.size or at[0]:
        return at[:0], at[:0], 0
    lengths = content[at + 1].astype(np.intp)
    following = at + 2 + lengths
    is_sound = (lengths < _SHORT) & (following <= content.size)
    is_sound[1:] &= following[:-1] == at[1:]
    count = int(is_sound.argmin()) if not is_sound.all() else at.size
    return at[:count] + 2, lengths[:count], int(following[count - 1]) if count else 0


def _string_run(data: memoryview | bytes, tag: int, position: int, end: int) -> tuple[list[bytes], int]:
    """Strings of less than 128 bytes. Arguments as for ``_few_different``.

    Returns:
        The strings up to the first other tag, longer string, or one that is not whole, and the position of that.
    """
    found: list[bytes] = []
    for most in growing_blocks():
        content = bytes(data[position : min(end, position + _BYTES * most)])
        start, size = 0, len(content)
        while start + 1 < size and content[start] == tag and content[start + 1] < _SHORT:
            stop = start + 2 + content[start + 1]
            if stop > size:
                break
            found.append(content[start + 2 : stop])
            start = stop
        position += start
        # A block has room for more than one short string.
        if size - start > _SHORT + 1 or not start or position >= end:
            return found, position
    raise AssertionError("blocks do not end")
