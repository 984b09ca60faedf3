"""The device layer's contexts on the first device: as the class it has, and as a GPU, whose groups and barriers it has, too."""

import functools

import numpy as np

from ort_sdk.device import GPU_CLASS, OPENCL
from ort_sdk.device.drivers import DeviceForm
from ort_sdk.device.namespace.device_namespace import DeviceNamespace

CLASSES = ("own", "gpu")


def namespace(kind):
    """The first device's arrays, computed with kernels for a class of devices."""
    from ort_sdk_opencl.device import device_context

    # tests lose the device, which has another queue then
    return _namespace(kind, device_context(0).launcher.queue)


@functools.cache
def _namespace(kind, queue):
    from ort_sdk_opencl.device import context_in_form, device_context

    if kind == "own":
        return DeviceNamespace(device_context(0))
    return DeviceNamespace(context_in_form(0, DeviceForm(OPENCL, GPU_CLASS)))


def launches_of(xp, monkeypatch):
    """Names of the kernels that are launched from now on."""
    names, launch = [], xp.context.launcher.launch

    def noted(one):
        names.append(one.kernel.name)
        launch(one)

    monkeypatch.setattr(xp.context.launcher, "launch", noted)
    return names


def host(array):
    """Contents in NumPy, float16 and such in float64."""
    found = array.context.download(array.node)
    return (
        found.astype(np.float64) if found.dtype.kind == "V" or (found.dtype.itemsize == 2 and found.dtype.kind == "f") else found
    )
