"""The device layer's launcher on OpenCL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pyopencl as cl

from ort_sdk.api import Event, HostArray
from ort_sdk.device import Argument, KernelSource, Launch, Memory, MovingMemory, Scalar, packed_scalar
from ort_sdk.device.drivers import DeviceForm, DriverStore, MemoryPool
from ort_sdk.device.recently_used import RecentlyUsed
from ort_sdk_opencl.queueing.device_queue import DeviceQueue
from ort_sdk_opencl.queueing.runs import OpenClEvent

from .bound_calls import OpenClCall
from .programs import MOST_PROGRAMS, Programs

__all__ = ["OpenClLauncher"]

_TYPES = {"i32": np.int32, "i64": np.int64, "u32": np.uint32, "u64": np.uint64, "f32": np.float32, "f64": np.float64}


class OpenClLauncher:
    """Launches on one device in one form. Shared by sessions and threads.

    Args:
        queue: of the device.
        form: in which it is used.
        pool: its memory.
        store: keeps built programs.
    """

    def __init__(self, queue: DeviceQueue, form: DeviceForm, pool: MemoryPool, store: DriverStore) -> None:
        self.queue, self.form, self.pool = queue, form, pool
        self.device_class, self.dialect = form.device_class, form.dialect
        self.alignment_bytes = queue.alignment_bytes
        self.programs = Programs(queue, form.dialect, store, has_float64=form.device_class.has_float64)
        self._kernels: RecentlyUsed[KernelSource, Any] = RecentlyUsed(MOST_PROGRAMS)

    def allocate(self, nbytes: int) -> Memory:
        self.queue.check()
        return self.pool.allocate(nbytes)

    def part(self, memory: Memory, offset_bytes: int, nbytes: int) -> Memory:
        return self.pool.part(memory, offset_bytes, nbytes)

    def upload(self, array: HostArray, memory: Memory) -> None:
        self.queue.upload(array, memory.handle)

    def download(self, memory: Memory, array: HostArray) -> None:
        self.queue.download([(memory.handle, array)])

    def finish(self) -> None:
        self.queue.finish()

    def run(self) -> AbstractContextManager[None]:
        return self.queue.run()

    def record_event(self) -> OpenClEvent:
        return self.queue.record()

    def order_after(self, event: Event) -> None:
        # a queue's own work is in order, and events of other contexts are nothing that a queue could wait for
        if not isinstance(event, OpenClEvent) or event.queue is not self.queue:
            event.wait()

    def stamp(self) -> Any:
        return self.queue.stamp()

    def seconds_between(self, start: Any, end: Any) -> float:
        return float(end.profile.end - start.profile.end) * 1e-9

    def launch(self, launch: Launch) -> None:
        queue = self.queue
        # Setting arguments and queueing are two calls on one object, which threads share.
        with queue.queueing(f"queueing kernel '{launch.kernel.name}'"):
            kernel = self._kernels.get(launch.kernel)
            if kernel is None:
                kernel = self._kernel(launch)
                self._kernels[launch.kernel] = kernel
            arguments = [_argument(each, {}) for each in launch.arguments]
            kernel.set_args(*arguments, *([queue.status_word()] if launch.reports else []))
            queue.note(cl.enqueue_nd_range_kernel(queue.queue, kernel, _global_size(launch), launch.lanes))

    def bind(self, launches: Sequence[Launch], places: Mapping[Memory, Memory], moving: Sequence[MovingMemory]) -> OpenClCall:
        rows, changes, reports = [], [], []
        by_placeholder = {id(each.placeholder): each.current for each in moving}
        for launch in launches:
            kernel = self._kernel(launch)
            with self.queue.errors(f"setting arguments of kernel '{launch.kernel.name}'"):
                for position, argument in enumerate(launch.arguments):
                    if id(argument) in by_placeholder:
                        changes.append((kernel, position, by_placeholder[id(argument)]))
                    else:
                        kernel.set_arg(position, _argument(argument, places))
            if launch.reports:
                reports.append((kernel, len(launch.arguments)))
            rows.append((kernel, _global_size(launch), launch.lanes))
        return OpenClCall(self.queue, rows, changes, reports, [launches, places])

    def _kernel(self, launch: Launch) -> Any:
        """A kernel object of its own: it holds the arguments, each of a type that is known, so that setting it is cheap."""
        types = [_TYPES[each.type] if isinstance(each, Scalar) else None for each in launch.arguments]
        return self.programs.kernel(launch.kernel, [*types, None] if launch.reports else types)


def _argument(argument: Argument, places: Mapping[Memory, Memory]) -> Any:
    if isinstance(argument, Scalar):
        return packed_scalar(argument)
    return places.get(argument, argument).handle


def _global_size(launch: Launch) -> tuple[int, ...]:
    return tuple(groups * lanes for groups, lanes in zip(launch.groups, launch.lanes, strict=True))
