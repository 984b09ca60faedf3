"""A device's context and stream: in order, shared by all sessions and threads of the process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

from ort_sdk.api import HostArray
from ort_sdk.device.drivers import MemoryPool, as_bytes
from ort_sdk_cuda.devices import FoundDevice
from ort_sdk_cuda.driver import CudaError, Handle
from ort_sdk_cuda.errors import NO_ROOM

from .command_queue import CommandQueue
from .pinned import PinnedMemory, PinnedRing, address_of
from .queue_event import QueueEvent
from .reports import WORD_BYTES, ReportWord, ReportWords

__all__ = ["DeviceQueue"]

STAGING_BUFFERS, STAGING_BYTES = 4, 1 << 20
"""Of copies from memory of the host that is not pinned."""


class _Thread(threading.local):
    """What one thread has queued and not waited for."""

    def __init__(self) -> None:
        self.run: list[ReportWord] = []
        """What its kernels report to."""
        self.has_queued = False


class _Allocation(int):
    """Address of memory, which goes back to the driver with the object."""

    queue: DeviceQueue

    def __del__(self) -> None:
        self.queue.discard(_freed, int(self))


def _freed(queue: CommandQueue, address: int) -> None:
    queue.driver.free(address, queue.stream)


class DeviceQueue(CommandQueue):
    """Queues commands on one stream.

    Memory of one thread's calls may be that of another's, one after the other; so the commands of a call are queued inside
    ``commands``. It is a ``DriverMemory`` too.

    Args:
        found: the device.
        stream: address of a stream of the user's; 0 for one of its own.
    """

    alignment_bytes = 256

    def __init__(self, found: FoundDevice, stream: int = 0) -> None:
        super().__init__(found)
        self._thread = _Thread()
        try:
            self.context = self.driver.retain_context(found.ordinal)
            self.driver.make_current(self.context)
            self.stream = self.driver.stream_at(stream) if stream else self.driver.make_stream()
            self.capture_stream, self.copy_stream = self.driver.make_stream(), self.driver.make_stream()
            self._pool = self.driver.make_pool(found.ordinal)
            self.pinned = MemoryPool(PinnedMemory(self))
            self._staging = PinnedRing(self, STAGING_BUFFERS, STAGING_BYTES)
            self._words = ReportWords(self, self.allocate(WORD_BYTES))
        except CudaError as error:
            raise self.failed(error, "starting") from error

    # -- memory

    def allocate(self, nbytes: int) -> int:
        """Address of memory, an object that frees it when it ends."""
        try:
            with self.commands(f"allocating {nbytes} bytes", passes_on=NO_ROOM) as driver:
                found = _Allocation(driver.allocate(nbytes, self._pool, self.stream))
        except CudaError as error:
            raise MemoryError(f"{error} (the device has {self.found.memory_bytes} bytes in all)") from error
        found.queue = self
        return found

    def part(self, handle: int, offset_bytes: int, nbytes: int) -> int:
        """Address of a part."""
        return handle + offset_bytes

    def settle(self) -> None:
        """Wait for all commands of all threads, and give back what is free."""
        with self.commands("waiting for all commands") as driver:
            driver.synchronize_stream(self.stream)
            driver.trim_pool(self._pool)

    # -- commands

    def begin_commands(self) -> None:
        self._thread.has_queued = True
        super().begin_commands()

    def upload(self, array: HostArray, address: int) -> None:
        """Copy a contiguous host array to memory; it has been read when this returns."""
        with self.commands(f"copying {array.nbytes} bytes to the device") as driver:
            self._staging.upload(driver, array, address, self.stream)

    def download(self, pairs: Sequence[tuple[int, HostArray]]) -> None:
        """Copy memory to contiguous host arrays, with one wait for all of them.

        Raises:
            InvalidArgument: a kernel of the run met contents that it cannot take.
        """
        with self.waiting(f"copying {len(pairs)} arrays from the device") as driver:
            for address, array in pairs:
                driver.copy_to_host(address_of(as_bytes(array)), address, array.nbytes, self.stream)
        self._wait_for_run()

    # -- waiting

    def record(self, *, is_timed: bool = False) -> QueueEvent:
        """The end of the work that was queued so far, of this thread's run."""
        with self.commands("recording an event") as driver:
            free = self.events[is_timed]
            handle = free.popleft() if free else driver.make_event(is_timed=is_timed)
            event = QueueEvent(self, handle, tuple(self._thread.run), is_timed=is_timed)
            driver.record_event(event.handle, self.stream)
        return event

    def order_after(self, event: QueueEvent) -> None:
        """Let what is queued from now on begin when an event of another stream has happened."""
        if event.queue is not self:
            with self.commands("waiting for another stream") as driver:
                driver.wait_event(self.stream, event.handle)

    def finish(self) -> None:
        """Wait for what this thread has queued.

        Raises:
            InvalidArgument: a kernel met contents that it cannot take.
            DeviceReset: the device is lost.
        """
        self.check()
        if self._thread.has_queued:
            self._wait_for_run()

    def _wait_for_run(self) -> None:
        own = self._thread
        try:
            self.record().wait()
        finally:
            # it is raised once
            own.run.clear()
            own.has_queued = False

    # -- runs

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """Context of a run on this thread, which waits for nothing at its end."""
        earlier, self._thread.run = self._thread.run, []
        try:
            yield
        finally:
            self._thread.run = earlier

    @property
    def report_address(self) -> int:
        """Of the word that kernels report to."""
        return self._words.device_word

    def collect_reports(self) -> None:
        """Note what the kernels of a call will have reported, for this thread's run; inside ``commands``, after them."""
        self._words.collect(self._thread.run)

    @contextlib.contextmanager
    def capturing(self) -> Iterator[Handle]:
        """Context in which commands on the stream that it gives become a graph; inside ``commands``."""
        self.is_capturing = True
        try:
            self.driver.begin_capture(self.capture_stream)
            yield self.capture_stream
        finally:
            self.is_capturing = False
