"""The device layer's contexts, one per device and options, shared by the sessions of the process."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, MutableMapping

from ort_sdk.device import OPENCL, DeviceContext
from ort_sdk.device.drivers import (
    DeviceForm,
    DriverStore,
    MemoryPool,
    Tuning,
    UnusableDevice,
    chosen_form,
    known_reason,
    opened_store,
)

from .devices import DIALECTS, FoundDevice, find_devices
from .launching.launcher import OpenClLauncher
from .options import ProviderOptions
from .queueing.device_queue import DeviceQueue

__all__ = ["context_in_form", "context_of", "device_context", "find_devices", "launcher_of", "listed_devices"]

_lock = threading.RLock()
_queues: dict[int, DeviceQueue] = {}
_Key = tuple[DeviceQueue, ProviderOptions]
_contexts: dict[_Key, DeviceContext] = {}
"""Those without a limit of memory: they keep their kernels and free memory for later sessions."""
_limited: weakref.WeakValueDictionary[_Key, DeviceContext] = weakref.WeakValueDictionary()
"""Those with one, of which there may be any number: each ends with its last session, and its registry."""


def device_context(index: int, dialect: str = OPENCL.name) -> DeviceContext:
    """The context of a device with the options that are default, but for the dialect; see ``context_of``."""
    return context_of(ProviderOptions(index, dialect))


def context_of(options: ProviderOptions) -> DeviceContext:
    """The context that a session asks for. The first time on a machine its driver is tested, which takes seconds.

    Args:
        options: of the wanted dialect a plainer one is taken if its self-test fails.

    Raises:
        UnusableDevice: all forms fail.
    """
    with _lock:
        queue = _queue(options.index)
        found: MutableMapping[_Key, DeviceContext] = _limited if options.limit_bytes else _contexts
        context = found.get((queue, options))
        if context is None:
            context = found[queue, options] = _made(queue, options)
        return context


def context_in_form(index: int, form: DeviceForm) -> DeviceContext:
    """A context of its own for a device in a certain form, which is not tested: how kernels for other devices are tried.

    Args:
        index: of the device among ``find_devices()``.
        form: dialect and class; any class runs on any device whose work-groups have so many lanes.
    """
    with _lock:
        queue = _queue(index)
        return _context(queue, form, _store(queue.found))


def launcher_of(context: DeviceContext) -> OpenClLauncher:
    """The launcher of a context of this provider."""
    launcher = context.launcher
    assert isinstance(launcher, OpenClLauncher)  # noqa: S101 - this module makes no other
    return launcher


def listed_devices() -> list[int]:
    """Indices of all devices, those that are known to be unusable last: they say why when they are asked for. Cheap.

    Raises:
        Fail: there is no device.
        UnusableDevice: none can be used.
    """
    reasons = [known_reason(_store(found), _wanted(found, found.default_dialect)) for found in find_devices()]
    if all(reason is not None for reason in reasons):
        raise UnusableDevice(f"no OpenCL device passes its self-test: {'; '.join(filter(None, reasons))}")
    return sorted(range(len(reasons)), key=lambda index: reasons[index] is not None)


def _queue(index: int) -> DeviceQueue:
    """The device's queue; a new one if it was lost."""
    queue = _queues.get(index)
    if queue is None or queue.is_lost:
        for key in [key for key in _contexts if key[0] is queue]:
            del _contexts[key]
        queue = _queues[index] = DeviceQueue(find_devices()[index])
    return queue


def _made(queue: DeviceQueue, options: ProviderOptions) -> DeviceContext:
    store = _store(queue.found)
    form = chosen_form(_wanted(queue.found, options.dialect), OPENCL, _tester(queue, store), store, queue.name)
    tuning = Tuning(store, form, times=options.tunes) if options.is_tuned else None
    return _context(queue, form, store, options.limit_bytes, tuning)


def _tester(queue: DeviceQueue, store: DriverStore) -> Callable[[DeviceForm], DeviceContext]:
    return lambda form: _context(queue, form, store)


def _context(
    queue: DeviceQueue, form: DeviceForm, store: DriverStore, limit_bytes: int = 0, tuning: Tuning | None = None
) -> DeviceContext:
    return DeviceContext(OpenClLauncher(queue, form, MemoryPool(queue, limit_bytes), store), tuning)


def _wanted(found: FoundDevice, dialect: str) -> DeviceForm:
    return DeviceForm(DIALECTS[dialect], found.device_class())


def _store(found: FoundDevice) -> DriverStore:
    return opened_store("opencl", found.identity)
