"""Launches on an OpenCL queue: memory, copies, and calls with their arguments set beforehand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from ort_sdk.api import HostArray, InvalidArgument
from ort_sdk.device import Argument, DeviceClass, Dialect, KernelSource, Launch, Memory, MovingMemory, Scalar, packed_scalar
from ort_sdk.device.status import fault_text

__all__ = ["OpenClCall", "OpenClLauncher", "joined"]

_TYPES = {"i32": np.int32, "i64": np.int64, "u32": np.uint32, "u64": np.uint64, "f32": np.float32, "f64": np.float64}


class OpenClLauncher:
    """The device layer's ``Launcher`` on one device, with one in-order queue. Shared by the sessions of the process.

    Args:
        device: ``pyopencl.Device``.
        device_class: what plans know of it.
        dialect: of its compiler.
    """

    def __init__(self, device: Any, device_class: DeviceClass, dialect: Dialect) -> None:
        self.device, self.device_class, self.dialect = device, device_class, dialect
        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(self.context)
        self.alignment_bytes = max(64, device.mem_base_addr_align // 8)
        self._lock = threading.RLock()
        self._programs: dict[KernelSource, Any] = {}
        self._kernels: dict[KernelSource, Any] = {}
        self._status = cl.Buffer(
            self.context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=np.zeros(1, np.uint32)
        )
        self.may_report = False
        """Whether a kernel was queued, since the status word was read, that may have set it."""

    def allocate(self, nbytes: int) -> Memory:
        try:
            return Memory(nbytes, cl.Buffer(self.context, cl.mem_flags.READ_WRITE, max(nbytes, 1)))
        except cl.Error as error:
            limit = self.device.max_mem_alloc_size
            raise MemoryError(f"allocating {nbytes} bytes on {self.device.name}: {error}; at most {limit} in a buffer") from error

    def part(self, memory: Memory, offset_bytes: int, nbytes: int) -> Memory:
        return Memory(nbytes, memory.handle.get_sub_region(offset_bytes, nbytes))

    def upload(self, array: HostArray, memory: Memory) -> None:
        cl.enqueue_copy(self.queue, memory.handle, _bytes(array), is_blocking=True)

    def download(self, memory: Memory, array: HostArray) -> None:
        cl.enqueue_copy(self.queue, _bytes(array), memory.handle, is_blocking=True)

    def launch(self, launch: Launch) -> None:
        # Setting arguments and queueing are two calls on one object, which threads share.
        with self._lock:
            kernel = self._kernels.get(launch.kernel)
            if kernel is None:
                kernel = self._kernels[launch.kernel] = self._kernel(launch)
            self.may_report = self.may_report or launch.reports
            kernel.set_args(*self._arguments(launch, {}))
            cl.enqueue_nd_range_kernel(self.queue, kernel, _global_size(launch), launch.lanes)

    def bind(self, launches: Sequence[Launch], places: Mapping[Memory, Memory], moving: Sequence[MovingMemory]) -> OpenClCall:
        rows, changes = [], []
        by_placeholder = {id(each.placeholder): each.current for each in moving}
        with self._lock:
            for launch in launches:
                kernel = self._kernel(launch)
                for position, argument in enumerate(launch.arguments):
                    if id(argument) in by_placeholder:
                        changes.append((kernel, position, by_placeholder[id(argument)]))
                    else:
                        kernel.set_arg(position, _argument(argument, places))
                if launch.reports:
                    kernel.set_arg(len(launch.arguments), self._status)
                rows.append((kernel, _global_size(launch), launch.lanes))
        return OpenClCall(self, rows, changes, any(launch.reports for launch in launches))

    def _kernel(self, launch: Launch) -> Any:
        """A kernel object of its own: it holds the arguments."""
        program = self._programs.get(launch.kernel)
        if program is None:
            program = self._programs[launch.kernel] = self._build(launch.kernel)
        kernel = cl.Kernel(program, launch.kernel.name)
        kinds = [_TYPES[each.type] if isinstance(each, Scalar) else None for each in launch.arguments]
        kernel.set_scalar_arg_dtypes([*kinds, None] if launch.reports else kinds)
        return kernel

    def _build(self, kernel: KernelSource) -> Any:
        defines = {"HAS_F64": 1} if self.device_class.has_float64 else {}
        source = self.dialect.source(kernel.text, {**defines, **dict(kernel.defines)})
        return cl.Program(self.context, source).build(options=[])

    def _arguments(self, launch: Launch, places: Mapping[Memory, Memory]) -> list[Any]:
        arguments = [_argument(each, places) for each in launch.arguments]
        return [*arguments, self._status] if launch.reports else arguments

    def finish(self) -> None:
        """Wait for all that is queued.

        Raises:
            InvalidArgument: a kernel met contents that it cannot take.
        """
        self.queue.finish()
        if not self.may_report:
            return
        with self._lock:
            self.may_report = False
            found = np.zeros(1, np.uint32)
            cl.enqueue_copy(self.queue, found, self._status, is_blocking=True)
            if found[0]:
                cl.enqueue_copy(self.queue, self._status, np.zeros(1, np.uint32), is_blocking=True)
                raise InvalidArgument(f"running on {self.device.name}: {fault_text(int(found[0]))}")


class OpenClCall:
    """Kernels whose arguments are set, but for memory that is another in each run."""

    def __init__(
        self,
        launcher: OpenClLauncher,
        rows: list[tuple[Any, tuple[int, ...], tuple[int, ...]]],
        changes: list[tuple[Any, int, Callable[[], Memory]]],
        reports: bool,
    ) -> None:
        self.launcher, self.rows, self.changes, self.reports = launcher, rows, changes, reports

    def __call__(self) -> None:
        for kernel, position, current in self.changes:
            kernel.set_arg(position, current().handle)
        if self.reports:
            self.launcher.may_report = True
        queue, enqueue = self.launcher.queue, cl.enqueue_nd_range_kernel
        for kernel, size, lanes in self.rows:
            enqueue(queue, kernel, size, lanes)


def _argument(argument: Argument, places: Mapping[Memory, Memory]) -> Any:
    if isinstance(argument, Scalar):
        return packed_scalar(argument)
    return places.get(argument, argument).handle


def _global_size(launch: Launch) -> tuple[int, ...]:
    return tuple(groups * lanes for groups, lanes in zip(launch.groups, launch.lanes, strict=True))


def _bytes(array: HostArray) -> HostArray:
    return array.reshape(-1).view(np.uint8)


def joined(calls: Sequence[OpenClCall]) -> OpenClCall:
    """Several calls as one."""
    rows = [row for call in calls for row in call.rows]
    changes = [change for call in calls for change in call.changes]
    return OpenClCall(calls[0].launcher, rows, changes, any(call.reports for call in calls))
