"""The strict provider as one whose runs end before their work: the host must wait where it reads, and nowhere else."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ort_sdk.api import Event

from .execution_provider import StrictExecutionProvider
from .memory import StrictDevice
from .queue import RunErrors, StrictQueue, Work

__all__ = ["AsynchronousStrictExecutionProvider", "StrictEvent"]


class StrictEvent:
    """A point in a strict queue.

    Args:
        queue: the queue.
        errors: of the run's work.
    """

    def __init__(self, queue: StrictQueue, errors: RunErrors) -> None:
        self._queue, self._errors = queue, errors
        self._work = queue.submit(_nothing, "event")

    @property
    def is_done(self) -> bool:
        """Whether the queue came so far."""
        return self._work.is_finished

    def wait(self) -> None:
        """Let the queue run so far; raises the first error of the run."""
        self._queue.wait(self._work)
        self._errors.raise_first()


class _Stamp:
    """The time at which a strict queue came to a point."""

    def __init__(self, queue: StrictQueue) -> None:
        self.seconds: float | None = None
        self.work: Work = queue.submit(self._take, "stamp")

    def _take(self) -> None:
        self.seconds = time.perf_counter()


class AsynchronousStrictExecutionProvider(StrictExecutionProvider):
    """One strict device in one session, whose runs do not wait at their end."""

    compiles_at_once = True

    def __init__(self, strict_device: StrictDevice, options: Mapping[str, str]) -> None:
        super().__init__(strict_device, options)
        self._runs: list[RunErrors] = []
        """Of the runs since the queue was last waited for."""
        self.followed: list[Event] = []
        """Events of others that this provider's work was ordered after."""

    @contextlib.contextmanager
    def run_scope(self) -> Iterator[None]:
        """Scope of one run; its exit waits for nothing."""
        with self.strict_device.queue.open_scope() as errors, self.blocks.run():
            self._runs.append(errors)
            yield

    def synchronize(self) -> None:
        """Wait for the queue; raises the first error since this was last called that no event raised."""
        runs, self._runs = self._runs, []
        self.strict_device.queue.synchronize()
        for errors in runs:
            if not errors.was_raised:
                errors.raise_first()

    def record_event(self) -> StrictEvent:
        """The end of the work queued so far."""
        return StrictEvent(self.strict_device.queue, self._runs[-1] if self._runs else RunErrors())

    def order_after(self, event: Event) -> None:
        """Note the event; without waiting where it is one of the same queue, which is in order."""
        self.followed.append(event)
        if not isinstance(event, StrictEvent) or event._queue is not self.strict_device.queue:
            event.wait()

    def stamp(self) -> _Stamp:
        """A point in the queue, with its time once the queue came there."""
        return _Stamp(self.strict_device.queue)

    def seconds_between(self, start: Any, end: Any) -> float:
        """Seconds between two stamps.

        Raises:
            AssertionError: the queue has not come to one of them, since nobody waited.
        """
        if start.seconds is None or end.seconds is None:
            raise AssertionError("a stamp was read before the queue came there: synchronize first")
        return float(end.seconds - start.seconds)


def _nothing() -> None:
    """Work whose only use is to come after other work."""
