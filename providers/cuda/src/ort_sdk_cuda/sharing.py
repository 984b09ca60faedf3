"""Memory that the provider's arrays share with those of other libraries."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Event, InvalidArgument, TensorElementType
from ort_sdk.device import DeviceArray, DeviceContext, Memory
from ort_sdk.device.drivers import capsule_of, shared_tensor
from ort_sdk.device.expressions.nodes import Strided, element_count, item_bytes

from .queueing import DeviceQueue, QueueEvent

__all__ = ["DLPACK_TYPE", "given_tensor", "taken_tensor", "wrapped"]

DLPACK_TYPE = 2
"""``kDLCUDA``."""
ALIGNMENT_BYTES = 16
"""Of what kernels load at once."""
_LEGACY_STREAM, _NO_ORDER = 1, -1


class _ForeignMemory(Memory):
    """Memory of another library."""

    __slots__ = ("owner",)

    def __init__(self, nbytes: int, address: int, owner: Any) -> None:
        super().__init__(nbytes, address)
        self.owner = owner


def wrapped(
    context: DeviceContext, queue: DeviceQueue, address: int, shape: tuple[int, ...], element_type: TensorElementType, owner: Any
) -> DeviceArray:
    """An array of memory that others allocated; see the contract's ``wrap_memory``.

    Raises:
        InvalidArgument: there is no memory of the device at the address, or not as much, or it is not aligned.
    """
    nbytes = element_count(shape) * item_bytes(element_type)
    if nbytes:
        _check(queue, address, nbytes)
    return DeviceArray(context, Strided(_ForeignMemory(max(nbytes, 1), address, owner), shape, element_type))


def _check(queue: DeviceQueue, address: int, nbytes: int) -> None:
    attempt = f"using {nbytes} bytes at {address:#x} on {queue.name}"
    if address % ALIGNMENT_BYTES:
        raise InvalidArgument(f"{attempt}: the address must be a multiple of {ALIGNMENT_BYTES}; copy the tensor first")
    with queue.waiting(attempt) as driver:
        found = driver.memory_range(address)
    if found is None or found[2] != queue.found.ordinal:
        where = "nowhere on a device" if found is None else f"on cuda:{found[2]}"
        raise InvalidArgument(f"{attempt}: the address is {where}")
    start, size, _ = found
    if address + nbytes > start + size:
        raise InvalidArgument(f"{attempt}: the memory there ends after {start + size - address} bytes")


def given_tensor(queue: DeviceQueue, array: DeviceArray, stream: Any, ready: Event | None) -> Any:
    """DLPack capsule of an array; see the contract's ``to_dlpack``.

    Raises:
        InvalidArgument: DLPack has no such element type.
    """
    source = array.dense()
    if ready is not None and stream != _NO_ORDER:
        if isinstance(ready, QueueEvent):
            with queue.commands("letting another library's stream wait") as driver:
                driver.wait_event(driver.stream_at(_LEGACY_STREAM if stream is None else int(stream)), ready.handle)
        else:
            ready.wait()
    device = (DLPACK_TYPE, queue.found.ordinal)
    return capsule_of(int(source.held.handle), array.shape, array.element_type, device, source.held)


def taken_tensor(context: DeviceContext, queue: DeviceQueue, tensor: Any) -> DeviceArray:
    """An array of another library's tensor; see the contract's ``from_dlpack``.

    Raises:
        InvalidArgument: it is no dense tensor of this device of a type that there is.
    """
    with queue.waiting("taking a DLPack tensor") as driver:
        stream = driver.stream_address(queue.stream)
    found = shared_tensor(tensor.__dlpack__(stream=stream))
    found.check_dense()
    return wrapped(context, queue, found.address, found.shape, found.element_type, found)
