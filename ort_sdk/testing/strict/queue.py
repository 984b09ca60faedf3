"""The work queue of a strict device: everything runs as late as it may, on a thread of its own."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator

from ort_sdk.api import EPFail
from ort_sdk.testing.device_counts import DeviceCounts

__all__ = ["RunErrors", "StrictQueue", "Work"]


class Work:
    """One piece of queued work."""

    __slots__ = ("_action", "_errors", "_finished", "_label", "error")

    def __init__(self, action: Callable[[], None], label: str, errors: list[Exception]) -> None:
        self._action: Callable[[], None] | None = action
        self._label = label
        self._errors = errors
        self._finished = threading.Event()
        self.error: Exception | None = None

    @property
    def is_finished(self) -> bool:
        """Whether it ran, well or not."""
        return self._finished.is_set()

    def run(self) -> None:
        """Do the work; an error is kept for the waiter."""
        action, self._action = self._action, None
        try:
            if action is not None:
                action()
        except Exception as error:  # noqa: BLE001 - kept, and raised on the thread that waits
            if not getattr(error, "__notes__", None):
                error.add_note(f"raised late, on the queue of a strict device, by {self._label}")
            self.error = error
            self._errors.append(error)
        finally:
            self._finished.set()

    def join(self) -> None:
        """Block until it ran."""
        self._finished.wait()


class RunErrors(list[Exception]):
    """Errors of the work of one run, as far as it ran."""

    was_raised = False

    def raise_first(self) -> None:
        """Raise the first, if there is one."""
        if self:
            self.was_raised = True
            raise self[0]


class StrictQueue:
    """Runs work in order of submission, and none of it before it is waited for.

    A caller that reads a result without waiting therefore never finds it there by luck.

    Args:
        name: name of the device, for messages.
        counts: of the device; counts waits.
    """

    def __init__(self, name: str, counts: DeviceCounts | None = None) -> None:
        self._name = name
        self._counts = DeviceCounts() if counts is None else counts
        # Appending is atomic and takes no lock, so that finalizers may submit in the middle of anything.
        self._pending: deque[Work] = deque()
        self._requests: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._start_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._local = threading.local()

    @property
    def in_scope(self) -> bool:
        """Whether the calling thread is inside ``scope``."""
        return bool(self._scopes())

    def submit(self, action: Callable[[], None], label: str) -> Work:
        """Queue work. Its error, if any, is raised by ``wait`` and by the exit of the scope it was submitted in."""
        scopes = self._scopes()
        work = Work(action, label, scopes[-1] if scopes else [])
        self._pending.append(work)
        return work

    def wait(self, work: Work) -> None:
        """Let the queue run up to and with ``work``.

        Raises:
            Exception: what the work raised.
        """
        if not work.is_finished:
            if threading.current_thread() is self._thread:
                raise EPFail(f"queue of {self._name}: work waits for other work that comes after it, and would wait forever")
            self._counts.waits += 1
            self._start()
            self._requests.put(work)
            work.join()
        if work.error is not None:
            raise work.error

    def synchronize(self) -> None:
        """Wait for everything submitted so far. Raises no error of that work."""
        self.wait(self.submit(_nothing, "synchronize"))

    def raise_errors(self) -> None:
        """Raise the first error of work that this thread's open scope submitted, as far as it ran."""
        errors = self._scopes()[-1] if self.in_scope else None
        if isinstance(errors, RunErrors):
            errors.raise_first()

    @contextlib.contextmanager
    def open_scope(self) -> Iterator[RunErrors]:
        """Scope of a run that does not wait at its end; gives the errors of work submitted in it."""
        errors = RunErrors()
        self._scopes().append(errors)
        try:
            yield errors
        finally:
            self._scopes().pop()

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Scope of one run: its exit waits for all work, and raises the first error of work submitted in it."""
        errors: list[Exception] = []
        self._scopes().append(errors)
        try:
            yield
        except BaseException:
            self.synchronize()
            raise
        else:
            self.synchronize()
        finally:
            self._scopes().pop()
        if errors:
            raise errors[0]

    def _scopes(self) -> list[list[Exception]]:
        scopes: list[list[Exception]] | None = getattr(self._local, "scopes", None)
        if scopes is None:
            scopes = self._local.scopes = []
        return scopes

    def _start(self) -> None:
        with self._start_lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name=f"queue of {self._name}", daemon=True)
                self._thread.start()

    def _serve(self) -> None:
        while True:
            wanted = self._requests.get()
            while not wanted.is_finished:
                self._pending.popleft().run()
            del wanted  # while it waits for more, this thread keeps no work, nor the arrays that its error went through


def _nothing() -> None:
    """Work whose only use is to come after other work."""
