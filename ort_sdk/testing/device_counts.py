"""What a host asked of a device, counted: tests compare these numbers, which are the same on any machine."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ort_sdk.api import check_stopped

__all__ = ["CountedJoin", "DeviceCounts", "JoinedWork", "counted_join"]


@dataclasses.dataclass(slots=True)
class DeviceCounts:
    """Counts since the last ``reset``. Kept for one run at a time."""

    launches: int = 0
    """Kernels launched, by whatever call."""
    single_calls: int = 0
    """Kernels and copies that a call of its own launched."""
    joined_calls: int = 0
    """Calls made of several."""
    uploads: int = 0
    """Copies from the host to the device."""
    downloads: int = 0
    """Copies from the device to the host."""
    device_copies: int = 0
    """Copies within the device."""
    peer_copies: int = 0
    """Copies from another device to this one."""
    waits: int = 0
    """Times that the host waited for the device, that at the end of a run's scope among them."""
    views: int = 0
    """Arrays that were made of others without a kernel."""

    @property
    def copies(self) -> dict[str, int]:
        """The kinds of copies that were made, and how many of each."""
        kinds = ("uploads", "downloads", "device_copies", "peer_copies")
        return {kind: getattr(self, kind) for kind in kinds if getattr(self, kind)}

    def reset(self) -> None:
        """Count from zero."""
        for each in dataclasses.fields(self):
            setattr(self, each.name, 0)

    @contextlib.contextmanager
    def as_one_call(self) -> Iterator[None]:
        """Count what is called inside as one joined call."""
        before = self.single_calls
        try:
            yield
        finally:
            self.single_calls = before
            self.joined_calls += 1


class JoinedWork(threading.local):
    """Waits that a joined call puts off to its end; None outside of one."""

    waits: list[Callable[[], None]] | None = None

    def wait(self, wait: Callable[[], None]) -> None:
        """Wait now, or at the end of the joined call that this thread is in."""
        if self.waits is None:
            wait()
        else:
            self.waits.append(wait)


class CountedJoin:
    """Several calls as one, which waits for all of them at its end, once.

    Args:
        calls: made one after the other.
        counts: of the device.
        work: of the device.
    """

    def __init__(self, calls: Sequence[Callable[[], Any]], counts: DeviceCounts, work: JoinedWork) -> None:
        self._calls, self._counts, self._work = tuple(calls), counts, work
        self.failed = 0
        """Position of the call that was made last."""

    def __call__(self) -> None:
        """Make all calls."""
        waits: list[Callable[[], None]] = []
        self._work.waits = waits
        try:
            with self._counts.as_one_call():
                for position, call in enumerate(self._calls):
                    self.failed = position
                    check_stopped()
                    call()
        finally:
            self._work.waits = None
        # The queue is in order: what was asked for last is there last.
        if waits:
            waits[-1]()


def counted_join(
    calls: Sequence[Callable[[], Any]], counts: DeviceCounts, work: JoinedWork
) -> list[tuple[int, Callable[[], Any]]]:
    """All calls as one; a single one stays what it is. See ``ExecutionProvider.join_calls``.

    Args:
        calls: that follow each other.
        counts: of the device.
        work: of the device.
    """
    return [(len(calls), CountedJoin(calls, counts, work) if len(calls) > 1 else calls[0])]
