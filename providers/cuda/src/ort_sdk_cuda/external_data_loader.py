"""External weights straight from their file: read into pinned buffers by threads, and copied on a stream of their own."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from ort_sdk.api import ExternalDataInfo, Fail, OrtDevice
from ort_sdk.device import DeviceArray, DeviceContext, DeviceExternalDataLoader

from .device import launcher_of
from .queueing import DeviceQueue, PinnedBuffer

__all__ = ["READERS", "SLOT_BYTES", "CudaExternalDataLoader"]

READERS, SLOT_BYTES = 4, 16 << 20
"""Threads that read, each with a buffer of so many bytes: all of the host's memory that loading takes."""


class _Piece(NamedTuple):
    """A part of a weight that fits in a buffer."""

    info: ExternalDataInfo
    start: int
    """In the file."""
    nbytes: int
    address: int
    """On the device."""


class CudaExternalDataLoader(DeviceExternalDataLoader):
    """Puts weights on one device.

    A reader fills its buffer from the file, queues the copy, and goes on to the next piece when the device has the one before: so
    files are read while others are copied, and the host's memory stays the same however large the weights are.

    Args:
        device: the device.
        context: what computes on it.
    """

    def __init__(self, device: OrtDevice, context: DeviceContext) -> None:
        super().__init__(device)
        self._queue = launcher_of(context).queue

    def fill(self, batch: Sequence[tuple[ExternalDataInfo, DeviceArray]]) -> None:
        pieces = [piece for info, tensor in batch for piece in _pieces(info, tensor)]
        if not pieces:
            return
        queue, attempt = self._queue, f"loading {len(batch)} external weights"
        slot_bytes = max(piece.nbytes for piece in pieces)
        readers = min(READERS, len(pieces))
        with queue.commands(attempt) as driver:
            # The weights' memory may have been another array's, which queued work still reads.
            earlier = queue.record()
            driver.wait_event(queue.copy_stream, earlier.handle)
            slots = [PinnedBuffer(queue, slot_bytes) for _ in range(readers)]
        with _opened(pieces) as files, ThreadPoolExecutor(readers) as threads:
            work = _Work(queue, files, pieces)
            try:
                list(threads.map(work.read, slots))
            finally:
                with queue.waiting(attempt) as driver:
                    driver.synchronize_stream(queue.copy_stream)
                # buffers of this size are for loading only
                del slots
                queue.pinned.trim()


class _Work:
    """Pieces that readers take one after the other.

    Args:
        queue: of the device.
        files: path → descriptor.
        pieces: all there are.
    """

    def __init__(self, queue: DeviceQueue, files: Mapping[Path, int], pieces: Sequence[_Piece]) -> None:
        self._queue, self._files = queue, files
        self._pieces, self._lock = iter(pieces), threading.Lock()

    def read(self, slot: PinnedBuffer) -> None:
        """Read and copy pieces until there are none, or another reader failed."""
        with self._queue.commands("making an event") as driver:
            event = driver.make_event()
        for piece in iter(self._next, None):
            with self._queue.waiting("waiting for a copy") as driver:
                driver.synchronize_event(event)
            try:
                self._fill(slot, piece)
            except BaseException:
                self._pieces = iter(())
                raise
            with self._queue.commands(f"copying weight '{piece.info.name}' to the device") as driver:
                driver.copy_to_device(piece.address, slot.address, piece.nbytes, self._queue.copy_stream)
                driver.record_event(event, self._queue.copy_stream)
        with self._queue.waiting("waiting for a copy") as driver:
            driver.synchronize_event(event)
            driver.free_event(event)

    def _next(self) -> _Piece | None:
        with self._lock:
            return next(self._pieces, None)

    def _fill(self, slot: PinnedBuffer, piece: _Piece) -> None:
        target = slot.array[: piece.nbytes]
        descriptor = None if piece.info.path is None else self._files.get(piece.info.path)
        if descriptor is None:
            assert piece.info.content is not None  # noqa: S101 - it was checked
            target[:] = piece.info.content[piece.start : piece.start + piece.nbytes]
            return
        done = 0
        while done < piece.nbytes:
            count = os.preadv(descriptor, [target[done:].data], piece.start + done)
            if not count:
                raise Fail(f"loading '{piece.info.name}': '{piece.info.location}' ended at {piece.start + done}; it was changed")
            done += count


def _pieces(info: ExternalDataInfo, tensor: DeviceArray) -> Iterator[_Piece]:
    address = int(tensor.dense().held.handle)
    for start in range(0, info.length, SLOT_BYTES):
        yield _Piece(info, info.offset + start, min(SLOT_BYTES, info.length - start), address + start)


@contextlib.contextmanager
def _opened(pieces: Sequence[_Piece]) -> Iterator[dict[Path, int]]:
    """Files of pieces, open for reading; none where the system cannot read at a position into memory."""
    files: dict[Path, int] = {}
    with contextlib.ExitStack() as stack:
        for _, group in itertools.groupby(pieces, lambda piece: piece.info.path):
            info = next(group).info
            if info.path is None or info.path in files or not hasattr(os, "preadv"):
                continue
            descriptor = os.open(info.path, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            if info.content is None or os.fstat(descriptor).st_size != len(info.content):
                raise Fail(f"loading '{info.name}': '{info.location}' has another size than when the model was opened")
            files[info.path] = descriptor
        yield files
