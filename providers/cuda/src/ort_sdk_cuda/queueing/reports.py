"""What kernels report of contents that they cannot take, by the run that has them.

Kernels set bits of one word on the device. After each call with such kernels its value is copied to a word of the host, which is
the run's, and the device's is cleared: so a run that ends before its work raises what its own contents were, and no other's.
"""

from __future__ import annotations

import collections

import numpy as np

from .command_queue import CommandQueue
from .pinned import PinnedBuffer

__all__ = ["WORD_BYTES", "ReportWord", "ReportWords"]

PAGE_BYTES = 4096
WORD_BYTES = 4


class ReportWord:
    """A word of the host, which is used again when nobody refers to it any more: copies are in order."""

    __slots__ = ("_free", "_page", "_place")

    def __init__(self, page: PinnedBuffer, place: int, free: collections.deque[tuple[PinnedBuffer, int]]) -> None:
        self._page, self._place, self._free = page, place, free

    @property
    def address(self) -> int:
        return self._page.address + self._place

    @property
    def value(self) -> int:
        """Its bits, once the copy to it is done."""
        return int(self._page.array[self._place : self._place + WORD_BYTES].view(np.uint32)[0])

    def __del__(self) -> None:
        self._free.append((self._page, self._place))


class ReportWords:
    """The device's word, and those of the host.

    Args:
        queue: of the device, whose commands are being queued.
        device_word: address of a word of the device.
    """

    def __init__(self, queue: CommandQueue, device_word: int) -> None:
        self._queue = queue
        self._free: collections.deque[tuple[PinnedBuffer, int]] = collections.deque()
        self.device_word = device_word
        """The last argument of kernels that report."""
        queue.driver.fill_words(self.device_word, 0, 1, queue.stream)

    def collect(self, run: list[ReportWord]) -> None:
        """Queue the copy of what kernels reported so far, for a run. The queue's commands are being queued."""
        queue = self._queue
        if not self._free:
            page = PinnedBuffer(queue, PAGE_BYTES)
            self._free.extend((page, place) for place in range(0, PAGE_BYTES, WORD_BYTES))
        word = ReportWord(*self._free.popleft(), self._free)
        queue.driver.copy_to_host(word.address, self.device_word, WORD_BYTES, queue.stream)
        queue.driver.fill_words(self.device_word, 0, 1, queue.stream)
        run.append(word)
