"""The device layer's launcher on CUDA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from ort_sdk.api import Event, HostArray
from ort_sdk.device import Argument, Launch, Memory, MovingMemory, Scalar
from ort_sdk.device.drivers import DeviceForm, DriverStore, MemoryPool
from ort_sdk_cuda.driver.cuda_driver import Extent
from ort_sdk_cuda.queueing import DeviceQueue, QueueEvent

from .argument_cells import ArgumentCells
from .bound_calls import CudaCall, MovingArgument, Row
from .programs import Programs

__all__ = ["CudaLauncher"]


class CudaLauncher:
    """Launches on one device in one form. Shared by sessions and threads.

    Args:
        queue: of the device.
        form: in which it is used.
        pool: its memory.
        store: keeps compiled kernels.
    """

    def __init__(self, queue: DeviceQueue, form: DeviceForm, pool: MemoryPool, store: DriverStore) -> None:
        self.queue, self.form, self.pool = queue, form, pool
        self.device_class, self.dialect = form.device_class, form.dialect
        self.alignment_bytes = queue.alignment_bytes
        self.programs = Programs(queue, store)

    def allocate(self, nbytes: int) -> Memory:
        self.queue.check()
        return self.pool.allocate(nbytes)

    def part(self, memory: Memory, offset_bytes: int, nbytes: int) -> Memory:
        return self.pool.part(memory, offset_bytes, nbytes)

    def address_of(self, memory: Memory) -> int:
        """What other libraries know memory by."""
        return int(memory.handle)

    def upload(self, array: HostArray, memory: Memory) -> None:
        self.queue.upload(array, memory.handle)

    def download(self, memory: Memory, array: HostArray) -> None:
        self.queue.download([(memory.handle, array)])

    def finish(self) -> None:
        self.queue.finish()

    def run(self) -> AbstractContextManager[None]:
        return self.queue.run()

    def record_event(self) -> QueueEvent:
        return self.queue.record()

    def order_after(self, event: Event) -> None:
        if isinstance(event, QueueEvent):
            self.queue.order_after(event)
        else:
            event.wait()

    def stamp(self) -> QueueEvent:
        return self.queue.record(is_timed=True)

    def seconds_between(self, start: QueueEvent, end: QueueEvent) -> float:
        with self.queue.waiting("reading the time of events") as driver:
            return driver.elapsed_seconds(start.handle, end.handle)

    def launch(self, launch: Launch) -> None:
        queue, row = self.queue, self._row(launch)
        cells = ArgumentCells([self._arguments(launch, {})])
        with queue.commands(f"queueing kernel '{launch.kernel.name}'") as driver:
            driver.launch(*row, queue.stream, cells.parameters(0))
            if launch.reports:
                queue.collect_reports()

    def bind(self, launches: Sequence[Launch], places: Mapping[Memory, Memory], moving: Sequence[MovingMemory]) -> CudaCall:
        by_placeholder = {id(each.placeholder): each.current for each in moving}
        found = [
            MovingArgument(index, position, by_placeholder[id(argument)])
            for index, launch in enumerate(launches)
            for position, argument in enumerate(launch.arguments)
            if id(argument) in by_placeholder
        ]
        return CudaCall(
            self.queue,
            [self._row(launch) for launch in launches],
            [self._arguments(launch, places) for launch in launches],
            found,
            reports=any(launch.reports for launch in launches),
            kept=[launches, places],
        )

    def _row(self, launch: Launch) -> Row:
        return Row(self.programs.kernel(launch.kernel), _extent(launch.groups), _extent(launch.lanes))

    def _arguments(self, launch: Launch, places: Mapping[Memory, Memory]) -> list[int | Scalar]:
        report = [self.queue.report_address] if launch.reports else []
        return [*(_argument(each, places) for each in launch.arguments), *report]


def _argument(argument: Argument, places: Mapping[Memory, Memory]) -> int | Scalar:
    if isinstance(argument, Scalar):
        return argument
    # memory that moves has no address yet
    return int(places.get(argument, argument).handle or 0)


def _extent(sizes: Sequence[int]) -> Extent:
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z
