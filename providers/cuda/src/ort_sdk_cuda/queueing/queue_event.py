"""Points in a stream's work."""

from __future__ import annotations

from collections.abc import Sequence

from ort_sdk.device import RunEvent
from ort_sdk_cuda.driver import Handle

from .command_queue import CommandQueue
from .reports import ReportWord

__all__ = ["QueueEvent"]


class QueueEvent(RunEvent):
    """The end of the work that was queued so far.

    Args:
        queue: of the device.
        handle: the driver's event, which goes back to the queue with the object.
        words: what kernels of the run report to.
        is_timed: whether it has the device's time.
    """

    def __init__(self, queue: CommandQueue, handle: Handle, words: Sequence[ReportWord], *, is_timed: bool = False) -> None:
        super().__init__(queue.name)
        self.queue, self.handle = queue, handle
        self._words, self._is_timed = words, is_timed

    def is_reached(self) -> bool:
        with self.queue.waiting("asking for an event") as driver:
            return driver.event_is_done(self.handle)

    def reached(self) -> int:
        with self.queue.waiting("waiting for kernels") as driver:
            driver.synchronize_event(self.handle)
        words, self._words = self._words, ()
        bits = 0
        for word in words:
            bits |= word.value
        return bits

    def __del__(self) -> None:
        self.queue.return_event(self.handle, is_timed=self._is_timed)
