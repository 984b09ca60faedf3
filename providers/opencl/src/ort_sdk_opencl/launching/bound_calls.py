"""Calls whose arguments are set beforehand: of kernels, and of copies between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from ort_sdk.api import Slot
from ort_sdk.api.stopping import check_stopped
from ort_sdk.device import CapturedCall, Memory
from ort_sdk_opencl.queueing.device_queue import DeviceQueue

__all__ = ["OpenClCall", "OpenClCopy", "OpenClSequence", "joined"]

FLUSHED_ROWS = 32
"""Kernels after which the device begins, if it has not: it works while the next ones are queued."""

Row = tuple[Any, tuple[int, ...], tuple[int, ...]]
"""Kernel object, global size, local size."""


class OpenClCall:
    """Kernels as one call. Each kernel object is of this call only, so that its arguments stay.

    Args:
        queue: of the device.
        rows: in order.
        changes: (kernel object, position, gives the memory of this run): arguments that are others in each run.
        reports: (kernel object, position) of the status words.
        kept: what the arguments refer to.
    """

    def __init__(
        self,
        queue: DeviceQueue,
        rows: Sequence[Row],
        changes: Sequence[tuple[Any, int, Callable[[], Memory]]],
        reports: Sequence[tuple[Any, int]],
        kept: Sequence[Any],
    ) -> None:
        self.queue, self.rows, self.changes, self.reports, self.kept = queue, rows, changes, reports, kept
        self._chunks = [rows[start : start + FLUSHED_ROWS] for start in range(0, len(rows), FLUSHED_ROWS)]

    def __call__(self) -> None:
        with self.queue.queueing(f"queueing {len(self.rows)} kernels"):
            self.enqueue()

    def enqueue(self) -> None:
        """Queue the kernels, under the queue's lock."""
        queue, enqueue, event = self.queue, cl.enqueue_nd_range_kernel, None
        driver_queue = queue.queue
        try:
            for kernel, position, current in self.changes:
                kernel.set_arg(position, current().handle)
            if self.reports:
                status = queue.status_word()
                for kernel, position in self.reports:
                    kernel.set_arg(position, status)
            for chunk in self._chunks:
                check_stopped()
                for kernel, size, lanes in chunk:
                    event = enqueue(driver_queue, kernel, size, lanes)
                driver_queue.flush()
        finally:
            if event is not None:
                queue.note(event)


class OpenClCopy:
    """A copy between the host and the device.

    Args:
        queue: of the device.
        source: read by the call. A large one on the host is read until the run ends, at the latest.
        target: written by the call.
    """

    def __init__(self, queue: DeviceQueue, source: Slot, target: Slot) -> None:
        self.queue, self._source, self._target = queue, source, target

    def __call__(self) -> None:
        _run(self.queue, [self], "queueing a copy")

    def enqueue(self, *, follows_downloads: bool = False) -> Any:
        """Queue the copy, under the queue's lock; the event to be waited for before the host reads.

        Args:
            follows_downloads: whether copies to the host are queued that may not have happened: what is copied to the device may
                be what they bring, and is then to be read in its place in the queue.
        """
        source, target, queue = self._source.array, self._target.array, self.queue
        if not target.nbytes:
            return None
        # a slot that moves may have been empty when the copy was bound
        if isinstance(target, np.ndarray):
            return queue.queue_download(source.dense().held.handle, target)
        if follows_downloads and not source.flags.c_contiguous:
            queue.settle()
        copy = queue.queue_upload(np.ascontiguousarray(source), target.dense().held.handle, reads_at_once=not follows_downloads)
        if copy is not None:
            queue.read_before_the_end(copy)
        return None


class OpenClSequence:
    """Calls one after the other, with one wait at the end for what the host reads.

    Args:
        queue: of the device.
        parts: in order.
    """

    def __init__(self, queue: DeviceQueue, parts: Sequence[OpenClCall | OpenClCopy]) -> None:
        self.queue, self.parts = queue, parts

    def __call__(self) -> None:
        _run(self.queue, self.parts, f"queueing {len(self.parts)} calls")


def _run(queue: DeviceQueue, parts: Sequence[OpenClCall | OpenClCopy], attempt: str) -> None:
    """Queue calls, and wait for what the host reads."""
    with queue.queueing(attempt):
        # An event of a copy that is dropped before it happened is waited for.
        copies: list[Any] = []
        for part in parts:
            if isinstance(part, OpenClCall):
                part.enqueue()
                continue
            copy = part.enqueue(follows_downloads=bool(copies))
            if copy is not None:
                copies.append(copy)
        if copies:
            queue.record()
    if copies:
        queue.finish()


def joined(calls: Sequence[Callable[[], Any]]) -> list[tuple[int, Callable[[], Any]]]:
    """Calls of this provider that follow each other as one; others, which compute on the host, stay as they are."""
    found: list[tuple[int, Callable[[], Any]]] = []
    group: list[OpenClCall | OpenClCopy] = []
    for position, call in enumerate([*calls, None]):
        own = call.launches if isinstance(call, CapturedCall) else call
        if isinstance(own, OpenClCall | OpenClCopy):
            group.append(own)
            continue
        if len(group) > 1:
            found.append((len(group), OpenClSequence(group[0].queue, _merged(group))))
        elif group:
            found.append((1, calls[position - 1]))
        group = []
        if call is not None:
            found.append((1, call))
    return found


def _merged(parts: Sequence[OpenClCall | OpenClCopy]) -> list[OpenClCall | OpenClCopy]:
    """Kernels of neighbours in one call, which takes less time than several."""
    merged: list[OpenClCall | OpenClCopy] = []
    for part in parts:
        before = merged[-1] if merged else None
        if isinstance(part, OpenClCall) and isinstance(before, OpenClCall):
            merged[-1] = OpenClCall(
                part.queue,
                [*before.rows, *part.rows],
                [*before.changes, *part.changes],
                [*before.reports, *part.reports],
                [*before.kept, *part.kept],
            )
        else:
            merged.append(part)
    return merged
