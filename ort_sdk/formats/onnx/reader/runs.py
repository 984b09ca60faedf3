"""Repeated fields that are not packed: each element has a tag of its own, one element behind the other.

ONNX's attributes are of proto2, which does not pack repeated numbers, and tree ensembles have millions of them. A run of equal
tags is decoded by NumPy in blocks: read one by one, each number takes as long as NumPy needs for a hundred.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ort_sdk.api import HostArray

__all__ = ["FEW_ELEMENTS", "ByteStrings", "fixed_run", "varint_run"]

FEW_ELEMENTS = 32
"""Elements that are read one by one before a run is decoded at once: most lists, as those of shapes, are shorter."""
_FIRST_BLOCK, _LARGEST_BLOCK = 1 << 8, 1 << 20
"""Elements, or bytes of strings, that are looked at first, and at most at a time: a run's end is not known before."""
_LONGEST = 10
"""Bytes of a number."""
_SHORT = 0x80
"""Lengths of strings below this are one byte."""


def _blocks() -> Iterator[int]:
    """Elements of each block: as most runs are short, blocks grow."""
    size = _FIRST_BLOCK
    while True:
        yield size
        size = min(4 * size, _LARGEST_BLOCK)


def fixed_run(data: memoryview | bytes, tag: int, position: int, end: int, dtype: str) -> tuple[HostArray, int]:
    """Elements of four or eight bytes.

    Args:
        data: the model's bytes, or some of them.
        tag: of each element, one byte.
        position: of the first tag.
        end: of the message.
        dtype: of an element.

    Returns:
        The elements up to the first other tag, and the position of that.
    """
    itemsize = np.dtype(dtype).itemsize
    found: list[HostArray] = []
    for most in _blocks():
        count = min(most, (end - position) // (1 + itemsize))
        rows = np.frombuffer(data, np.uint8, count * (1 + itemsize), position).reshape(count, 1 + itemsize)
        is_other = rows[:, 0] != tag
        length = int(is_other.argmax()) if is_other.any() else count
        found.append(np.ascontiguousarray(rows[:length, 1:]).view(dtype).reshape(length))
        position += length * (1 + itemsize)
        if length < most:
            return np.concatenate(found), position
    raise AssertionError("blocks do not end")


def varint_run(data: memoryview | bytes, tag: int, position: int, end: int) -> tuple[HostArray, int]:
    """Numbers of variable length. Arguments as for ``fixed_run``.

    Returns:
        The numbers up to the first other tag, or up to one that does not end, as uint64, and the position of what follows them.
        A block has room for the longest number, so one without any is the end.
    """
    found: list[HostArray] = []
    for most in _blocks():
        numbers, position, is_over = _varint_block(data, tag, position, min(end, position + 4 * most))
        found.append(numbers)
        if is_over or not len(numbers):
            return np.concatenate(found), position
    raise AssertionError("blocks do not end")


def _varint_block(data: memoryview | bytes, tag: int, position: int, stop: int) -> tuple[HostArray, int, bool]:
    """Numbers whose last byte is before ``stop``; the position behind them; and whether something else follows."""
    content = np.frombuffer(data, np.uint8, stop - position, position)
    # A tag is a number of one byte, too: tags and numbers take turns.
    ends = np.flatnonzero(content < 0x80)
    ends = ends[: len(ends) // 2 * 2]
    tag_at, last = ends[0::2], ends[1::2]
    starts = np.concatenate([[0], last[:-1] + 1])
    lengths = last - tag_at
    is_other = (content[tag_at] != tag) | (tag_at != starts) | (lengths > _LONGEST)
    count = int(is_other.argmax()) if is_other.any() else len(last)
    is_over = count < len(last)
    values = _decoded(content, tag_at[:count] + 1, lengths[:count])
    return values, position + (int(last[count - 1]) + 1 if count else 0), is_over


def _decoded(content: HostArray, starts: HostArray, lengths: HostArray) -> HostArray:
    values = (content[starts] & 0x7F).astype(np.uint64)
    for index in range(1, int(lengths.max(initial=0))):
        longer = lengths > index
        values[longer] |= (content[starts[longer] + index] & 0x7F).astype(np.uint64) << np.uint64(7 * index)
    return values


def _string_run(data: memoryview | bytes, tag: int, position: int, end: int) -> tuple[list[bytes], int]:
    """Strings of less than 128 bytes. Arguments as for ``fixed_run``.

    Returns:
        The strings up to the first other tag, longer string, or one that is not whole, and the position of that.
    """
    found: list[bytes] = []
    for most in _blocks():
        content = bytes(data[position : min(end, position + most)])
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


class ByteStrings:
    """Reads a list of bytes.

    Args:
        name: of the field.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def read(self, values: dict[str, Any], data: memoryview | bytes, tag: int, start: int, stop: int, end: int) -> int:
        """Read one, and those of the same field that follow it, if there are many; returns where they end."""
        read = values.setdefault(self._name, [])
        read.append(bytes(data[start:stop]))
        if len(read) < FEW_ELEMENTS or stop >= end or data[stop] != tag:
            return stop
        found, stop = _string_run(data, tag, stop, end)
        read += found
        return stop
