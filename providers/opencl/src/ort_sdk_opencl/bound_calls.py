"""Calls of kernels whose arguments are set beforehand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyopencl as cl

from ort_sdk.api.stopping import check_stopped
from ort_sdk.device import Memory

from .device_queue import DeviceQueue

__all__ = ["OpenClCall", "joined"]

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
        queue, enqueue, event = self.queue, cl.enqueue_nd_range_kernel, None
        driver_queue = queue.queue
        queue.check()
        with queue.lock:
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
            except cl.Error as error:
                raise queue.failed(error, f"queueing {len(self.rows)} kernels") from error
            finally:
                if event is not None:
                    queue.note(event)


def joined(calls: Sequence[OpenClCall]) -> OpenClCall:
    """Several calls as one."""
    return OpenClCall(
        calls[0].queue,
        [row for call in calls for row in call.rows],
        [change for call in calls for change in call.changes],
        [report for call in calls for report in call.reports],
        [kept for call in calls for kept in call.kept],
    )
