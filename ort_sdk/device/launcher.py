"""What a device's library does for the device layer: memory, copies, launches. A provider implements ``Launcher``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from ort_sdk.api import Event, HostArray
from ort_sdk.api.data_classes import dataclass

from .device_class import DeviceClass
from .dialects import Dialect
from .launches import Launch, Memory
from .run_events import RunEvent

__all__ = ["BoundLaunches", "Launcher", "MovingMemory", "SupportsRuns"]


@dataclass(frozen=True, slots=True)
class MovingMemory:
    """Memory that is another in each run of bound launches: that of a feed or a result."""

    placeholder: Memory
    """What the launches have in its place."""
    current: Callable[[], Memory]
    """Gives the memory of this run."""


class BoundLaunches(Protocol):
    """Launches with all that can be set beforehand set, as one call."""

    def __call__(self) -> None:
        """Queue the launches."""


class Launcher(Protocol):
    """A device's queue, in order. Thread-safe."""

    device_class: DeviceClass
    dialect: Dialect

    def allocate(self, nbytes: int) -> Memory:
        """Memory with undefined contents; freed when nobody refers to it and the queue is done with it.

        Raises:
            MemoryError: the device has no room; says how many bytes were asked for.
        """

    def part(self, memory: Memory, offset_bytes: int, nbytes: int) -> Memory:
        """A part of memory, which it keeps alive.

        Args:
            memory: a whole piece that ``allocate`` gave.
            offset_bytes: a multiple of ``alignment_bytes``.
            nbytes: size.
        """

    alignment_bytes: int
    """Of parts of memory."""

    def upload(self, array: HostArray, memory: Memory) -> None:
        """Copy a contiguous host array to memory; the array has been read when this returns."""

    def download(self, memory: Memory, array: HostArray) -> None:
        """Copy memory to a contiguous host array of at most its size, and wait for it."""

    def launch(self, launch: Launch) -> None:
        """Queue a kernel. Building it may take a while, the first time."""

    def bind(self, launches: Sequence[Launch], places: Mapping[Memory, Memory], moving: Sequence[MovingMemory]) -> BoundLaunches:
        """Make one call of launches.

        Args:
            launches: in order.
            places: memory without a handle → where it is.
            moving: memory without a handle that is another one in each run.
        """

    def finish(self) -> None:
        """Wait for what this thread has queued; where the launcher ``SupportsRuns``, for what its run has.

        Raises:
            InvalidArgument: a kernel has reported contents that it cannot take.
        """


@runtime_checkable
class SupportsRuns(Protocol):
    """Launchers that know which run queued what, so that runs end before their work. Others are waited for where a run ends.

    All that threads queue goes to one queue of the device, in order. Each run has a status word of its own, and what its kernels
    report there is raised by ``download``, ``finish`` and the run's events, and by nothing that belongs to another run.
    """

    def run(self) -> AbstractContextManager[Any]:
        """Context of a run: what the thread queues inside belongs to it.

        Where it ends, host memory that calls of the launcher were given has been read, and the device has begun.
        """

    def record_event(self) -> RunEvent:
        """The end of what this thread's run has queued so far; if that is nothing, of all that any thread has."""

    def finish(self) -> None:
        """See ``Launcher.finish``."""

    def order_after(self, event: Event) -> None:
        """Let what is queued from now on begin when an event has happened, which may be of another device."""

    def stamp(self) -> Any:
        """A point in what is queued so far, with the device's time when it is reached."""

    def seconds_between(self, start: Any, end: Any) -> float:
        """Seconds between two stamps that the device has reached."""
