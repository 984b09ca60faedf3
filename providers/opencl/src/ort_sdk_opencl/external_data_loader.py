"""External weights straight from their file: without a copy where device and host share memory, else into mapped buffers."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from ort_sdk.api import ExternalDataInfo, HostArray, OrtDevice, OrtSdkError
from ort_sdk.device import DeviceArray, DeviceContext, DeviceExternalDataLoader, Memory
from ort_sdk.device.expressions.nodes import Strided

from .device import launcher_of
from .queueing.device_queue import DeviceQueue

__all__ = ["LEAST_SHARED_BYTES", "OpenClExternalDataLoader"]

LEAST_SHARED_BYTES = 1 << 16
"""Of a weight whose file is used in place: smaller ones are copied, and need no buffer of their own."""
_LINE_BYTES = 64
"""Sizes of buffers over the host's memory are multiples of it, or drivers copy them."""


class OpenClExternalDataLoader(DeviceExternalDataLoader):
    """Puts weights on one device.

    A device that shares the host's memory reads the pages of the file's map: another session or process with the same weights
    takes no more memory for them. Others get each weight by one copy, from the map into a mapped buffer; unmapping is queued, so
    that the device takes one weight while the next is read.

    Args:
        device: the device.
        context: what computes on it.
    """

    def __init__(self, device: OrtDevice, context: DeviceContext) -> None:
        super().__init__(device)
        self._queue = launcher_of(context).queue
        found = self._queue.found
        # The map cannot be written, so that sharing is left to devices that are the processor itself.
        self._shares_memory = found.is_cpu and bool(found.device.host_unified_memory)

    def fill(self, batch: Sequence[tuple[ExternalDataInfo, DeviceArray]]) -> None:
        for info, tensor in batch:
            shared = self._shared(info)
            if shared is not None:
                tensor.node = Strided(shared, tensor.shape, tensor.element_type)
            elif info.length:
                _copy(self._queue, _content(info), tensor.dense().held.handle)
        self._queue.finish()

    def _shared(self, info: ExternalDataInfo) -> Memory | None:
        """The pages of the map that have a weight, as memory of the device; None where it has to be copied."""
        content = info.content
        if content is None or not self._shares_memory or info.length < LEAST_SHARED_BYTES or content.flags.writeable:
            return None
        address = content.ctypes.data + info.offset
        before = address % mmap.PAGESIZE
        first, size = info.offset - before, -(-(before + info.length) // _LINE_BYTES) * _LINE_BYTES
        if before % self._queue.alignment_bytes or first < 0 or first + size > len(content):
            return None
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.USE_HOST_PTR
        with self._queue.errors(f"using {info.length} bytes of a file's map"):
            whole = cl.Buffer(self._queue.context, flags, hostbuf=content[first : first + size])
        return _MappedMemory(info.length, whole.get_sub_region(before, info.length), whole, self._queue)


class _MappedMemory(Memory):
    """Memory of the host in a buffer, which keeps it alive until the device does not read it any more.

    Drivers keep their own memory until queued kernels are done; of a file's map they know nothing.
    """

    __slots__ = ("_queue", "whole")

    def __init__(self, nbytes: int, handle: Any, whole: Any, queue: DeviceQueue) -> None:
        super().__init__(nbytes, handle)
        self.whole, self._queue = whole, queue

    def __del__(self) -> None:
        with contextlib.suppress(OrtSdkError):
            self._queue.settle()


def _content(info: ExternalDataInfo) -> HostArray:
    assert info.content is not None  # noqa: S101 - it was checked
    return info.content[info.offset : info.offset + info.length]


def _copy(queue: DeviceQueue, content: HostArray, buffer: Any) -> None:
    """Copy to a buffer; the device has it when what was queued is done."""
    attempt, flags = f"loading an external weight of {content.nbytes} bytes", cl.map_flags.WRITE_INVALIDATE_REGION
    with queue.queueing(attempt):
        mapped, ready = cl.enqueue_map_buffer(queue.queue, buffer, flags, 0, (content.nbytes,), np.uint8, is_blocking=False)
    with queue.errors(attempt):
        ready.wait()
    try:
        np.copyto(mapped, content)
    finally:
        with queue.queueing(attempt):
            queue.note(mapped.base.release(queue.queue))
