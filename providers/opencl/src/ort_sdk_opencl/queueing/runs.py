"""What one run of a thread has queued, and its end as an event that raises what the run's kernels reported."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import pyopencl as cl

from ort_sdk.api import OrtSdkError
from ort_sdk.device import RunEvent

__all__ = ["OpenClEvent", "QueuedRun", "RunContext", "StatusWord", "ThreadRuns"]

_COMPLETE = cl.command_execution_status.COMPLETE
_FLAGS = cl.mem_flags


class StatusWord:
    """A word of the device that the kernels of one run report to, and where the host reads it.

    Args:
        context: of the device.
    """

    __slots__ = ("buffer", "found")

    def __init__(self, context: Any) -> None:
        self.found = np.zeros(1, np.uint32)
        self.buffer = cl.Buffer(context, _FLAGS.READ_WRITE | _FLAGS.COPY_HOST_PTR, hostbuf=self.found)


class QueuedRun:
    """What is queued and not waited for: of one run, or of a thread outside of runs."""

    __slots__ = ("earlier", "end", "last", "reads", "word")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, when all was waited for."""
        self.last: Any = None
        """Event of the last command."""
        self.word: StatusWord | None = None
        """What kernels report to; None until one may, and after it was read."""
        self.reads: list[Any] = []
        """Events of copies that read memory of others' on the host."""
        self.end: OpenClEvent | None = None
        """The end of all that is queued; None if it was not recorded."""
        self.earlier: OpenClEvent | None = None
        """One that was recorded before more was queued."""

    def note(self, event: Any) -> None:
        """Remember the last command."""
        self.last = event
        if self.end is not None:
            self.earlier, self.end = self.end, None


class ThreadRuns(threading.local):
    """The run of each thread."""

    def __init__(self) -> None:
        self.run = QueuedRun()


class RunContext:
    """Context of a run of the thread that enters it.

    Args:
        thread: the threads' runs.
        end: called with the run if it ends without an error.
    """

    __slots__ = ("_end", "_outer", "_thread")

    def __init__(self, thread: ThreadRuns, end: Callable[[QueuedRun], None]) -> None:
        self._thread, self._end = thread, end

    def __enter__(self) -> None:
        self._outer, self._thread.run = self._thread.run, QueuedRun()

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        run, self._thread.run = self._thread.run, self._outer
        if error is None:
            self._end(run)


class EventQueue(Protocol):
    """What events need of the queue that they are of."""

    name: str
    """Of the device, for errors."""

    def check(self) -> None:
        """Raise if the device is lost."""

    def failed(self, error: Any, attempt: str) -> OrtSdkError:
        """The host's error for one of OpenCL's."""

    def give_back(self, word: StatusWord) -> None:
        """Use a word again, which is zero."""


class OpenClEvent(RunEvent):
    """The end of what a run has queued so far.

    Args:
        queue: of the device.
        last: event of the last command; None if there was none.
        word: what its kernels report to, which the last command reads; None if none does.
        earlier: an event of the same run.
    """

    __slots__ = ("_last", "_word", "queue")

    def __init__(self, queue: EventQueue, last: Any, word: StatusWord | None, earlier: OpenClEvent | None) -> None:
        super().__init__(queue.name, earlier)
        self.queue, self._last, self._word = queue, last, word

    def is_reached(self) -> bool:
        last = self._last
        try:
            return last is None or last.command_execution_status == _COMPLETE
        except (cl.Error, ValueError):
            # the command failed, which ``reached`` raises
            return True

    def reached(self) -> int:
        if self._last is not None:
            self.queue.check()
            try:
                self._last.wait()
            except cl.Error as error:
                raise self.queue.failed(error, "waiting for kernels") from error
        word, self._last, self._word = self._word, None, None
        bits = 0 if word is None else int(word.found[0])
        if word is not None and not bits:
            self.queue.give_back(word)
        return bits
