"""What the host asks of a device's memory: allocate, release, copy, synchronise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from .device import OrtDevice, OrtMemoryInfo
from .element_type import TensorElementType
from .kernel import Array, Slot

__all__ = [
    "LENT_MEMORY",
    "Allocator",
    "Block",
    "DataTransfer",
    "Event",
    "HostArray",
    "SupportsBindCopy",
    "SupportsBlocks",
    "SupportsCopyAll",
    "SupportsReadInto",
    "SupportsResults",
    "SupportsStreamInto",
]

HostArray = np.ndarray[Any, Any]
"""A NumPy array in ordinary host memory."""

Block = Any
"""A provider's own piece of device memory, of which ``SupportsBlocks.view`` makes arrays."""

LENT_MEMORY = "is_lent_to_arrays"
"""Attribute, true, of classes whose objects are bases of host arrays: an object's memory is reached through its arrays only, so
that a result that is the last array on it is handed out as it is. The object takes the memory back when it ends."""


class Event(Protocol):
    """A point in a device's work. It can be waited for by any thread, inside or outside a run, any number of times."""

    @property
    def is_done(self) -> bool:
        """Whether it has happened, as far as can be known without waiting."""

    def wait(self) -> None:
        """Block until it has happened; raises the first error of the work before it that belongs to the same run."""


class Allocator(Protocol):
    """Hands out arrays of one kind of memory. An OrtValue keeps the allocator of its array alive."""

    @property
    def memory_info(self) -> OrtMemoryInfo: ...
    def allocate(self, shape: Sequence[int], element_type: TensorElementType) -> Array:
        """A new array with undefined contents, aligned for the device; zero elements are allowed.

        Raises:
            MemoryError: the device has not enough memory; says bytes asked and bytes in use.
        """

    def release(self, array: Array) -> None:
        """Give the array's memory back. The caller holds no other reference and reads it no more."""


@runtime_checkable
class SupportsResults(Protocol):
    """Allocators that use memory of results again."""

    def allocate_result(self, shape: Sequence[int], element_type: TensorElementType) -> HostArray:
        """As ``allocate``, for an array that the user gets: nobody gives it back, it ends with what the user holds of it."""


@runtime_checkable
class SupportsBlocks(Protocol):
    """Allocators of devices whose memory the host lays out itself: values of a program are views of one block, by lifetime.

    All programs of a session share a block, one at a time; runs at the same time have one each. What a run writes to it need not
    last until the next. The block, and every view of it, keep its memory; it goes back with the last of them, after the work that
    was queued for it. Nobody releases a block or a view.
    """

    @property
    def block_alignment_bytes(self) -> int:
        """What offsets of views are multiples of: 256 for CUDA, ``MEM_BASE_ADDR_ALIGN`` / 8 for OpenCL's sub-buffers."""

    def allocate_block(self, nbytes: int) -> Block:
        """A new block with undefined contents.

        Raises:
            MemoryError: the device has not enough memory; says bytes asked and bytes in use.
        """

    def grow_block(self, block: Block, nbytes: int) -> bool:
        """Make a block larger where it is: its views stay as they are, and further ones may reach up to ``nbytes`` bytes.

        Returns:
            False if that is not possible, and nothing has changed: the host allocates a larger block then, and drops the programs
            that are bound to this one. They are made anew when they are used again.
        """

    def view(self, block: Block, offset_bytes: int, shape: Sequence[int], element_type: TensorElementType) -> Array:
        """An array in a block: dense, row-major, with undefined contents.

        It takes at most as many bytes as NumPy's array of this shape and type, and is inside the block. Views may overlap;
        the host sees to it that no two of them are in use at the same time.

        Args:
            block: from ``allocate_block``.
            offset_bytes: where it begins, a multiple of ``block_alignment_bytes``.
            shape: of the array; zero elements are allowed.
            element_type: of its elements.
        """


@runtime_checkable
class DataTransfer(Protocol):
    """Copies tensors between the provider's device and the host, or another device. Keeps its arguments alive until done."""

    def can_copy(self, source: OrtDevice, target: OrtDevice) -> bool:
        """Whether ``copy`` works between the two devices."""

    def copy(self, array: Array, source: OrtDevice, target: OrtDevice) -> Array:
        """A new array on ``target`` with the contents of ``array``, which is on ``source``.

        A copy to the host returns only when the contents are there; a copy to a device may still run on its queue, in
        order with the kernels queued later. The result never aliases ``array``.

        Where runs end before their work (``ExecutionProvider.synchronize``), a transfer whose copies from the host may read their
        source after they returned says so with a true attribute ``reads_late``. The host then waits at the end of a run for what
        reads the caller's arrays, and before the next one for what reads its own buffers.
        """


class SupportsReadInto(Protocol):
    """Data transfers that can also fill an array the caller owns (IOBinding with preallocated outputs).

    Where ``can_copy`` allows a device as source and target, and the provider joins calls, the host uses it to copy small values
    of the user on the device to arrays that stay the same from run to run, and from them.
    """

    def copy_into(self, array: Array, source: OrtDevice, destination: Array, target: OrtDevice) -> None:
        """Fill ``destination`` (on ``target``, same shape and type) with ``array`` (on ``source``)."""


class SupportsCopyAll(Protocol):
    """Data transfers that can bring several arrays to the host with one wait."""

    def copy_all(
        self, arrays: Sequence[Array], source: OrtDevice, destinations: Sequence[HostArray | None]
    ) -> Sequence[HostArray]:
        """The contents of arrays on the host, which are there when it returns.

        Args:
            arrays: on ``source``.
            source: the provider's device.
            destinations: for each, the host array to fill, of the same shape and type; None for a new one, as of ``copy``.
        """


class SupportsBindCopy(Protocol):
    """Data transfers whose copies between the host and the device can be bound, as kernels are.

    Such a copy is a call of the device's provider, which gets it in ``join_calls`` together with those of its kernels.
    """

    def bind_copy(self, source: Slot, target: Slot) -> Callable[[], None]:
        """A call without arguments that copies what ``source`` holds then into what ``target`` holds then.

        One slot is the host's, for NumPy arrays, the other one is of the device; which is which shows in their arrays. Both have
        the same shape and element type, in all calls. A slot that is not fixed may be empty now; one that is keeps its memory,
        which may be pinned for as long as the call exists. A source on the host may have any strides, a target is row-major.

        A call that copies to the host returns when the contents are there; one made of several calls may wait once, at its end.
        A call that copies to the device may read its source later, in order with the kernels queued: the host leaves those
        contents as they are until the run's work is done (see ``reads_late`` of ``DataTransfer.copy``).

        Args:
            source: read by the call.
            target: written by the call, which always finds an array there.
        """


class SupportsStreamInto(Protocol):
    """Data transfers that can also fill an array with bytes that come in pieces, so that the host never holds them all."""

    def stream_into(self, pieces: Iterable[HostArray], destination: Array, target: OrtDevice) -> None:
        """Fill ``destination`` (on ``target``) with bytes of the host.

        Args:
            pieces: contiguous ``uint8`` vectors in order, together as many bytes as ``destination`` has. Each is good until
                the next is asked for.
            destination: dense, row by row.
            target: its device.
        """
