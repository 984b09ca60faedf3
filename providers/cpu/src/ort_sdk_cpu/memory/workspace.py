"""Working memory of kernels, shared by all kernels and sessions on one thread."""

from __future__ import annotations

import math
import threading
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu.platform.addresses import address_of

if TYPE_CHECKING:
    from ort_sdk_cpu.jit.task import TaskCall

__all__ = ["Scratch", "ToldMemory", "aligned_bytes", "growth", "scratch_of", "shared_scratch"]

ALIGNMENT_BYTES = 64


def aligned_bytes(nbytes: int) -> HostArray:
    """Memory with any contents at a multiple of 64 bytes: uint8, (nbytes,)."""
    raw = np.empty(nbytes + ALIGNMENT_BYTES, dtype=np.uint8)
    start = -address_of(raw) % ALIGNMENT_BYTES
    return raw[start : start + nbytes]


class _Growth(threading.local):
    """Tells when working memory of this thread was replaced by more: addresses told before are of no use then."""

    def __init__(self) -> None:
        self.mark = object()
        """Another one after each replacement, and on each thread."""

    def happen(self) -> None:
        """Tell that memory was replaced."""
        self.mark = object()


growth = _Growth()


class Scratch(threading.local):
    """One buffer per thread and name, as large as the largest array asked for. What is in it lasts until the next request."""

    def __init__(self) -> None:
        self._buffers: dict[str, tuple[HostArray, int, int]] = {}
        """Name → buffer, its bytes and its address."""

    def array(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
        """An array with any contents."""
        nbytes = math.prod(shape) * dtype.itemsize
        self.address(name, nbytes)
        return self._buffers[name][0][:nbytes].view(dtype).reshape(shape)

    def address(self, name: str, nbytes: int) -> int:
        """Where so many bytes with any contents are: until this thread asks for more under the same name."""
        return self._found(name, nbytes)[2]

    def room(self, name: str, nbytes: int) -> HostArray:
        """So many bytes or more, with any contents: until this thread asks for more under the same name."""
        return self._found(name, nbytes)[0]

    def _found(self, name: str, nbytes: int) -> tuple[HostArray, int, int]:
        found = self._buffers.get(name)
        if found is None or found[1] < nbytes:
            buffer = aligned_bytes(nbytes)
            found = self._buffers[name] = (buffer, nbytes, address_of(buffer))
            growth.happen()
        return found


class ToldMemory:
    """Working memory of a call that has to be told where it is; for one thread at a time.

    Args:
        scratch: where it is from.
        name: under which name.
        nbytes: how much.
    """

    __slots__ = ("_mark", "_name", "_nbytes", "_scratch")

    def __init__(self, scratch: Scratch, name: str, nbytes: int) -> None:
        self._scratch, self._name, self._nbytes = scratch, name, nbytes
        self._mark: object = None

    def new_room(self) -> HostArray | None:
        """The memory on this thread, or more of it; None if the call was told, and none has been replaced since."""
        if growth.mark is self._mark:
            return None
        room = self._scratch.room(self._name, self._nbytes)
        self._mark = growth.mark
        return room

    def tell(self, call: TaskCall, place: int) -> None:
        """Tell a task, at this place among its arguments, unless it was told, and none has been replaced since."""
        room = self.new_room()
        if room is not None:
            call.point(place, room)


def shared_scratch() -> Scratch:
    """The working memory in use; a new one if nobody holds any: it is freed with the last session."""
    found = _in_use.get("all sessions")
    if found is None:
        with _lock:
            found = _in_use.setdefault("all sessions", Scratch())
    return found


def scratch_of(info: KernelInfo) -> Scratch:
    """The working memory of a node's kernels."""
    found = getattr(info.execution_provider, "scratch", None)
    return found if isinstance(found, Scratch) else shared_scratch()


_lock = threading.Lock()
_in_use: weakref.WeakValueDictionary[str, Scratch] = weakref.WeakValueDictionary()
