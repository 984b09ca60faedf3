"""Memory of a strict device: arrays that the host cannot read, filled late, poisoned outside of their lifetime."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from ort_sdk.api import HostArray, InvalidArgument, OrtDevice, RuntimeException, TensorElementType, element_type_of
from ort_sdk.testing.device_counts import DeviceCounts, JoinedWork
from ort_sdk.testing.memory_meter import MemoryMeter

from .queue import StrictQueue, Work

__all__ = ["BLOCK_ALIGNMENT_BYTES", "POISON", "StrictArray", "StrictBlock", "StrictDevice", "host_type", "peek"]

POISON = 0xCD
"""Every byte of memory that holds nothing yet, or no more."""
BLOCK_ALIGNMENT_BYTES = 256


class _Cell:
    """The memory of one array, which queued work keeps hold of after the array itself is gone."""

    __slots__ = ("_held", "_meter", "is_released", "owner", "storage")

    def __init__(self, meter: MemoryMeter, storage: HostArray | None = None, owner: Any = None) -> None:
        self._meter = meter
        self.owner = owner
        """Block, or memory of another library, that it is a part of; None if it is alone in its memory, which is counted here."""
        self._held = None if storage is None or owner is not None else meter.hold(storage.nbytes)
        self.storage = storage
        self.is_released = False

    def read(self) -> HostArray:
        """The contents, not to be written."""
        if self.storage is None:
            raise RuntimeException("the array's contents were never computed, since the work before it failed")
        view = self.storage.view()
        view.flags.writeable = False
        return view

    def fill(self, contents: HostArray) -> None:
        """Take a copy of the contents; memory that exists already must fit."""
        if self.storage is None:
            self.storage = np.array(contents, order="C", copy=True)
            self._held = self._meter.hold(contents.nbytes)
        elif self.storage.shape != contents.shape or self.storage.dtype != contents.dtype:
            raise RuntimeException(
                f"cannot write {contents.dtype}{list(contents.shape)} into memory for "
                f"{self.storage.dtype}{list(self.storage.shape)}"
            )
        else:
            self.storage[...] = contents

    def poison(self) -> None:
        """Overwrite every byte of memory that ends here, and count it no more."""
        self._held = None
        if self.storage is not None and self.owner is None:
            self.storage.reshape(-1).view(np.uint8)[...] = POISON

    def begins_with(self, other: _Cell) -> bool:
        """Whether the two begin at the same byte, as far as they have memory by now."""
        if self.storage is None or other.storage is None or not self.storage.size:
            return self is other
        return bool(self.storage.ctypes.data == other.storage.ctypes.data)

    def overlaps(self, other: _Cell) -> bool:
        """Whether the two have bytes in common, as far as they have memory by now."""
        if self.storage is None or other.storage is None:
            return self is other
        return self is other or np.shares_memory(self.storage, other.storage)


class StrictBlock:
    """A block of a strict device: views of it keep it, and it ends with the last of them.

    Args:
        device: the device.
        nbytes: of the block.
    """

    def __init__(self, device: StrictDevice, nbytes: int) -> None:
        self._held = device.meter.hold(nbytes)
        self.device = device
        self.storage: HostArray = np.full(nbytes, POISON, np.uint8)

    def poison(self) -> None:
        """Overwrite every byte, after the work queued so far: nothing in a block lasts from one run to the next."""
        storage = self.storage
        self.device.queue.submit(lambda: storage.fill(POISON), "start of a run")


class _ViewCell(_Cell):
    """The memory of another array, read in another way.

    Args:
        array: keeps the memory.
        view: makes the view.
    """

    __slots__ = ("_array", "_view")

    def __init__(self, array: StrictArray, view: Callable[[HostArray], HostArray]) -> None:
        self._array, self._view = array, view

    @property
    def storage(self) -> HostArray | None:  # type: ignore[override]
        storage = self._array.cell.storage
        return None if storage is None else self._view(storage)

    @property
    def is_released(self) -> bool:  # type: ignore[override]
        return self._array.cell.is_released

    def fill(self, contents: HostArray) -> None:
        raise RuntimeException(f"cannot write {contents.dtype}{list(contents.shape)} into a view, which is only read")


class StrictDevice:
    """One device: a queue, the arrays that live on it, and the element types it stores.

    Args:
        device: the device as a value.
        element_types: element types its arrays may have.
    """

    def __init__(self, device: OrtDevice, element_types: frozenset[TensorElementType]) -> None:
        self.device = device
        self.element_types = element_types
        self.counts = DeviceCounts()
        self.joined = JoinedWork()
        self.queue = StrictQueue(str(device), self.counts)
        self.meter = MemoryMeter(str(device))
        """Counts memory in the order of the queue: what is released is used by work that was queued before."""
        self._foreign: dict[int, HostArray] = {}
        self._live: weakref.WeakSet[StrictArray] = weakref.WeakSet()
        self._blocks: weakref.WeakSet[StrictBlock] = weakref.WeakSet()
        self._live_lock = threading.Lock()

    @property
    def live_arrays(self) -> int:
        """Arrays that are neither released nor collected."""
        return len(self._live)

    @property
    def bytes_in_use(self) -> int:
        """Bytes of the blocks, and of the live arrays that are in none and whose size is known by now."""
        with self._live_lock:
            arrays, blocks = list(self._live), list(self._blocks)
        return sum(array.known_nbytes for array in arrays) + sum(block.storage.nbytes for block in blocks)

    def poisoned(self, shape: Sequence[int], element_type: TensorElementType) -> StrictArray:
        """A new array that holds poison.

        Raises:
            InvalidArgument: the device does not store the type.
        """
        self.require_type(element_type)
        dtype = element_type.numpy_dtype
        count = int(np.prod(shape, dtype=np.int64))
        storage = np.full(count * dtype.itemsize, POISON, np.uint8).view(dtype).reshape(tuple(shape))
        return self._adopt(StrictArray(self, _Cell(self.meter, storage), None))

    def block(self, nbytes: int) -> StrictBlock:
        """A new block that holds poison."""
        block = StrictBlock(self, nbytes)
        with self._live_lock:
            self._blocks.add(block)
        return block

    def view(self, block: StrictBlock, offset_bytes: int, shape: Sequence[int], element_type: TensorElementType) -> StrictArray:
        """An array in a block.

        Raises:
            InvalidArgument: the device does not store the type, the block is another device's, or the array is not inside of it.
        """
        self.require_type(element_type)
        dtype = element_type.numpy_dtype
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        is_inside = 0 <= offset_bytes <= block.storage.nbytes - nbytes
        if block.device is not self or offset_bytes % BLOCK_ALIGNMENT_BYTES or not is_inside:
            raise InvalidArgument(
                f"no view of {nbytes} bytes at {offset_bytes} on {self.device} in a block of {block.storage.nbytes} bytes on "
                f"{block.device.device}: views begin at multiples of {BLOCK_ALIGNMENT_BYTES} and lie inside"
            )
        storage = block.storage[offset_bytes : offset_bytes + nbytes].view(dtype).reshape(tuple(shape))
        # Not adopted: its bytes are the block's, and what is in them when it goes may be another view's.
        return StrictArray(self, _Cell(self.meter, storage, block), None)

    def lend(self, memory: HostArray) -> int:
        """Let the memory of a host array be that of another library on this device; gives its address."""
        flat = memory.reshape(-1).view(np.uint8)
        self._foreign[flat.ctypes.data] = flat
        return int(flat.ctypes.data)

    def wrapped(self, address: int, shape: tuple[int, ...], element_type: TensorElementType, owner: Any) -> StrictArray:
        """An array of another library's memory.

        Raises:
            InvalidArgument: there is no such memory on the device, or not as much.
        """
        self.require_type(element_type)
        dtype = element_type.numpy_dtype
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        for start, memory in self._foreign.items():
            offset = address - start
            if offset >= 0 and offset + nbytes <= memory.nbytes:
                storage = memory[offset : offset + nbytes].view(dtype).reshape(shape)
                return self._adopt(StrictArray(self, _Cell(self.meter, storage, memory), None, owner))
        raise InvalidArgument(f"device {self.device} has no {nbytes} bytes of another library at address {address:#x}")

    def alias(self, array: StrictArray) -> StrictArray:
        """The same memory as another array, which it keeps alive."""
        return StrictArray(self, self.cell_of(array, "alias"), array.work, array)

    def promised(self, compute: Callable[[Sequence[_Cell]], None], outputs: int, label: str) -> list[StrictArray]:
        """New arrays that queued work will fill; their shapes are not known before."""
        cells = [_Cell(self.meter) for _ in range(outputs)]
        work = self.queue.submit(lambda: compute(cells), label)
        return [self._adopt(StrictArray(self, cell, work)) for cell in cells]

    def viewed(self, array: Any, view: Callable[[HostArray], HostArray]) -> StrictArray:
        """A view of an array, which is only read."""
        self.cell_of(array, "view")
        self.counts.views += 1
        return StrictArray(self, _ViewCell(array, view), array.work)

    def require_type(self, element_type: TensorElementType) -> None:
        """Refuse an element type that the device does not store."""
        if element_type not in self.element_types:
            names = ", ".join(sorted(member.onnx_name for member in self.element_types))
            raise InvalidArgument(f"device {self.device} cannot store {element_type.onnx_name}; it stores {names}")

    def release(self, array: StrictArray) -> None:
        """Poison an array's memory, after the work queued so far."""
        cell = self.cell_of(array, "release")
        cell.is_released = True
        with self._live_lock:
            self._live.discard(array)
        self.queue.submit(cell.poison, "release")

    def cell_of(self, array: Any, purpose: str) -> _Cell:
        """The memory of an array that is about to be used on this device.

        Raises:
            InvalidArgument: it is no array of this device.
            RuntimeException: it was released.
        """
        if not isinstance(array, StrictArray):
            raise InvalidArgument(
                f"{purpose} on device {self.device} got {type(array).__name__}, not one of its arrays: "
                "a copy to the device is missing"
            )
        if array.strict_device is not self:
            raise InvalidArgument(
                f"{purpose} on device {self.device} got an array of device {array.device}: a copy between the devices is missing"
            )
        if array.cell.is_released:
            raise RuntimeException(f"{purpose} on device {self.device} got an array that was released before")
        return array.cell

    def _adopt(self, array: StrictArray) -> StrictArray:
        with self._live_lock:
            self._live.add(array)
        finalizer = weakref.finalize(array, _poison_later, self.queue, array.cell)
        finalizer.atexit = False
        return array


def _poison_later(queue: StrictQueue, cell: _Cell) -> None:
    if not cell.is_released:
        cell.is_released = True
        queue.submit(cell.poison, "collection of an array")


class StrictArray:
    """An array of a strict device. Shape and type can be asked (and wait for the work that decides them); contents cannot.

    ``DataTransfer.copy`` is the only way to the contents.
    """

    __slots__ = ("__weakref__", "cell", "owner", "strict_device", "work")

    def __init__(self, strict_device: StrictDevice, cell: _Cell, work: Work | None, owner: Any = None) -> None:
        self.strict_device = strict_device
        self.cell = cell
        self.work = work
        self.owner = owner

    @property
    def device(self) -> OrtDevice:
        """Where the array lives."""
        return self.strict_device.device

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions in elements."""
        shape: tuple[int, ...] = self._metadata().shape
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy dtype of the elements."""
        dtype: np.dtype[Any] = self._metadata().dtype
        return dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._metadata().size

    @property
    def nbytes(self) -> int:
        """Bytes of memory it takes."""
        return self._metadata().nbytes

    @property
    def known_nbytes(self) -> int:
        """Bytes of memory it takes, 0 while that is not known. Does not wait."""
        storage = self.cell.storage
        return 0 if storage is None else storage.nbytes

    def _metadata(self) -> HostArray:
        if self.work is not None:
            self.strict_device.queue.wait(self.work)
        return self.cell.read()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            f"the contents of an array on device {self.device} cannot be read, changed or converted here: "
            "copy it to the host with its provider's DataTransfer"
        )

    # Each way that Python and array libraries have of looking inside; without __array__ NumPy would wrap the object.
    __array__ = __array_ufunc__ = __array_function__ = __array_namespace__ = _refuse
    __dlpack__ = __dlpack_device__ = numpy = tolist = tobytes = item = _refuse
    __float__ = __int__ = __complex__ = __index__ = __bool__ = _refuse
    __len__ = __iter__ = __getitem__ = __setitem__ = __contains__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __matmul__ = __rmatmul__ = _refuse
    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = _refuse

    def __repr__(self) -> str:
        storage = self.cell.storage
        contents = "not computed" if storage is None else f"{storage.dtype}{list(storage.shape)}"
        return f"StrictArray({self.device}, {contents}{', released' if self.cell.is_released else ''})"


def peek(array: StrictArray) -> HostArray:
    """Contents of an array as tests see them, past the data transfer that is under test. Waits for queued work."""
    device = array.strict_device
    cell = device.cell_of(array, "peek")
    taken: list[HostArray] = []
    device.queue.wait(device.queue.submit(lambda: taken.append(cell.read().copy()), "peek"))
    return taken[0]


def host_type(array: Any) -> TensorElementType:
    """Element type of a host array.

    Raises:
        InvalidArgument: it is no NumPy array.
    """
    if not isinstance(array, np.ndarray):
        raise InvalidArgument(f"expected a NumPy array in host memory, got {type(array).__name__}")
    return element_type_of(array)
