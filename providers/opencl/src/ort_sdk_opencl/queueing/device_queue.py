"""A device's context and queue: in order, shared by all sessions and threads of the process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pyopencl as cl

from ort_sdk.api import DeviceReset, HostArray, OrtSdkError
from ort_sdk.device.drivers import as_bytes
from ort_sdk_opencl.devices import FoundDevice
from ort_sdk_opencl.errors import NO_ROOM, is_loss, translated

from .runs import OpenClEvent, QueuedRun, RunContext, StatusWord, ThreadRuns
from .staging import MOST_STAGED_BYTES, StagingRing

__all__ = ["DeviceQueue"]

_FLAGS = cl.mem_flags


class DriverCalls:
    """Context of calls of the driver on a device that is not lost: its errors become the host's.

    A class, since a generator would take longer than a call.

    Args:
        queue: of the device.
        attempt: what is being done.
        lock: held meanwhile.
    """

    __slots__ = ("_attempt", "_lock", "_queue")

    def __init__(self, queue: DeviceQueue, attempt: str, lock: threading.RLock | None = None) -> None:
        self._queue, self._attempt, self._lock = queue, attempt, lock

    def __enter__(self) -> None:
        self._queue.check()
        if self._lock is not None:
            self._lock.acquire()

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        try:
            if isinstance(error, cl.Error):
                raise self._queue.failed(error, self._attempt) from error
        finally:
            if self._lock is not None:
                self._lock.release()


class DeviceQueue:
    """Queues commands. A run waits for its own last command, and not for what others queue later.

    Memory of one thread's calls may be that of another's, one after the other; so the commands of a call are queued
    under ``lock``, and nobody waits for the device there. It is a ``DriverMemory`` too.

    Args:
        found: the device.
    """

    def __init__(self, found: FoundDevice) -> None:
        self.found = found
        self.name = found.label
        self.context = cl.Context([found.device])
        self.queue = cl.CommandQueue(self.context)
        self.alignment_bytes = max(64, found.device.mem_base_addr_align // 8)
        self.lock = threading.RLock()
        self.is_lost = False
        self._is_timed = False
        self._last: Any = None
        """Event of the last command of all threads."""
        self._thread = ThreadRuns()
        self._words: list[StatusWord] = []
        self._staging: StagingRing | None = None

    # -- memory

    def allocate(self, nbytes: int) -> Any:
        """A buffer."""
        try:
            return cl.Buffer(self.context, _FLAGS.READ_WRITE, nbytes)
        except cl.Error as error:
            if error.code not in NO_ROOM:
                raise self.failed(error, f"allocating {nbytes} bytes") from error
            raise MemoryError(f"{error} (at most {self.found.device.max_mem_alloc_size} bytes in one array)") from error

    def part(self, handle: Any, offset_bytes: int, nbytes: int) -> Any:
        """A part of a buffer."""
        with self.errors(f"making a part of {nbytes} bytes"):
            return handle.get_sub_region(offset_bytes, nbytes)

    def settle(self) -> None:
        """Wait for all commands of all threads."""
        with self.errors("waiting for all commands"):
            self.queue.finish()

    # -- runs

    def run(self) -> RunContext:
        """Context of a run; see ``ort_sdk.device.SupportsRuns``."""
        return RunContext(self._thread, self._begin)

    def _begin(self, run: QueuedRun) -> None:
        """Let the device begin with what a run has queued, and wait until it has read what is not the queue's own."""
        if run.last is None or (run.end is not None and run.end.is_known):
            return
        with self.errors("beginning what is queued"):
            self.queue.flush()
            for copy in run.reads:
                copy.wait()

    def note(self, event: Any) -> None:
        """Remember the last command of this thread's run."""
        self._last = event
        self._thread.run.note(event)

    def status_word(self) -> Any:
        """The word that kernels of this thread's run report to, until it is next read."""
        run = self._thread.run
        if run.word is None:
            try:
                run.word = self._words.pop()
            except IndexError:
                run.word = StatusWord(self.context)
        return run.word.buffer

    def give_back(self, word: StatusWord) -> None:
        """Use a word again, which is zero."""
        self._words.append(word)

    def record(self) -> OpenClEvent:
        """The end of what this thread's run has queued so far, as an event; if that is nothing, of all that is queued."""
        run = self._thread.run
        end = run.end
        if end is None:
            word, run.word = run.word, None
            if word is not None:
                with self.queueing("reading what kernels have reported"):
                    self.note(cl.enqueue_copy(self.queue, word.found, word.buffer, is_blocking=False))
            end = run.end = OpenClEvent(self, run.last or self._last, word, run.earlier)
        return end

    def finish(self) -> None:
        """Wait for what this thread's run has queued.

        Raises:
            InvalidArgument: a kernel met contents that it cannot take.
            DeviceReset: the device is lost.
        """
        run = self._thread.run
        if run.last is None:
            return
        try:
            self.record().wait()
        except OrtSdkError:
            # it is raised once
            run.forget()
            raise
        run.reads.clear()

    # -- copies

    def upload(self, array: HostArray, handle: Any, offset_bytes: int = 0) -> None:
        """Copy a contiguous host array to a buffer; it has been read when this returns."""
        with self.queueing(f"copying {array.nbytes} bytes to the device"):
            copy = self.queue_upload(array, handle, offset_bytes)
        if copy is not None:
            with self.errors(f"copying {array.nbytes} bytes to the device"):
                copy.wait()

    def queue_upload(self, array: HostArray, handle: Any, offset_bytes: int = 0, *, reads_at_once: bool = True) -> Any:
        """Queue a copy of a contiguous host array to a buffer, inside ``queueing``.

        Args:
            array: has its contents, unless ``reads_at_once`` is false: then commands before may be to write them.
            handle: buffer it goes to.
            offset_bytes: where it begins there.
            reads_at_once: whether a small array may be read before the commands that are queued.

        Returns:
            None if the array has been read; else the event of the copy, which reads it.
        """
        if reads_at_once and array.nbytes <= MOST_STAGED_BYTES:
            if self._staging is None:
                self._staging = StagingRing(self.context, self.queue)
            self.note(self._staging.upload(self.queue, array, handle, offset_bytes))
            return None
        copy = cl.enqueue_copy(self.queue, handle, as_bytes(array), dst_offset=offset_bytes, is_blocking=False)
        self.note(copy)
        return copy

    def read_before_the_end(self, copy: Any) -> None:
        """Let this thread's run last until a copy has read memory of the host."""
        self._thread.run.reads.append(copy)

    def download(self, pairs: Sequence[tuple[Any, HostArray]]) -> None:
        """Copy buffers to contiguous host arrays, with one wait for all of them.

        Raises:
            InvalidArgument: a kernel of the run met contents that it cannot take.
        """
        with self.queueing(f"copying {len(pairs)} arrays from the device"):
            copies = [self.queue_download(handle, array) for handle, array in pairs]
            self.record()
        self.finish()
        copies.clear()

    def queue_download(self, handle: Any, array: HostArray) -> Any:
        """Queue a copy of a buffer to a contiguous host array, inside ``queueing``; its event, to be kept until it happened."""
        copy = cl.enqueue_copy(self.queue, as_bytes(array), handle, is_blocking=False)
        self.note(copy)
        return copy

    def copy(self, source: Any, target: Any, nbytes: int) -> None:
        """Queue a copy between two buffers."""
        with self.queueing(f"copying {nbytes} bytes on the device"):
            self.note(cl.enqueue_copy(self.queue, target, source, byte_count=nbytes))

    # -- times

    def stamp(self) -> Any:
        """A marker with the device's time. The first one exchanges the queue for one that takes times, which is slower."""
        with self.queueing("marking a point in the queue"):
            if not self._is_timed:
                self.queue.finish()
                self.queue = cl.CommandQueue(self.context, properties=cl.command_queue_properties.PROFILING_ENABLE)
                self._is_timed = True
            marker = cl.enqueue_marker(self.queue)
            self.note(marker)
            return marker

    # -- errors

    def queueing(self, attempt: str) -> DriverCalls:
        """Context in which commands are queued that no other thread's may come between.

        Args:
            attempt: what is being done.
        """
        return DriverCalls(self, attempt, self.lock)

    def errors(self, attempt: str) -> DriverCalls:
        """Context in which OpenCL's errors become the host's.

        Args:
            attempt: what is being done.
        """
        return DriverCalls(self, attempt)

    def check(self) -> None:
        """Raise if the device is lost.

        Raises:
            DeviceReset: it is.
        """
        if self.is_lost:
            raise DeviceReset(f"{self.name} was lost: close all sessions on it, and make new ones")

    def failed(self, error: Any, attempt: str) -> OrtSdkError:
        """The host's error for one of OpenCL's. If the device is lost, nothing is queued on it any more."""
        self._thread.run.forget()
        self.is_lost = self.is_lost or is_loss(error, self._answers)
        return translated(error, attempt, self.name, is_lost=self.is_lost)

    def _answers(self) -> bool:
        """Whether the queue still works."""
        try:
            self.queue.finish()
        except cl.Error:
            return False
        return True
