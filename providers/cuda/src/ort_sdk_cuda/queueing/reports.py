"""What kernels report of contents that they cannot take, by the run that has them.

Kernels set bits of one word on the device. After each call with such kernels its value is copied to a word of the host, which is
the run's, and the device's is cleared: so a run that ends before its work is told of its own contents only.
"""

from __future__ import annotations

import collections

import numpy as np

from ort_sdk.api import InvalidArgument
from ort_sdk.device.status import fault_text

from .command_queue import CommandQueue
from .pinned import PinnedBuffer

__all__ = ["WORD_BYTES", "ReportWords", "RunReports"]

PAGE_BYTES = 4096
WORD_BYTES = 4


class _Word:
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

    def collect(self, run: RunReports) -> None:
        """Queue the copy of what kernels reported so far, for a run. The queue's commands are being queued."""
        queue = self._queue
        if not self._free:
            page = PinnedBuffer(queue, PAGE_BYTES)
            self._free.extend((page, place) for place in range(0, PAGE_BYTES, WORD_BYTES))
        word = _Word(*self._free.popleft(), self._free)
        queue.driver.copy_to_host(word.address, self.device_word, WORD_BYTES, queue.stream)
        queue.driver.fill_words(self.device_word, 0, 1, queue.stream)
        run.words.append(word)


class RunReports:
    """What the kernels of one run reported."""

    def __init__(self) -> None:
        self.words: list[_Word] = []

    def raise_first(self, device: str) -> None:
        """Raise what kernels reported, once. Their work is done.

        Args:
            device: its name.

        Raises:
            InvalidArgument: a kernel met contents that it cannot take.
        """
        words, self.words = self.words, []
        bits = 0
        for word in words:
            bits |= word.value
        if bits:
            raise InvalidArgument(f"kernels on {device}: {fault_text(bits)}")
