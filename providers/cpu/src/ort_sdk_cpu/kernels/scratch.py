"""Working memory of bound kernels, shared by all kernels of a session on one thread."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo

__all__ = ["Scratch", "scratch_of"]

ALIGNMENT_BYTES = 64


class Scratch(threading.local):
    """One buffer per thread and name, as large as the largest array asked for. What is in it lasts until the next request."""

    def __init__(self) -> None:
        self._buffers: dict[str, HostArray] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
        """An array with any contents."""
        nbytes = math.prod(shape) * dtype.itemsize
        buffer = self._buffers.get(name)
        if buffer is None or buffer.nbytes < nbytes:
            raw = np.empty(nbytes + ALIGNMENT_BYTES, dtype=np.uint8)
            start = -raw.ctypes.data % ALIGNMENT_BYTES
            buffer = self._buffers[name] = raw[start : start + nbytes]
        return buffer[:nbytes].view(dtype).reshape(shape)


def scratch_of(info: KernelInfo) -> Scratch:
    """The session's working memory; a new one for a kernel outside a session."""
    found = getattr(info.execution_provider, "scratch", None)
    return found if isinstance(found, Scratch) else Scratch()
