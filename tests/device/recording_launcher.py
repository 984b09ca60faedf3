"""A launcher without a device: it counts, and its memory is numbered."""

from __future__ import annotations

import itertools

import numpy as np

from ort_sdk.device import CUDA, GPU_CLASS, DeviceContext, Memory


class RecordingLauncher:
    """Keeps what it is asked for, and computes nothing."""

    alignment_bytes = 128

    def __init__(self, device_class=GPU_CLASS, dialect=CUDA):
        self.device_class, self.dialect = device_class, dialect
        self.launched, self.bound, self.parts = [], [], []
        self._handles = itertools.count(1)

    def allocate(self, nbytes):
        return Memory(nbytes, next(self._handles))

    def part(self, memory, offset_bytes, nbytes):
        assert offset_bytes % self.alignment_bytes == 0
        assert offset_bytes + nbytes <= memory.nbytes
        self.parts.append((memory, offset_bytes, nbytes))
        return Memory(nbytes, (memory.handle, offset_bytes))

    def upload(self, array, memory):
        assert array.nbytes <= memory.nbytes

    def download(self, memory, array):
        array[...] = np.zeros_like(array)

    def launch(self, launch):
        self.launched.append(launch)

    def bind(self, launches, places, moving):
        self.bound.append((list(launches), dict(places), list(moving)))
        return lambda: self.launched.extend(launches)


def recording_context(device_class=GPU_CLASS, dialect=CUDA):
    return DeviceContext(RecordingLauncher(device_class, dialect))
