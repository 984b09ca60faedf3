"""External weights straight from their file into mapped device buffers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyopencl as cl

from ort_sdk.api import Array, ExternalDataInfo, Fail, OrtDevice, OrtMemoryInfo
from ort_sdk.device import DeviceContext

__all__ = ["OpenClExternalDataLoader"]


class OpenClExternalDataLoader:
    """Fills buffers of one device: each is mapped, and the file's bytes are read into the map, with no copy on the way.

    Unmapping is queued, so that a device with memory of its own takes one weight while the next one is read.
    """

    def __init__(self, device: OrtDevice, context: DeviceContext) -> None:
        self._device = device
        self._launcher = context.launcher

    def can_load(self, memory_info: OrtMemoryInfo) -> bool:
        return memory_info.device == self._device

    def can_load_tensor(self, info: ExternalDataInfo) -> bool:
        """Only what is in a file, or in a buffer that stands for one."""
        return info.content is not None

    def load_tensor(self, info: ExternalDataInfo, tensor: Array) -> None:
        self.load_tensors([(info, tensor)])

    def load_tensors(self, batch: Sequence[tuple[ExternalDataInfo, Array]]) -> None:
        """Fill several tensors; returns when the device has them.

        Raises:
            Fail: a tensor is no range of its file.
        """
        for info, tensor in batch:
            self._load(info, tensor)
        self._launcher.queue.finish()

    def _load(self, info: ExternalDataInfo, tensor: Array) -> None:
        content = info.content
        available = 0 if content is None else len(content)
        if content is None or info.offset + info.length > available or info.length != tensor.nbytes:
            found = f"{info.length} bytes at {info.offset} of '{info.location}' ({available} bytes)"
            raise Fail(f"loading '{info.name}': {found} for an array of {tensor.nbytes} bytes")
        if not info.length:
            return
        queue = self._launcher.queue
        flags = cl.map_flags.WRITE_INVALIDATE_REGION
        mapped, _ = cl.enqueue_map_buffer(
            queue, tensor.dense().memory.handle, flags, 0, (info.length,), np.uint8, is_blocking=True
        )
        try:
            np.copyto(mapped, content[info.offset : info.offset + info.length])
        finally:
            mapped.base.release(queue)
