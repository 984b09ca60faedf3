"""What the providers of all devices have: arrays that the host may ask about, memory, and copies."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import numpy as np

from ort_sdk.api import (
    CPU_DEVICE,
    Array,
    Event,
    ExecutionProvider,
    FusibleProgram,
    HostArray,
    InvalidArgument,
    OrtDevice,
    OrtMemoryInfo,
    OrtSdkError,
    Slot,
    StepFusion,
    TensorElementType,
)

from .array import DeviceArray
from .context import DeviceContext
from .expressions import views
from .expressions.nodes import Strided, element_count
from .launcher import Launcher, SupportsRuns
from .launches import Memory
from .programs.fusion import fuse_neighbours
from .run_events import UnreadRuns

__all__ = ["DeviceAllocator", "DeviceDataTransfer", "DeviceExecutionProvider"]


class DeviceExecutionProvider(ExecutionProvider):
    """A device in one session. Work is queued in order; runs end before it is done where the launcher ``SupportsRuns``.

    Memory that nobody refers to any more may be given to others at once, also while the device works on it: all threads and
    sessions queue on one queue, so that what is queued for the next owner comes after what was queued for the last one. The host
    never writes to a device's memory but through that queue.

    Args:
        name: of the provider.
        device: of the host's.
        options: as the user gave them.
        context: computes on the device.
    """

    def __init__(self, name: str, device: OrtDevice, options: Mapping[str, str], context: DeviceContext) -> None:
        super().__init__(name, device, options)
        self.context = context
        self._runs = context.launcher if isinstance(context.launcher, SupportsRuns) else None
        self._unread = UnreadRuns()

    def run_scope(self) -> AbstractContextManager[None]:
        return _WaitingScope(self.context.launcher) if self._runs is None else _RunScope(self._runs, self._unread)

    def synchronize(self) -> None:
        try:
            self._unread.wait()
        except OrtSdkError:
            # the error of what was queued first is raised, when all is done
            with contextlib.suppress(OrtSdkError):
                self.context.launcher.finish()
            raise
        self.context.launcher.finish()

    def record_event(self) -> Event:
        return super().record_event() if self._runs is None else self._runs.record_event()

    def order_after(self, event: Event) -> None:
        if self._runs is None:
            event.wait()
        else:
            self._runs.order_after(event)

    def stamp(self) -> Any:
        if self._runs is not None:
            return self._runs.stamp()
        self.context.launcher.finish()
        return time.perf_counter()

    def seconds_between(self, start: Any, end: Any) -> float:
        return end - start if self._runs is None else self._runs.seconds_between(start, end)

    def describe(self, array: Array) -> tuple[TensorElementType, tuple[int, ...]]:
        # outputs on the host are NumPy's
        return (array.element_type, array.shape) if isinstance(array, DeviceArray) else super().describe(array)

    def fuse_steps(self, program: FusibleProgram) -> StepFusion:
        return fuse_neighbours(program, self.context)

    def reshaped(self, array: DeviceArray, shape: Sequence[int]) -> DeviceArray | None:
        sizes = tuple(shape)
        if element_count(sizes) != array.size:
            return None
        found = views.reshaped(array.dense(), sizes)
        return None if found is None else array.made(found)

    def outer_range(self, array: DeviceArray, start: int, stop: int) -> DeviceArray | None:
        source = array.dense()
        row_bytes = array.nbytes // max(array.shape[0], 1)
        launcher = self.context.launcher
        if start * row_bytes % launcher.alignment_bytes or start >= stop or not row_bytes:
            return None
        part = self.context.part(source.held, start * row_bytes, (stop - start) * row_bytes)
        return array.made(Strided(part, (stop - start, *array.shape[1:]), array.element_type))

    def shares_memory(self, first: Array, second: Array, *, entirely: bool = False) -> bool:
        if isinstance(first, list) or isinstance(second, list):
            # a sequence shares what its tensors do
            firsts, seconds = (each if isinstance(each, list) else [each] for each in (first, second))
            return any(self.shares_memory(one, other, entirely=entirely) for one in firsts for other in seconds)
        if not (isinstance(first, DeviceArray) and isinstance(second, DeviceArray)):
            return first is second
        (whole, begin), (other, start) = first.dense().held.place, second.dense().held.place
        if whole is not other:
            return False
        return begin == start if entirely else begin < start + second.nbytes and start < begin + first.nbytes


class _WaitingScope:
    """The scope of a run of a launcher that knows no runs."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is None:
            self._launcher.finish()
            return
        # the first error is the one to be raised
        with contextlib.suppress(OrtSdkError):
            self._launcher.finish()


class _RunScope:
    """The scope of a run that ends before its work; a class, since a generator takes some microseconds of each run."""

    __slots__ = ("_launcher", "_run", "_unread")

    def __init__(self, launcher: SupportsRuns, unread: UnreadRuns) -> None:
        self._launcher, self._unread = launcher, unread
        self._run = launcher.run()

    def __enter__(self) -> None:
        self._run.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if error is None:
            try:
                self._unread.add(self._launcher.record_event())
            except BaseException as failure:
                self._run.__exit__(type(failure), failure, failure.__traceback__)
                raise
        else:
            # the first error is the one to be raised
            with contextlib.suppress(OrtSdkError):
                self._launcher.finish()
        self._run.__exit__(kind, error, traceback)


class DeviceAllocator:
    """Memory of a device, which goes back when nothing refers to it any more.

    Args:
        context: of the device.
        memory_info: of the memory.
    """

    def __init__(self, context: DeviceContext, memory_info: OrtMemoryInfo) -> None:
        self._context = context
        self.memory_info = memory_info

    def allocate(self, shape: Sequence[int], element_type: TensorElementType) -> DeviceArray:
        """A new array with undefined contents."""
        return DeviceArray(self._context, self._context.new(tuple(shape), element_type))

    def release(self, array: DeviceArray) -> None:
        """Nothing: the array is the last that refers to its memory, and ends with the call."""

    @property
    def block_alignment_bytes(self) -> int:
        """Of views; see the contract's ``SupportsBlocks``."""
        return self._context.launcher.alignment_bytes

    def allocate_block(self, nbytes: int) -> Memory:
        """Memory of which arrays are made."""
        return self._context.launcher.allocate(max(nbytes, 1))

    def grow_block(self, block: Memory, nbytes: int) -> bool:
        """Whether the block is as large: buffers do not grow."""
        return nbytes <= block.nbytes

    def view(self, block: Memory, offset_bytes: int, shape: Sequence[int], element_type: TensorElementType) -> DeviceArray:
        """An array in a block."""
        nbytes = element_count(shape) * element_type.numpy_dtype.itemsize
        part = self._context.part(block, offset_bytes, max(nbytes, 1)) if nbytes else Memory(1, block.handle)
        return DeviceArray(self._context, Strided(part, tuple(shape), element_type))


class DeviceDataTransfer:
    """Copies between the host and one device, and on it. An array of the host has been read when a copy returns.

    Args:
        device: of the host's.
        context: of the device.
    """

    def __init__(self, device: OrtDevice, context: DeviceContext) -> None:
        self._device, self._context = device, context

    def can_copy(self, source: OrtDevice, target: OrtDevice) -> bool:
        """To the device, from it, and on it."""
        own = source == self._device, target == self._device
        return all(own) or (own[0] and target.is_cpu) or (own[1] and source.is_cpu)

    def copy(self, array: HostArray | DeviceArray, source: OrtDevice, target: OrtDevice) -> HostArray | DeviceArray:
        """A new array on ``target``."""
        if isinstance(array, DeviceArray):
            if target.is_cpu:
                return self._context.download(array.node)
            made = DeviceArray(self._context, self._context.new(array.shape, array.element_type))
            self.copy_on_device(array, made)
            return made
        if array.dtype.hasobject:
            raise InvalidArgument(
                f"copying a tensor of strings, shape {list(array.shape)}, to {target}: strings stay on the host"
            )
        return DeviceArray(self._context, self._context.upload(array, TensorElementType.from_numpy_dtype(array.dtype)))

    def copy_into(
        self, array: HostArray | DeviceArray, source: OrtDevice, destination: HostArray | DeviceArray, target: OrtDevice
    ) -> None:
        """Fill ``destination``; see the contract's ``SupportsReadInto``."""
        if isinstance(array, DeviceArray):
            if isinstance(destination, DeviceArray):
                self.copy_on_device(array, destination)
            else:
                destination[...] = self._context.download(array.node)
        elif isinstance(destination, DeviceArray):
            if array.nbytes:
                self._context.launcher.upload(np.ascontiguousarray(array), destination.dense().held)
        else:
            raise InvalidArgument(f"copying from {source} to {target}: one of the two must be {self._device}")

    def copy_on_device(self, source: DeviceArray, target: DeviceArray) -> None:
        """Queue a copy to an array of the same shape and type, by a kernel; a library's own copy may be faster."""
        self._context.write(source.node, target.strided())

    def copy_all(
        self, arrays: Sequence[DeviceArray], source: OrtDevice, destinations: Sequence[HostArray | None]
    ) -> Sequence[HostArray]:
        """Contents of several arrays; see the contract's ``SupportsCopyAll``."""
        given = zip(arrays, destinations, strict=True)
        pairs = [(array.dense(), np.empty(array.shape, array.dtype) if into is None else into) for array, into in given]
        rows = [into if into.flags.c_contiguous else np.empty(into.shape, into.dtype) for _, into in pairs]
        self.download_all([(array.held, row) for (array, _), row in zip(pairs, rows, strict=True) if row.nbytes])
        for (_, into), row in zip(pairs, rows, strict=True):
            if into is not row:
                into[...] = row
        return [into for _, into in pairs]

    def download_all(self, pairs: Sequence[tuple[Memory, HostArray]]) -> None:
        """Copy memories to contiguous host arrays, one by one; a library may do so with one wait for all."""
        for memory, array in pairs:
            self._context.launcher.download(memory, array)

    def bind_copy(self, source: Slot, target: Slot) -> Callable[[], None]:
        """See the contract's ``SupportsBindCopy``."""

        def copy() -> None:
            # a slot that moves may have been empty when the copy was bound
            devices = (self._device, CPU_DEVICE) if isinstance(target.array, np.ndarray) else (CPU_DEVICE, self._device)
            self.copy_into(source.array, devices[0], target.array, devices[1])

        return copy
