"""Outlines: arrays that stand for traced values whose contents are not needed any more.

A program is made from the trace of one run, but of most values it needs only shape, type, order in memory, and which others they
share memory with. An outline has all of that as the array did, and takes address space only: pages that were never touched.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.memory.address_space import reserved

__all__ = ["SMALLEST_OUTLINED_BYTES", "Outlines"]

SMALLEST_OUTLINED_BYTES = 1 << 14
"""Bytes of memory from which a value gets an outline; smaller ones are kept."""
CHUNK_BYTES = 1 << 26
PAGE_BYTES = 4096


class _Block(NamedTuple):
    """Address space that stands for a piece of memory."""

    pages: HostArray
    start: int
    """First address of the memory."""
    nbytes: int


class _Outlined(NamedTuple):
    outline: HostArray
    block: _Block


class Outlines:
    """The outlines of one trace, by value."""

    def __init__(self) -> None:
        self._of: dict[int, _Outlined] = {}
        self._chunk: HostArray = np.empty(0, np.uint8)

    def draw(self, index: int, value: Any, inputs: Iterable[tuple[int, Any]]) -> None:
        """Prepare the outline of what a step just made, if it is an array in much memory of its own, or in an input's.

        Args:
            index: the value's number.
            value: it.
            inputs: number and value of what the step read: all arrays that the value may share memory with.
        """
        if not isinstance(value, np.ndarray) or value.dtype.hasobject:
            return
        root = _root(value)
        if root.nbytes < SMALLEST_OUTLINED_BYTES:
            return
        shared = [number for number, other in inputs if isinstance(other, np.ndarray) and np.may_share_memory(value, other)]
        block = self._new_block(root) if not shared else self._block_of(shared[0])
        outline = None if block is None else _outline(value, block)
        if block is not None and outline is not None:
            self._of[index] = _Outlined(outline, block)

    def of(self, index: int) -> HostArray | None:
        """The outline of a value; None if it has none."""
        found = self._of.get(index)
        return None if found is None else found.outline

    def forget_from(self, index: int) -> None:
        """Forget the values of this number and above."""
        for number in [number for number in self._of if number >= index]:
            del self._of[number]

    def _block_of(self, index: int) -> _Block | None:
        found = self._of.get(index)
        return None if found is None else found.block

    def _new_block(self, root: HostArray) -> _Block | None:
        start, end = np.lib.array_utils.byte_bounds(root)
        pages = self._take(end - start)
        return None if pages is None else _Block(pages, start, end - start)

    def _take(self, nbytes: int) -> HostArray | None:
        """New address space; None if there is none left."""
        rounded = -(-nbytes // PAGE_BYTES) * PAGE_BYTES
        if rounded > self._chunk.nbytes:
            chunk = reserved(max(rounded, CHUNK_BYTES), writable=False)
            if chunk is None:
                return None
            self._chunk = chunk
        taken, self._chunk = self._chunk[:nbytes], self._chunk[rounded:]
        return taken


def _root(array: HostArray) -> HostArray:
    """The array whose memory an array is in."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _outline(value: HostArray, block: _Block) -> HostArray | None:
    """An array in the block as the value is in the memory that it stands for; None if it reaches beyond."""
    start, end = np.lib.array_utils.byte_bounds(value)
    if start < block.start or end > block.start + block.nbytes:
        return None
    offset = value.ctypes.data - block.start
    return np.ndarray(value.shape, value.dtype, block.pages, offset, value.strides)
