"""The data transfer of strict devices: the only door to their arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ort_sdk.api import CPU_DEVICE, Array, HostArray, InvalidArgument, OrtDevice, Slot, element_type_of

from .memory import StrictArray, StrictDevice, host_type
from .queue import Work

__all__ = ["StrictDataTransfer"]


class StrictDataTransfer:
    """Copies between the host and strict devices, and between two strict devices.

    A copy to a device reads an array of the host at once, and writes late if a run's scope is open, as a transfer from a staging
    buffer does. Outside a run there is nobody to wait for it, so it is done at once.

    Args:
        devices: the devices it reaches.
        reads_at_once: whether a copy from the host has read its source when it returns, as where runs end before their work.
    """

    def __init__(self, devices: Mapping[OrtDevice, StrictDevice], *, reads_at_once: bool = False) -> None:
        self._devices = devices
        self.reads_late = not reads_at_once

    def can_copy(self, source: OrtDevice, target: OrtDevice) -> bool:
        """Whether at least one side is a strict device, and the other one is too, or is the host."""
        strict = (source in self._devices, target in self._devices)
        return all(strict) or (strict[0] and target.is_cpu) or (strict[1] and source.is_cpu)

    def copy(self, array: Array, source: OrtDevice, target: OrtDevice) -> Array:
        """A new array on ``target``; see ``ort_sdk.api.DataTransfer.copy``."""
        self._require(source, target)
        if target.is_cpu:
            return self._read(array, source)
        device = self._devices[target]
        if not source.is_cpu:
            self._devices[source].cell_of(array, "copy")
        element_type = host_type(array) if source.is_cpu else element_type_of(array)
        result = device.poisoned(array.shape, element_type)
        self._write(array, source, result, target)
        return result

    def copy_all(self, arrays: Sequence[Array], source: OrtDevice, destinations: Sequence[HostArray | None]) -> list[HostArray]:
        """Contents on the host; see ``ort_sdk.api.SupportsCopyAll.copy_all``."""
        self._require(source, CPU_DEVICE)
        reads = [self._submit_read(array, source) for array in arrays]
        for work, _ in reversed(reads):
            # The queue is in order: only the first of these waits.
            self._devices[source].queue.wait(work)
        self._devices[source].queue.raise_errors()
        copied = []
        for (_, taken), destination in zip(reads, destinations, strict=True):
            if destination is not None:
                _fill_on_host(destination, taken[0], source)
            copied.append(taken[0] if destination is None else destination)
        self._devices[source].counts.downloads += len(copied)
        return copied

    def copy_into(self, array: Array, source: OrtDevice, destination: Array, target: OrtDevice) -> None:
        """Fill ``destination``; see ``ort_sdk.api.SupportsReadInto.copy_into``."""
        self._require(source, target)
        if target.is_cpu:
            _fill_on_host(destination, self._read(array, source), source)
        else:
            self._write(array, source, destination, target)

    def bind_copy(self, source: Slot, target: Slot) -> Callable[[], None]:
        """A copy as a call; see ``ort_sdk.api.SupportsBindCopy``. One to a device reads its source as late as ``copy`` does."""

        def copy() -> None:
            array, destination = source.array, target.array
            if isinstance(destination, StrictArray):
                self._devices[destination.device].counts.single_calls += 1
                self._write(array, CPU_DEVICE, destination, destination.device)
            else:
                self._read_into(array, destination)

        return copy

    def _read_into(self, array: StrictArray, destination: HostArray) -> None:
        """Fill host memory, and wait for that unless a joined call does."""
        device = self._devices[array.device]
        cell = device.cell_of(array, "copy")
        _check_fits(destination, array, array.device)

        def fill() -> None:
            destination[...] = cell.read()

        def wait() -> None:
            device.queue.wait(work)
            device.queue.raise_errors()

        device.counts.single_calls += 1
        device.counts.downloads += 1
        work = device.queue.submit(fill, f"copy from {array.device}")
        device.joined.wait(wait)

    def stream_into(self, pieces: Iterable[HostArray], destination: Array, target: OrtDevice) -> None:
        """Fill ``destination``; see ``ort_sdk.api.SupportsStreamInto.stream_into``."""
        self._require(CPU_DEVICE, target)
        element_type = element_type_of(destination)
        content = np.empty(math.prod(destination.shape), element_type.numpy_dtype)
        flat, start = content.view(np.uint8), 0
        for piece in pieces:
            flat[start : start + len(piece)] = piece
            start += len(piece)
        if start != len(flat):
            raise InvalidArgument(f"cannot fill {destination} of {len(flat)} bytes on {target} with pieces of {start} bytes")
        self._write(content.reshape(destination.shape), CPU_DEVICE, destination, target)

    def _require(self, source: OrtDevice, target: OrtDevice) -> None:
        if not self.can_copy(source, target):
            names = ", ".join(str(device) for device in self._devices)
            raise InvalidArgument(f"cannot copy from {source} to {target}: one side must be one of {names}, the other too or cpu")

    def _read(self, array: Array, source: OrtDevice) -> HostArray:
        work, taken = self._submit_read(array, source)
        self._devices[source].counts.downloads += 1
        self._devices[source].queue.wait(work)
        self._devices[source].queue.raise_errors()
        return taken[0]

    def _submit_read(self, array: Array, source: OrtDevice) -> tuple[Work, list[HostArray]]:
        device = self._devices[source]
        cell = device.cell_of(array, "copy")
        taken: list[HostArray] = []
        return device.queue.submit(lambda: taken.append(cell.read().copy()), f"copy from {source}"), taken

    def _write(self, array: Array, source: OrtDevice, destination: Array, target: OrtDevice) -> None:
        device = self._devices[target]
        cell = device.cell_of(destination, "copy")
        if source.is_cpu:
            host_type(array)
            device.counts.uploads += 1
            contents = array if self.reads_late else array.copy()
            work = device.queue.submit(lambda: cell.fill(contents), f"copy to {device.device}")
        else:
            if source == target:
                device.counts.device_copies += 1
            else:
                device.counts.peer_copies += 1
            # The source is read in the order of its own queue, so that a later release there cannot come first.
            read, taken = self._submit_read(array, source)
            source_queue = self._devices[source].queue

            def fill() -> None:
                source_queue.wait(read)
                cell.fill(taken[0])

            work = device.queue.submit(fill, f"copy from {source} to {device.device}")
        if not device.queue.in_scope:
            device.queue.wait(work)


def _fill_on_host(destination: HostArray, contents: HostArray, source: OrtDevice) -> None:
    _check_fits(destination, contents, source)
    destination[...] = contents


def _check_fits(destination: HostArray, array: Array, source: OrtDevice) -> None:
    if host_type(destination) is not element_type_of(array) or destination.shape != array.shape:
        raise InvalidArgument(
            f"cannot copy {array.dtype}{list(array.shape)} from {source} into host memory for "
            f"{destination.dtype}{list(destination.shape)}"
        )
