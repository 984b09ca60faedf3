"""Repeated numbers that are not packed: each has a tag of its own, one element behind the other.

ONNX's attributes are of proto2, which does not pack repeated numbers, and tree ensembles have millions of them. A run of equal
tags is decoded by NumPy in blocks: read one by one, each number takes as long as NumPy needs for a hundred.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ort_sdk.api import HostArray

__all__ = ["FEW_ELEMENTS", "decoded", "fixed_run", "growing_blocks", "varint_run"]

FEW_ELEMENTS = 32
"""Elements that are read one by one before a run is decoded at once: most lists, as those of shapes, are shorter."""
_FIRST_BLOCK, _LARGEST_BLOCK = 1 << 8, 1 << 16
"""Elements that are looked at first, and at most at a time: a run's end is not known before, and caches hold no more."""
_LONGEST = 10
"""Bytes of a number."""
_LAST_OF_PAIR = 0x80FF
"""Of a tag and the byte behind it: the tag, and whether the number goes on."""


def growing_blocks() -> Iterator[int]:
    """Elements of each block: as most runs are short, blocks grow."""
    size = _FIRST_BLOCK
    while True:
        yield size
        size = min(4 * size, _LARGEST_BLOCK)


def fixed_run(data: memoryview | bytes, tag: int, position: int, end: int, dtype: str) -> tuple[list[HostArray], int]:
    """Elements of four or eight bytes.

    Args:
        data: the model's bytes, or some of them.
        tag: of each element, one byte.
        position: of the first tag.
        end: of the message.
        dtype: of an element.

    Returns:
        The elements up to the first other tag, in pieces, and the position of that.
    """
    stride = 1 + np.dtype(dtype).itemsize
    found: list[HostArray] = []
    for most in growing_blocks():
        count = min(most, (end - position) // stride)
        if not count:
            return found, position
        tags = np.ndarray((count,), np.uint8, data, position, (stride,))
        is_other = tags != tag
        length = int(is_other.argmax()) if is_other.any() else count
        if length:
            found.append(np.ndarray((length,), dtype, data, position + 1, (stride,)).copy())
        position += length * stride
        if length < most:
            return found, position
    raise AssertionError("blocks do not end")


def varint_run(data: memoryview | bytes, tag: int, position: int, end: int) -> tuple[list[HostArray], int]:
    """Numbers of variable length. Arguments as for ``fixed_run``.

    Returns:
        The numbers up to the first other tag, or up to one that does not end, in pieces, as uint64, and the position of what
        follows them. A block has room for the longest number, so one without any is the end.
    """
    found: list[HostArray] = []
    for most in growing_blocks():
        content = np.frombuffer(data, np.uint8, min(end - position, 4 * most), position)
        numbers, length, is_over = _short_block(content, tag) or _varint_block(content, tag)
        found.append(numbers)
        position += length
        if is_over or not len(numbers):
            return found, position
    raise AssertionError("blocks do not end")


def _short_block(content: HostArray, tag: int) -> tuple[HostArray, int, bool] | None:
    """As ``_varint_block`` if all numbers are below 128; else None."""
    pairs = content[: content.size // 2 * 2].view("<u2")
    if not pairs.size or pairs[-1] & _LAST_OF_PAIR != tag or not (pairs & _LAST_OF_PAIR == tag).all():
        return None
    return (pairs >> 8).astype(np.uint64), 2 * pairs.size, False


def _varint_block(content: HostArray, tag: int) -> tuple[HostArray, int, bool]:
    """Numbers whose last byte is in a block; the bytes up to what is behind them; and whether something else follows."""
    # A tag is a number of one byte, too: tags and numbers take turns.
    ends = np.flatnonzero(content < 0x80)
    ends = ends[: len(ends) // 2 * 2]
    tag_at, last = ends[0::2], ends[1::2]
    lengths = last - tag_at
    is_other = (content[tag_at] != tag) | (lengths > _LONGEST)
    is_other[:1] |= tag_at[:1] != 0
    is_other[1:] |= tag_at[1:] != last[:-1] + 1
    count = int(is_other.argmax()) if is_other.any() else len(last)
    values = decoded(content, last[:count], lengths[:count])
    return values, int(last[count - 1]) + 1 if count else 0, count < len(last)


def decoded(content: HostArray, last: HostArray, lengths: HostArray) -> HostArray:
    """Numbers by where their last bytes, which are their highest, are in some content, and their lengths in bytes: as uint64."""
    values = content[last].astype(np.uint64)
    for index in range(1, int(lengths.max(initial=0))):
        # Where a number is shorter, the place before it, or of its tag, is read in vain.
        longer = (values << np.uint64(7)) | (content[last - np.minimum(lengths, index)] & np.uint8(0x7F))
        values = np.where(lengths > index, longer, values)
    return values
