"""The device layer's contexts, one per device, memory limit and stream, shared by the sessions of the process."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ort_sdk.device import DeviceContext
from ort_sdk.device.drivers import DeviceForm, DriverStore, MemoryPool, UnusableDevice, chosen_form, known_reason, opened_store

from .devices import FoundDevice, find_devices
from .driver import Cuda, cuda
from .launching import CudaLauncher
from .options import ProviderOptions
from .queueing import DeviceQueue

__all__ = ["context_in_form", "context_of", "device_context", "launcher_of", "listed_devices"]

_lock = threading.RLock()
_queues: dict[tuple[Cuda, int, int], DeviceQueue] = {}
_contexts: dict[tuple[DeviceQueue, int], DeviceContext] = {}


def device_context(index: int, limit_bytes: int = 0, stream: int = 0) -> DeviceContext:
    """The context of a device. The first time on a machine its driver is tested, which takes seconds.

    Args:
        index: of the device.
        limit_bytes: of memory; 0 for no limit.
        stream: address of the user's stream; 0 for the provider's own.

    Raises:
        ProviderUnavailableError: the device cannot be used.
        DeviceReset: it was lost.
    """
    with _lock:
        queue = _queue(index, stream)
        queue.check()
        context = _contexts.get((queue, limit_bytes))
        if context is None:
            context = _contexts[queue, limit_bytes] = _made(queue, limit_bytes)
        return context


def context_in_form(index: int, form: DeviceForm) -> DeviceContext:
    """A context of its own for a device in a certain form, which is not tested.

    Args:
        index: of the device.
        form: dialect and class.
    """
    with _lock:
        queue = _queue(index, 0)
        return _context(queue, form, 0, _store(queue.found))


def context_of(options: ProviderOptions) -> DeviceContext:
    """The context that a session asks for."""
    return device_context(options.index, options.limit_bytes, options.stream)


def launcher_of(context: DeviceContext) -> CudaLauncher:
    """The launcher of a context of this provider."""
    launcher = context.launcher
    assert isinstance(launcher, CudaLauncher)  # noqa: S101 - this module makes no other
    return launcher


def listed_devices() -> list[int]:
    """Indices of all devices, those that are known to be unusable last: they say why when they are asked for. Cheap.

    Raises:
        ProviderUnavailableError: there is no device, or none can be used.
    """
    reasons = [_reason(found) for found in find_devices()]
    if all(reason is not None for reason in reasons):
        raise UnusableDevice(f"no CUDA device can be used: {'; '.join(filter(None, reasons))}")
    return sorted(range(len(reasons)), key=lambda index: reasons[index] is not None)


def _reason(found: FoundDevice) -> str | None:
    return found.reason or known_reason(_store(found), _wanted(found))


def _queue(index: int, stream: int) -> DeviceQueue:
    key = (cuda(), index, stream)
    queue = _queues.get(key)
    if queue is None:
        found = find_devices()[index]
        if found.reason is not None:
            raise UnusableDevice(found.reason)
        queue = _queues[key] = DeviceQueue(found, stream)
    return queue


def _made(queue: DeviceQueue, limit_bytes: int) -> DeviceContext:
    store, wanted = _store(queue.found), _wanted(queue.found)
    form = chosen_form(wanted, wanted.dialect, _tester(queue, store), store, queue.name)
    return _context(queue, form, limit_bytes, store)


def _tester(queue: DeviceQueue, store: DriverStore) -> Callable[[DeviceForm], DeviceContext]:
    return lambda form: _context(queue, form, 0, store)


def _context(queue: DeviceQueue, form: DeviceForm, limit_bytes: int, store: DriverStore) -> DeviceContext:
    return DeviceContext(CudaLauncher(queue, form, MemoryPool(queue, limit_bytes), store))


def _wanted(found: FoundDevice) -> DeviceForm:
    return DeviceForm(found.cuda.compiler.dialect, found.device_class())


def _store(found: FoundDevice) -> DriverStore:
    return opened_store("cuda", found.identity)
