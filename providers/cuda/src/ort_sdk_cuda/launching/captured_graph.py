"""Kernels and copies as one graph, queued by one command."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ort_sdk_cuda.driver import CudaDriver, CudaError, Handle
from ort_sdk_cuda.queueing import DeviceQueue

from .bound_calls import BoundPart

__all__ = ["CapturedGraph"]

MOST_EXECUTABLES = 4
"""Of one graph: each has the addresses of one kind of run, as where two caches of keys and values take turns."""

Executables = dict[tuple[int, ...], Handle]


class CapturedGraph:
    """A graph of parts that were prepared, with their addresses. It is captured when it is made.

    Args:
        queue: of the device, whose commands are being queued.
        driver: with the context current.
        parts: in order, all of them capturable.

    Raises:
        CudaError: the driver does not capture them.
    """

    def __init__(self, queue: DeviceQueue, driver: CudaDriver, parts: Sequence[BoundPart]) -> None:
        self._queue, self._parts = queue, parts
        with queue.capturing() as stream:
            try:
                self._nodes = [part.capture(driver, stream) for part in parts]
            except BaseException:
                with contextlib.suppress(CudaError):
                    driver.free_graph(driver.end_capture(stream), ())
                raise
            self._graph = driver.end_capture(stream)
        self._executables: Executables = {}
        self._captured = self._addresses()

    def launch(self, driver: CudaDriver) -> None:
        """Queue the graph with the parts' addresses of this run."""
        driver.launch_graph(self._executable(driver), self._queue.stream)

    def _executable(self, driver: CudaDriver) -> Handle:
        addresses = self._addresses()
        found = self._executables.get(addresses)
        if found is None:
            is_new = len(self._executables) < MOST_EXECUTABLES
            found = driver.instantiate(self._graph) if is_new else self._executables.pop(next(iter(self._executables)))
            if not is_new or addresses != self._captured:
                for part, nodes in zip(self._parts, self._nodes, strict=True):
                    part.update(driver, found, nodes)
            self._executables[addresses] = found
        return found

    def _addresses(self) -> tuple[int, ...]:
        return tuple(address for part in self._parts for address in part.addresses)

    def __del__(self) -> None:
        if hasattr(self, "_executables"):
            self._queue.discard(_freed, (self._graph, tuple(self._executables.values())))


def _freed(queue: DeviceQueue, handles: tuple[Handle, tuple[Handle, ...]]) -> None:
    queue.driver.free_graph(*handles)
