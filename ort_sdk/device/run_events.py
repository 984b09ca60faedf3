"""Ends of runs whose work a device may still be doing: what their kernels reported is raised where it is waited for."""

from __future__ import annotations

import threading
from collections import deque

from ort_sdk.api import InvalidArgument, OrtSdkError

from .status import fault_text

__all__ = ["MOST_RUNS_AHEAD", "RunEvent", "UnreadRuns"]

MOST_RUNS_AHEAD = 256
"""Runs of one provider object that may be queued and not done: who queues without ever reading would fill the driver's memory."""


class RunEvent:
    """The end of what a run has queued so far; the contract's ``Event``. Launchers subclass it. Thread-safe.

    Args:
        device: its name, for errors.
        earlier: an event of the same run, whose error is raised first.
    """

    __slots__ = ("__weakref__", "_bits", "_device", "_earlier", "_lock", "was_raised")

    def __init__(self, device: str, earlier: RunEvent | None = None) -> None:
        self._device, self._earlier = device, earlier
        self._lock = threading.Lock()
        self._bits: int | None = None
        self.was_raised = False
        """Whether the error was raised."""

    def reached(self) -> int:
        """Block until the device has reached it, and give the bits that the run's kernels reported. Not called again after that.

        Raises:
            OrtSdkError: the device failed.
        """
        raise NotImplementedError

    def is_reached(self) -> bool:
        """Whether ``reached`` would not block."""
        raise NotImplementedError

    @property
    def is_known(self) -> bool:
        """Whether it was waited for, and all is well."""
        return self._bits == 0

    @property
    def is_done(self) -> bool:
        """Whether it has happened."""
        return self._bits is not None or self.is_reached()

    def wait(self) -> None:
        """Block until it has happened.

        Raises:
            InvalidArgument: a kernel of the run met contents that it cannot take.
            OrtSdkError: the device failed.
        """
        error = None if self.is_known else self.outcome()
        if error is not None:
            self.was_raised = True
            raise error

    def outcome(self) -> OrtSdkError | None:
        """Block until it has happened, and give what ``wait`` would raise."""
        earlier = self._earlier
        error = None if earlier is None else earlier.outcome()
        if error is not None:
            return error
        try:
            with self._lock:
                if self._bits is None:
                    self._bits = self.reached()
                    self._earlier = None
        except OrtSdkError as failure:
            return failure
        return InvalidArgument(f"kernels on {self._device}: {fault_text(self._bits)}") if self._bits else None


class UnreadRuns:
    """Ends of the runs of one provider object that nobody may have waited for, so that no error is lost. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: deque[RunEvent] = deque()
        self._failed: RunEvent | None = None
        """The first that failed and whose error may not have been raised."""

    def add(self, event: RunEvent) -> None:
        """Remember the end of a run, and forget earlier ones that the device has reached; waits if there are too many others."""
        if event.is_known:
            return
        with self._lock:
            # the device's queue is in order: the first that is not done ends the search
            while self._events and (self._events[0].is_done or len(self._events) >= MOST_RUNS_AHEAD):
                done = self._events.popleft()
                if done.outcome() is not None and self._failed is None:
                    self._failed = done
            self._events.append(event)

    def wait(self) -> None:
        """Wait for all of them, and forget them.

        Raises:
            OrtSdkError: the first error that was not raised before.
        """
        with self._lock:
            events = [*([] if self._failed is None else [self._failed]), *self._events]
            self._failed = None
            self._events.clear()
        failed = [event for event in events if event.outcome() is not None and not event.was_raised]
        if failed:
            failed[0].wait()
