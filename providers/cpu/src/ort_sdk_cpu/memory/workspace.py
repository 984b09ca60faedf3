"""Workspace of kernels: temporary memory that all kernels and sessions share on each thread."""

from __future__ import annotations

import math
import threading
import weakref
from typing import Any, Protocol

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu.platform.addresses import address_of

__all__ = ["Pointable", "Workspace", "WorkspaceBinding", "aligned_bytes", "growth", "shared_workspace", "workspace_of"]

ALIGNMENT_BYTES = 64


def aligned_bytes(nbytes: int) -> HostArray:
    """Memory with any contents at a multiple of 64 bytes: uint8, (nbytes,)."""
    raw = np.empty(nbytes + ALIGNMENT_BYTES, dtype=np.uint8)
    start = -address_of(raw) % ALIGNMENT_BYTES
    return raw[start : start + nbytes]


class _Growth(threading.local):
    """Generation of this thread's buffers: addresses taken in an earlier one are invalid."""

    def __init__(self) -> None:
        self.generation = object()
        """The current generation; unique over threads, compared by identity."""

    def invalidate(self) -> None:
        """Invalidate addresses: a buffer was replaced by a larger one."""
        self.generation = object()


growth = _Growth()


class Pointable(Protocol):
    """A call whose arguments can be pointed at arrays: a ``TaskCall``."""

    def point(self, position: int, array: HostArray | None, offset: int = 0) -> None:
        """Use an array's memory, ``offset`` bytes on, for the argument at a position; 0 for None."""


class Workspace(threading.local):
    """One buffer per thread and name, as large as the largest request. Its contents last until the next request."""

    def __init__(self) -> None:
        self._buffers: dict[str, tuple[HostArray, int, int]] = {}
        """Name → buffer, its size in bytes, its address."""

    def array(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
        """An uninitialized array, at a multiple of 64 bytes; valid until this thread asks for more under the same name.

        Args:
            name: of the buffer.
            shape: of the array.
            dtype: of the array.
        """
        nbytes = math.prod(shape) * dtype.itemsize
        self.address(name, nbytes)
        return self._buffers[name][0][:nbytes].view(dtype).reshape(shape)

    def address(self, name: str, nbytes: int) -> int:
        """Address of a buffer of ``nbytes`` bytes or more; valid until this thread asks for more under the same name."""
        return self._buffer(name, nbytes)[2]

    def buffer(self, name: str, nbytes: int) -> HostArray:
        """A buffer of ``nbytes`` bytes or more, uninitialized; valid until this thread asks for more under the same name."""
        return self._buffer(name, nbytes)[0]

    def _buffer(self, name: str, nbytes: int) -> tuple[HostArray, int, int]:
        found = self._buffers.get(name)
        if found is None or found[1] < nbytes:
            buffer = aligned_bytes(nbytes)
            found = self._buffers[name] = (buffer, nbytes, address_of(buffer))
            growth.invalidate()
        return found


class WorkspaceBinding:
    """Points a call at its workspace on the thread that runs it. For one thread at a time.

    Args:
        workspace: the workspace.
        name: of the buffer.
        nbytes: size of the buffer.
    """

    __slots__ = ("_generation", "_name", "_nbytes", "_workspace")

    def __init__(self, workspace: Workspace, name: str, nbytes: int) -> None:
        self._workspace, self._name, self._nbytes = workspace, name, nbytes
        self._generation: object = None

    def renewed_buffer(self) -> HostArray | None:
        """This thread's buffer; None if it was returned before and is still valid."""
        if growth.generation is self._generation:
            return None
        buffer = self._workspace.buffer(self._name, self._nbytes)
        self._generation = growth.generation
        return buffer

    def bind(self, call: Pointable, position: int) -> None:
        """Point a call's argument at this thread's buffer, unless it points there already.

        Args:
            call: the call.
            position: of the argument.
        """
        buffer = self.renewed_buffer()
        if buffer is not None:
            call.point(position, buffer)


def shared_workspace() -> Workspace:
    """The workspace of this process; created when nobody holds one, and freed with the last session."""
    found = _in_use.get("all sessions")
    if found is None:
        with _lock:
            found = _in_use.setdefault("all sessions", Workspace())
    return found


def workspace_of(info: KernelInfo) -> Workspace:
    """The workspace of a node's kernels: that of its execution provider, or the process's."""
    found = getattr(info.execution_provider, "workspace", None)
    return found if isinstance(found, Workspace) else shared_workspace()


_lock = threading.Lock()
_in_use: weakref.WeakValueDictionary[str, Workspace] = weakref.WeakValueDictionary()
