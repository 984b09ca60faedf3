"""Points in a stream's work."""

from __future__ import annotations

from ort_sdk_cuda.driver import Handle

from .command_queue import CommandQueue
from .reports import RunReports

__all__ = ["QueueEvent"]


class QueueEvent:
    """The end of the work that was queued so far; see the contract's ``Event``.

    Args:
        queue: of the device.
        handle: the driver's event, which goes back to the queue with the object.
        run: whose work it ends.
        is_timed: whether the time between two of them can be asked for.
    """

    def __init__(self, queue: CommandQueue, handle: Handle, run: RunReports, *, is_timed: bool = False) -> None:
        self.queue, self.handle = queue, handle
        self._run, self._is_timed = run, is_timed

    @property
    def is_done(self) -> bool:
        """Whether it has happened, as far as is known without waiting."""
        with self.queue.waiting("asking for an event") as driver:
            return driver.event_is_done(self.handle)

    def wait(self) -> None:
        """Block until it has happened.

        Raises:
            InvalidArgument: a kernel of the run met contents that it cannot take.
            DeviceReset: the device is lost.
        """
        with self.queue.waiting("waiting for kernels") as driver:
            driver.synchronize_event(self.handle)
        self._run.raise_first(self.queue.name)

    def __del__(self) -> None:
        self.queue.return_event(self.handle, is_timed=self._is_timed)
