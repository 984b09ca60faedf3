"""The data transfer of strict devices: the only door to their arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from ort_sdk.api import CPU_DEVICE, Array, HostArray, InvalidArgument, OrtDevice, element_type_of

from .memory import StrictDevice, host_type
from .queue import Work

__all__ = ["StrictDataTransfer", "staged"]


class StrictDataTransfer:
    """Copies between the host and strict devices, and between two strict devices.

    A copy to a device reads an array of the host at once, and writes late if a run's scope is open, as a transfer from a staging
    buffer does. Outside a run there is nobody to wait for it, so it is done at once.

    Args:
        devices: the devices it reaches.
    """

    def __init__(self, devices: Mapping[OrtDevice, StrictDevice]) -> None:
        self._devices = devices

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

    def copy_into(self, array: Array, source: OrtDevice, destination: Array, target: OrtDevice) -> None:
        """Fill ``destination``; see ``ort_sdk.api.SupportsReadInto.copy_into``."""
        self._require(source, target)
        if target.is_cpu:
            contents = self._read(array, source)
            if host_type(destination) is not element_type_of(contents) or destination.shape != contents.shape:
                raise InvalidArgument(
                    f"cannot copy {contents.dtype}{list(contents.shape)} from {source} into host memory for "
                    f"{destination.dtype}{list(destination.shape)}"
                )
            destination[...] = contents
        else:
            self._write(array, source, destination, target)

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
        self._devices[source].queue.wait(work)
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
            contents = staged(array)
            work = device.queue.submit(lambda: cell.fill(contents), f"copy to {device.device}")
        else:
            # The source is read in the order of its own queue, so that a later release there cannot come first.
            read, taken = self._submit_read(array, source)
            source_queue = self._devices[source].queue

            def fill() -> None:
                source_queue.wait(read)
                cell.fill(taken[0])

            work = device.queue.submit(fill, f"copy from {source} to {device.device}")
        if not device.queue.in_scope:
            device.queue.wait(work)


def staged(array: HostArray) -> HostArray:
    """What a copy to a device reads later: the array's contents as they are now."""
    return np.array(array, copy=True)
