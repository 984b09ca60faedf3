"""A device's context and stream: in order, shared by all sessions and threads of the process."""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from ort_sdk.api import DeviceReset, HostArray, OrtSdkError
from ort_sdk.device.drivers import MemoryPool, as_bytes
from ort_sdk_cuda.devices import FoundDevice
from ort_sdk_cuda.driver import CudaDriver, CudaError, Handle
from ort_sdk_cuda.driver.opening import check_not_forked
from ort_sdk_cuda.errors import NO_ROOM, is_loss, lost_text, translated

from .pinned import PinnedMemory, PinnedRing, address_of
from .queue_event import QueueEvent
from .reports import ReportWords, RunReports

__all__ = ["DeviceQueue"]

STAGING_BUFFERS, STAGING_BYTES = 4, 1 << 20
"""Of copies from memory of the host that is not pinned."""


class _Thread(threading.local):
    """What one thread has queued and not waited for."""

    def __init__(self) -> None:
        self.run = RunReports()
        self.has_queued = False


class _Allocation(int):
    """Address of memory, which goes back to the driver with the object."""

    queue: DeviceQueue

    def __del__(self) -> None:
        self.queue.discard(_freed, int(self))


def _freed(queue: DeviceQueue, address: int) -> None:
    queue.driver.free(address, queue.stream)


class _Waiting:
    """A context with the device's context current, whose errors of CUDA become the host's.

    Args:
        queue: of the device.
        attempt: what is being done.
    """

    __slots__ = ("_attempt", "_queue")

    def __init__(self, queue: DeviceQueue, attempt: str) -> None:
        self._queue, self._attempt = queue, attempt

    def __enter__(self) -> CudaDriver:
        queue = self._queue
        queue.check()
        try:
            queue.driver.make_current(queue.context)
        except CudaError as error:
            raise queue.failed(error, self._attempt) from error
        return queue.driver

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, CudaError):
            raise self._queue.failed(error, self._attempt) from error


class _Commands:
    """The same, in which no other thread queues anything. Made anew for each use, as it is entered often.

    Args:
        queue: of the device.
        attempt: what is being done.
        passes_on: code of an error that stays CUDA's; 0 for none.
    """

    __slots__ = ("_attempt", "_passes_on", "_queue")

    def __init__(self, queue: DeviceQueue, attempt: str, passes_on: int) -> None:
        self._queue, self._attempt, self._passes_on = queue, attempt, passes_on

    def __enter__(self) -> CudaDriver:
        queue = self._queue
        queue.check()
        queue.lock.acquire()
        try:
            queue.driver.make_current(queue.context)
            queue.begin_commands()
        except BaseException as error:
            queue.lock.release()
            if isinstance(error, CudaError):
                raise queue.failed(error, self._attempt) from error
            raise
        return queue.driver

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._queue.lock.release()
        if isinstance(error, CudaError) and error.code != self._passes_on:
            raise self._queue.failed(error, self._attempt) from error


class DeviceQueue:
    """Queues commands on one stream.

    Memory of one thread's calls may be that of another's, one after the other; so the commands of a call are queued inside
    ``commands``. It is a ``DriverMemory`` too.

    Args:
        found: the device.
        stream: address of a stream of the user's; 0 for one of its own.
    """

    alignment_bytes = 256

    def __init__(self, found: FoundDevice, stream: int = 0) -> None:
        self.found = found
        self.name = found.label
        self.driver: CudaDriver = found.cuda.driver
        self.lock = threading.RLock()
        self.is_lost = self.is_capturing = False
        self._thread = _Thread()
        self._discarded: collections.deque[tuple[Callable[..., None], Any]] = collections.deque()
        self._events: dict[bool, collections.deque[Handle]] = {False: collections.deque(), True: collections.deque()}
        try:
            self.context = self.driver.retain_context(found.ordinal)
            self.driver.make_current(self.context)
            self.stream = self.driver.stream_at(stream) if stream else self.driver.make_stream()
            self.capture_stream, self.copy_stream = self.driver.make_stream(), self.driver.make_stream()
            self._pool = self.driver.make_pool(found.ordinal)
            self.pinned = MemoryPool(PinnedMemory(self))
            self._staging = PinnedRing(self, STAGING_BUFFERS, STAGING_BYTES)
            self._words = ReportWords(self)
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

    def discard(self, drop: Callable[..., None], handle: Any) -> None:
        """Give something back to the driver when commands are queued the next time: objects may end anywhere."""
        self._discarded.append((drop, handle))

    # -- commands

    def commands(self, attempt: str, *, passes_on: int = 0) -> _Commands:
        """Context in which commands are queued that no other thread's may come between. CUDA's errors become the host's.

        Args:
            attempt: what is being done.
            passes_on: code of an error that stays CUDA's; 0 for none.
        """
        return _Commands(self, attempt, passes_on)

    def waiting(self, attempt: str) -> _Waiting:
        """Context for what queues nothing, and may block: other threads go on.

        Args:
            attempt: what is being done.
        """
        return _Waiting(self, attempt)

    def begin_commands(self) -> None:
        """Give back what was discarded, before commands are queued."""
        self._thread.has_queued = True
        while self._discarded and not self.is_capturing:
            drop, handle = self._discarded.popleft()
            drop(self, handle)

    def check(self) -> None:
        """Raise if the device is lost.

        Raises:
            DeviceReset: it is.
            ProviderUnavailableError: this is a child of the process that opened CUDA.
        """
        check_not_forked()
        if self.is_lost:
            raise DeviceReset(lost_text(self.name))

    def failed(self, error: CudaError, attempt: str) -> OrtSdkError:
        """The host's error for one of CUDA's. If the device is lost, nothing is queued on it any more."""
        self.is_lost = self.is_lost or is_loss(error)
        return translated(error, attempt, self.name)

    def upload(self, array: HostArray, address: int) -> None:
        """Copy a contiguous host array to memory; it has been read when this returns."""
        with self.commands(f"copying {array.nbytes} bytes to the device") as driver:
            self._staging.upload(driver, array, address, self.stream)

    def download(self, address: int, array: HostArray) -> None:
        """Copy memory to a contiguous host array, and wait for it."""
        with self.waiting(f"copying {array.nbytes} bytes from the device") as driver:
            driver.copy_to_host(address_of(as_bytes(array)), address, array.nbytes, self.stream)
            driver.synchronize_stream(self.stream)

    # -- waiting

    def record(self, *, is_timed: bool = False) -> QueueEvent:
        """The end of the work that was queued so far, of this thread's run."""
        with self.commands("recording an event") as driver:
            free = self._events[is_timed]
            event = QueueEvent(
                self, free.popleft() if free else driver.make_event(is_timed=is_timed), self._thread.run, is_timed=is_timed
            )
            driver.record_event(event.handle, self.stream)
        return event

    def return_event(self, handle: Handle, *, is_timed: bool) -> None:
        """Keep an event that nobody refers to any more for the next one."""
        self._events[is_timed].append(handle)

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
            self.record().wait()
            self._thread.has_queued = False

    # -- runs

    @property
    def run(self) -> RunReports:
        """Of this thread."""
        return self._thread.run

    @contextlib.contextmanager
    def run_scope(self) -> Iterator[RunReports]:
        """Context of a run on this thread, which waits for nothing at its end."""
        earlier, self._thread.run = self._thread.run, RunReports()
        try:
            yield self._thread.run
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
