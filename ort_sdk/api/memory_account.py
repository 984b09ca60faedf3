"""What a session holds of a device's memory: counted by what it is for, and limited by a provider option."""

from __future__ import annotations

import enum
import threading
from collections import deque
from collections.abc import Mapping

from .data_classes import dataclass
from .device import OrtDevice
from .errors import InvalidArgument, OutOfMemory

__all__ = ["GPU_MEM_LIMIT", "HeldBytes", "MemoryAccount", "MemoryUsage", "MemoryUse", "memory_limit"]

GPU_MEM_LIMIT = "gpu_mem_limit"
"""Provider option, ONNX Runtime's: the most bytes that a session may hold on the provider's device."""


class MemoryUse(enum.Enum):
    """What memory of a device is held for."""

    WEIGHTS = "weights"
    """Constants that were put there, those shared with other sessions among them."""
    ARENA = "arena"
    """Intermediate values of programs, and their kernels' workspaces."""
    VALUES = "values"
    """Feeds and results of runs under way that programs replay. Without a limit they show in the peak only."""
    KERNELS = "kernels"
    """What kernels allocate on their own, where their provider counts it."""

    __hash__ = object.__hash__  # an enumeration's own is a function of Python's, which takes longer than all else of a look-up


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    """What a session holds of one device's memory."""

    provider: str
    device: OrtDevice
    held_bytes: Mapping[MemoryUse, int]
    """Bytes now, by what they are for."""
    peak_bytes: int
    """The most there were at a time, of all uses together."""
    limit_bytes: int | None
    """None: as much as the device has."""

    @property
    def total_bytes(self) -> int:
        """Bytes now."""
        return sum(self.held_bytes.values())


class MemoryAccount:
    """Counts bytes of one device for one session, within a limit. Thread-safe, and may be used in finalizers.

    The host counts weights, arenas, feeds and results. A provider whose kernels allocate memory themselves may count it here, too
    (``MemoryUse.KERNELS``): then the limit holds for all of it. An account that is asked for more raises an error that is a
    ``MemoryError``, too; raised by a kernel, it gets the node and its inputs in its text.

    Args:
        device: whose memory it is.
        limit_bytes: of all uses together; None for no limit.
    """

    def __init__(self, device: OrtDevice, limit_bytes: int | None = None) -> None:
        self.device = device
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._held = dict.fromkeys(MemoryUse, 0)
        self._total_bytes = self._peak_bytes = 0
        # Appending takes no lock: a finalizer may run in the middle of anything, in a thread that has the lock.
        self._returned: deque[tuple[MemoryUse, int]] = deque()

    def take(self, use: MemoryUse, nbytes: int, purpose: str) -> None:
        """Count bytes that are about to be allocated.

        Args:
            use: what they are for.
            nbytes: how many.
            purpose: the same in words, with the names of node or value, and its shape: for the error.

        Raises:
            OutOfMemory: the session would hold more than its limit; nothing was counted.
        """
        with self._lock:
            if self._returned:
                self._settle()
            total = self._total_bytes + nbytes
            if self.limit_bytes is not None and total > self.limit_bytes:
                held = ", ".join(f"{each.value} {count}" for each, count in self._held.items() if count) or "nothing"
                raise OutOfMemory(
                    f"{purpose} needs {nbytes} bytes on {self.device}, where this session holds {total - nbytes} of "
                    f"{self.limit_bytes} bytes ({held}): raise the provider option {GPU_MEM_LIMIT}, or run smaller inputs"
                )
            self._held[use] += nbytes
            self._total_bytes = total
            self._peak_bytes = max(self._peak_bytes, total)

    def note(self, nbytes: int) -> None:
        """Note for the peak that so many more bytes are held for a while. Takes next to no time where the peak was as high."""
        if self._total_bytes + nbytes > self._peak_bytes:
            with self._lock:
                self._settle()
                self._peak_bytes = max(self._peak_bytes, self._total_bytes + nbytes)

    def hold(self, use: MemoryUse, nbytes: int, purpose: str) -> HeldBytes:
        """Count bytes for as long as an object lives: kept with an array, it counts the array's.

        Args:
            use: as for ``take``.
            nbytes: as for ``take``.
            purpose: as for ``take``.

        Raises:
            OutOfMemory: the session would hold more than its limit; nothing was counted.
        """
        self.take(use, nbytes, purpose)
        return HeldBytes(self, use, nbytes)

    def give_back(self, use: MemoryUse, nbytes: int) -> None:
        """Count bytes no more."""
        self._returned.append((use, nbytes))

    def usage(self, provider: str) -> MemoryUsage:
        """What is held now.

        Args:
            provider: name of the provider, for the report.
        """
        with self._lock:
            self._settle()
            return MemoryUsage(provider, self.device, dict(self._held), self._peak_bytes, self.limit_bytes)

    def _settle(self) -> None:
        while self._returned:
            use, nbytes = self._returned.popleft()
            self._held[use] -= nbytes
            self._total_bytes -= nbytes


class HeldBytes:
    """Bytes that an account counts until this object ends.

    Args:
        account: counts them already.
        use: what they are for.
        nbytes: how many.
    """

    __slots__ = ("_account", "_nbytes", "_use")

    def __init__(self, account: MemoryAccount, use: MemoryUse, nbytes: int) -> None:
        self._account, self._use, self._nbytes = account, use, nbytes

    def __del__(self) -> None:
        """Count them no more."""
        self._account.give_back(self._use, self._nbytes)


def memory_limit(options: Mapping[str, str]) -> int | None:
    """The limit that provider options set; None if they set none.

    Raises:
        InvalidArgument: it is no number of bytes.
    """
    text = str(options.get(GPU_MEM_LIMIT, "")).strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text)):
        raise InvalidArgument(f"provider option {GPU_MEM_LIMIT} must be a number of bytes, at least 1, got {text!r}")
    return int(text)
