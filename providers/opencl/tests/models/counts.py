"""What the OpenCL provider does in a run: calls, kernels launched one by one, and copies that are waited for."""

import dataclasses

from ort_sdk_opencl.launching.bound_calls import OpenClCall, OpenClCopy, OpenClSequence
from ort_sdk_opencl.launching.launcher import OpenClLauncher
from ort_sdk_opencl.queueing.device_queue import DeviceQueue
from ort_sdk_opencl.queueing.staging import MOST_STAGED_BYTES


@dataclasses.dataclass
class Counts:
    """Since the last reset, on all devices."""

    calls: int = 0
    """Bound calls: several that are joined are one."""
    launches: int = 0
    """Kernels outside of bound calls."""
    uploads: int = 0
    """Copies to the device that the host waits for."""
    downloads: int = 0
    """Waits for copies from the device, outside of bound calls."""

    def reset(self):
        for field in dataclasses.fields(self):
            setattr(self, field.name, 0)


def counted(monkeypatch):
    """Counts from now on."""
    counts = Counts()

    def note(owner, name, field, counts_it=lambda *_arguments: True):
        original = getattr(owner, name)

        def noted(self, *arguments, **named):
            if counts_it(self, *arguments):
                setattr(counts, field, getattr(counts, field) + 1)
            return original(self, *arguments, **named)

        monkeypatch.setattr(owner, name, noted)

    for owner in (OpenClCall, OpenClCopy, OpenClSequence):
        note(owner, "__call__", "calls")
    note(OpenClLauncher, "launch", "launches")
    note(DeviceQueue, "upload", "uploads", lambda _queue, array, *_rest: array.nbytes > MOST_STAGED_BYTES)
    note(DeviceQueue, "download", "downloads")
    return counts
