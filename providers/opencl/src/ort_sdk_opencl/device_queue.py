"""A device's context and queue: in order, shared by all sessions and threads of the process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyopencl as cl

from ort_sdk.api import DeviceReset, HostArray, InvalidArgument, OrtSdkError
from ort_sdk.device.drivers import as_bytes
from ort_sdk.device.status import fault_text

from .devices import FoundDevice
from .errors import NO_ROOM, is_loss, translated

__all__ = ["DeviceQueue"]

_FLAGS = cl.mem_flags


class _Thread(threading.local):
    """What one thread has queued and not waited for."""

    last: Any = None
    """Event of its last command."""
    status: Any = None
    """Word that its kernels report to."""
    may_report = False
    """Whether a kernel was queued, since the word was read, that may have set it."""


class DeviceQueue:
    """Queues commands. A thread waits for its own last command, and not for what others queue later.

    Memory of one thread's calls may be that of another's, one after the other; so the commands of a call are queued
    under ``lock``. It is a ``DriverMemory`` too.

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
        self._thread = _Thread()

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
        return handle.get_sub_region(offset_bytes, nbytes)

    def settle(self) -> None:
        """Wait for all commands of all threads."""
        with self.errors("waiting for all commands"):
            self.queue.finish()

    def note(self, event: Any) -> None:
        """Remember this thread's last command."""
        self._thread.last = event

    def status_word(self) -> Any:
        """The word that kernels of this thread report to, from now on until it waits."""
        own = self._thread
        if own.status is None:
            own.status = cl.Buffer(self.context, _FLAGS.READ_WRITE | _FLAGS.COPY_HOST_PTR, hostbuf=np.zeros(1, np.uint32))
        own.may_report = True
        return own.status

    def upload(self, array: HostArray, handle: Any, offset_bytes: int = 0) -> None:
        """Copy a contiguous host array to a buffer; it has been read when this returns."""
        with self.errors(f"copying {array.nbytes} bytes to the device"):
            cl.enqueue_copy(self.queue, handle, as_bytes(array), dst_offset=offset_bytes, is_blocking=True)

    def download(self, handle: Any, array: HostArray, *, waits: bool = True) -> None:
        """Copy a buffer to a contiguous host array, and wait for it, or leave that to a later command that is waited for."""
        with self.errors(f"copying {array.nbytes} bytes from the device"):
            cl.enqueue_copy(self.queue, as_bytes(array), handle, is_blocking=waits)

    def finish(self) -> None:
        """Wait for what this thread has queued.

        Raises:
            InvalidArgument: a kernel met contents that it cannot take.
            DeviceReset: the device is lost.
        """
        own = self._thread
        if own.last is not None:
            last, own.last = own.last, None
            with self.errors("waiting for kernels"):
                last.wait()
        if own.may_report:
            own.may_report = False
            found = np.zeros(1, np.uint32)
            self.download(own.status, found)
            if found[0]:
                self.upload(np.zeros(1, np.uint32), own.status)
                raise InvalidArgument(f"kernels on {self.name}: {fault_text(int(found[0]))}")

    @contextlib.contextmanager
    def errors(self, attempt: str) -> Iterator[None]:
        """Context in which OpenCL's errors become the host's.

        Args:
            attempt: what is being done.
        """
        self.check()
        try:
            yield
        except cl.Error as error:
            raise self.failed(error, attempt) from error

    def check(self) -> None:
        """Raise if the device is lost.

        Raises:
            DeviceReset: it is.
        """
        if self.is_lost:
            raise DeviceReset(f"{self.name} was lost: close all sessions on it, and make new ones")

    def failed(self, error: Any, attempt: str) -> OrtSdkError:
        """The host's error for one of OpenCL's. If the device is lost, nothing is queued on it any more."""
        self._thread.last = None
        self.is_lost = self.is_lost or is_loss(error, self._answers)
        return translated(error, attempt, self.name, is_lost=self.is_lost)

    def _answers(self) -> bool:
        """Whether the queue still works."""
        try:
            self.queue.finish()
        except cl.Error:
            return False
        return True
