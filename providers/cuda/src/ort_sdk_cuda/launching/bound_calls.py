"""Calls whose arguments are set beforehand: of kernels, and of copies between them.

Each is a part of a sequence: ``prepare`` takes what is another in this run, ``enqueue`` queues on a stream or into a graph, and
``land`` brings to the host's array what the device has written. By itself it is a call that does all three.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ort_sdk.api import Slot
from ort_sdk.api.stopping import check_stopped
from ort_sdk.device import Memory
from ort_sdk_cuda.driver import CudaDriver, Handle
from ort_sdk_cuda.driver.cuda_driver import Extent
from ort_sdk_cuda.queueing import DeviceQueue, PinnedBuffer, address_of

from .argument_cells import ArgumentCells

__all__ = ["BoundPart", "CudaCall", "CudaCopy", "MovingArgument", "Row"]

MOST_STAGED_BYTES = 1 << 20
"""Of a copy that goes through pinned memory of its own, and into graphs."""
LAUNCHES_BETWEEN_LOOKS = 32
"""After which a call looks whether the run shall stop."""


class Row(NamedTuple):
    """A launch."""

    function: Handle
    groups: Extent
    lanes: Extent


class MovingArgument(NamedTuple):
    """An argument that is another address in each run."""

    row: int
    position: int
    """Among the launch's arguments."""
    current: Callable[[], Memory]


class BoundPart(Protocol):
    """A part of a sequence. All functions but ``land`` are called inside the queue's ``commands``."""

    queue: DeviceQueue
    reports: bool
    """Whether kernels of it report."""

    @property
    def is_capturable(self) -> bool:
        """Whether it can be in a graph; asked after ``prepare``."""

    @property
    def launch_count(self) -> int:
        """How many commands it queues."""

    @property
    def addresses(self) -> tuple[int, ...]:
        """What may be another in each run."""

    def __call__(self) -> None:
        """Queue it by itself; a copy is waited for."""

    def prepare(self) -> None:
        """Take the arrays of this run."""

    def enqueue(self, driver: CudaDriver, stream: Handle) -> None:
        """Queue it."""

    def capture(self, driver: CudaDriver, stream: Handle) -> list[Handle]:
        """Put it into the graph that is being captured; the nodes that ``update`` needs."""

    def update(self, driver: CudaDriver, executable: Handle, nodes: Sequence[Handle]) -> None:
        """Let the nodes of an executable graph be those of this run."""

    def land(self) -> None:
        """Bring to the host's array what was copied, after the stream came there."""


class CudaCall:
    """Kernels as one call.

    Args:
        queue: of the device.
        rows: in order.
        arguments: of each row, with any address where it moves.
        moving: arguments that are others in each run.
        reports: whether a kernel reports.
        kept: what the arguments refer to.
    """

    is_capturable = True

    def __init__(
        self,
        queue: DeviceQueue,
        rows: Sequence[Row],
        arguments: Sequence[Sequence[Any]],
        moving: Sequence[MovingArgument],
        *,
        reports: bool,
        kept: Sequence[Any],
    ) -> None:
        self.queue, self.rows, self.reports, self.kept = queue, rows, reports, kept
        self._cells = ArgumentCells(arguments)
        self._launches = [(*row, self._cells.parameters(index)) for index, row in enumerate(rows)]
        self._moving = [(self._cells.position(each.row, each.position), each.current) for each in moving]
        self._moving_rows = sorted({each.row for each in moving})
        self._current: tuple[int, ...] = ()

    @property
    def launch_count(self) -> int:
        return len(self.rows)

    @property
    def addresses(self) -> tuple[int, ...]:
        return self._current

    def __call__(self) -> None:
        with self.queue.commands(f"queueing {len(self.rows)} kernels") as driver:
            self.prepare()
            self.enqueue(driver, self.queue.stream)
            if self.reports:
                self.queue.collect_reports()

    def prepare(self) -> None:
        if self._moving:
            self._current = tuple(int(current().handle) for _, current in self._moving)
            for (position, _), address in zip(self._moving, self._current, strict=True):
                self._cells.put(position, address)

    def enqueue(self, driver: CudaDriver, stream: Handle) -> None:
        launch = driver.launch
        for index, (function, groups, lanes, parameters) in enumerate(self._launches):
            if index % LAUNCHES_BETWEEN_LOOKS == 0:
                check_stopped()
            launch(function, groups, lanes, stream, parameters)

    def capture(self, driver: CudaDriver, stream: Handle) -> list[Handle]:
        nodes, moving = [], set(self._moving_rows)
        for index, (function, groups, lanes, parameters) in enumerate(self._launches):
            driver.launch(function, groups, lanes, stream, parameters)
            if index in moving:
                nodes.append(driver.captured_node(stream))
        return nodes

    def update(self, driver: CudaDriver, executable: Handle, nodes: Sequence[Handle]) -> None:
        for index, node in zip(self._moving_rows, nodes, strict=True):
            function, groups, lanes, parameters = self._launches[index]
            driver.set_kernel_node(executable, node, function, groups, lanes, parameters)

    def land(self) -> None:
        """Nothing: kernels write to the device."""


class CudaCopy:
    """A copy between the host and the device. Small ones go through pinned memory of their own.

    Args:
        queue: of the device.
        source: read by the call.
        target: written by the call.
    """

    reports = False
    launch_count = 1

    def __init__(self, queue: DeviceQueue, source: Slot, target: Slot) -> None:
        self.queue, self._source, self._target = queue, source, target
        self._staging: PinnedBuffer | None = None
        self._pinned = 0
        """Address of the host's side: in its own pinned memory, or in that of a copy before it; 0 if it has none."""
        self._memory: Memory | None = None
        self._nbytes = 0
        self.to_host = False
        """Whether it copies from the device; known from the first run on."""

    @property
    def is_capturable(self) -> bool:
        return self._nbytes <= MOST_STAGED_BYTES

    @property
    def addresses(self) -> tuple[int, ...]:
        return () if self._memory is None else (int(self._memory.handle), self._pinned)

    def __call__(self) -> None:
        with self.queue.commands("queueing a copy") as driver:
            self.prepare()
            self.stage()
            self.enqueue(driver, self.queue.stream)
        # What it is staged in is free for the next run.
        self.queue.finish()
        self.land()

    def prepare(self) -> None:
        # a slot that moves may have been empty when the copy was bound
        target, source = self._target.array, self._source.array
        self.to_host = isinstance(target, np.ndarray)
        self._nbytes = int(target.nbytes)
        self._memory = (source if self.to_host else target).dense().held if self._nbytes else None
        if self._staging is None and 0 < self._nbytes <= MOST_STAGED_BYTES:
            self._staging = PinnedBuffer(self.queue, self._nbytes)
        self._pinned = 0 if self._staging is None else self._staging.address

    def follow(self, copies: Sequence[CudaCopy]) -> bool:
        """Read what copies to the host leave in pinned memory, where the host would read it from their targets.

        Args:
            copies: that are queued before it, and that nobody waits for in between; prepared.

        Returns:
            False if it reads what one of them writes, and that is not in pinned memory as a whole.
        """
        source = self._source.array
        for copy in reversed(copies):
            target = copy._target.array
            if np.may_share_memory(source, target):
                offset = address_of(source) - address_of(target)
                is_inside = offset >= 0 and offset + self._nbytes <= target.nbytes
                if copy._staging is None or not source.flags.c_contiguous or not is_inside:
                    return False
                self._pinned = copy._staging.address + offset
                return True
        return True

    def stage(self) -> None:
        """Take the host's array, unless it reads what an earlier copy leaves."""
        staging = self._staging
        if staging is not None and not self.to_host and self._pinned == staging.address:
            array = self._source.array
            np.copyto(self._staged(staging, array.shape, array.dtype), array)

    def enqueue(self, driver: CudaDriver, stream: Handle) -> None:
        if self._memory is None:
            return
        device = int(self._memory.handle)
        if self.to_host and self._pinned:
            driver.copy_to_host(self._pinned, device, self._nbytes, stream)
        elif self.to_host:
            self.queue.download([(device, self._target.array)])
        elif self._pinned:
            driver.copy_to_device(device, self._pinned, self._nbytes, stream)
        else:
            self.queue.upload(np.ascontiguousarray(self._source.array), device)

    def capture(self, driver: CudaDriver, stream: Handle) -> list[Handle]:
        self.enqueue(driver, stream)
        return [] if self._memory is None else [driver.captured_node(stream)]

    def update(self, driver: CudaDriver, executable: Handle, nodes: Sequence[Handle]) -> None:
        for node in nodes:
            device, pinned = self.addresses
            target, source = (pinned, device) if self.to_host else (device, pinned)
            driver.set_copy_node(executable, node, target, source, self._nbytes, self.queue.context, to_host=self.to_host)

    def land(self) -> None:
        if self.to_host and self._staging is not None:
            target = self._target.array
            target[...] = self._staged(self._staging, target.shape, target.dtype)

    @staticmethod
    def _staged(staging: PinnedBuffer, shape: tuple[int, ...], dtype: Any) -> Any:
        return staging.array.view(dtype).reshape(shape)
