"""Commands on a device's stream: by one thread at a time, with CUDA's errors as the host's."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ort_sdk.api import DeviceReset, OrtSdkError
from ort_sdk.device.drivers import MemoryPool
from ort_sdk_cuda.devices import FoundDevice
from ort_sdk_cuda.driver import CudaDriver, CudaError, Handle
from ort_sdk_cuda.driver.opening import check_not_forked
from ort_sdk_cuda.errors import is_loss, lost_text, translated

__all__ = ["CommandQueue"]


class _Waiting:
    """A context with the device's context current, whose errors of CUDA become the host's.

    Args:
        queue: of the device.
        attempt: what is being done.
    """

    __slots__ = ("_attempt", "_queue")

    def __init__(self, queue: CommandQueue, attempt: str) -> None:
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

    def __init__(self, queue: CommandQueue, attempt: str, passes_on: int) -> None:
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


class CommandQueue:
    """What a device's stream is for those that queue on it; ``DeviceQueue`` is one.

    Args:
        found: the device.
    """

    context: Handle
    stream: Handle
    pinned: MemoryPool
    """Memory of the host that the device reads and writes itself."""

    def __init__(self, found: FoundDevice) -> None:
        self.found = found
        self.name = found.label
        self.driver: CudaDriver = found.cuda.driver
        self.lock = threading.RLock()
        self.is_lost = self.is_capturing = False
        self.events: dict[bool, collections.deque[Handle]] = {False: collections.deque(), True: collections.deque()}
        """Those that nobody uses, by whether they are timed."""
        self._discarded: collections.deque[tuple[Callable[..., None], Any]] = collections.deque()

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

    def discard(self, drop: Callable[..., None], handle: Any) -> None:
        """Give something back to the driver when commands are queued the next time: objects may end anywhere."""
        self._discarded.append((drop, handle))

    def return_event(self, handle: Handle, *, is_timed: bool) -> None:
        """Keep an event that nobody refers to any more for the next one."""
        self.events[is_timed].append(handle)

    def settle(self) -> None:
        """Wait for all commands of all threads."""
        with self.commands("waiting for all commands") as driver:
            driver.synchronize_stream(self.stream)
