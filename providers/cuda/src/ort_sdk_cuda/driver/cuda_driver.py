"""CUDA's driver, as the provider needs it: thin, so that another one can take its place where there is no GPU.

Addresses and sizes are numbers. Streams, events, modules, graphs and the like are handles that only the driver looks into. Each
function but those that say otherwise needs the context to be current on the thread, and raises ``CudaError``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

__all__ = ["CudaDriver", "Extent", "Handle"]

Handle = Any
Extent = tuple[int, int, int]
"""Along x, y and z."""


class CudaDriver(Protocol):
    """Functions of CUDA's driver API. Thread-safe, as that is."""

    version: tuple[int, int]
    """Of CUDA, the newest that the driver supports."""
    library: str
    """Path of its library, for reports."""

    # -- devices; these need no context

    def device_count(self) -> int:
        """How many devices there are."""

    def device_name(self, ordinal: int) -> str:
        """Name of a device, counted from 0."""

    def attribute(self, ordinal: int, name: str) -> int:
        """An attribute of a device, ``CU_DEVICE_ATTRIBUTE_*`` without that prefix."""

    def memory_bytes(self, ordinal: int) -> int:
        """All memory of a device."""

    def retain_context(self, ordinal: int) -> Handle:
        """The primary context of a device, which other libraries of the process use, too. It stays."""

    def make_current(self, context: Handle) -> None:
        """Make a context current on this thread."""

    # -- memory

    def make_pool(self, ordinal: int) -> Handle:
        """A pool of a device's memory that keeps what was freed until ``trim_pool``."""

    def allocate(self, nbytes: int, pool: Handle, stream: Handle) -> int:
        """Address of memory, for work that is queued on the stream, or after such work."""

    def free(self, address: int, stream: Handle) -> None:
        """Give memory back when the stream reaches it."""

    def trim_pool(self, pool: Handle) -> None:
        """Give what a pool keeps, and no work uses, back to the device."""

    def memory_range(self, address: int) -> tuple[int, int, int] | None:
        """Where the memory of a device at an address begins, its bytes, and the device's number; None if there is none."""

    def allocate_pinned(self, nbytes: int) -> int:
        """Address of memory of the host that the device reads and writes itself."""

    def free_pinned(self, address: int) -> None:
        """Give it back, at once."""

    # -- copies; all of them are queued, and those from and to pinned memory read and write it then

    def copy_to_device(self, target: int, source: int, nbytes: int, stream: Handle) -> None:
        """Queue a copy of the host's memory. Memory that is not pinned has been read when this returns."""

    def copy_to_host(self, target: int, source: int, nbytes: int, stream: Handle) -> None:
        """Queue a copy to the host's memory. Memory that is not pinned has been written when this returns."""

    def copy_on_device(self, target: int, source: int, nbytes: int, stream: Handle) -> None:
        """Queue a copy between two places of a device's memory, which do not overlap."""

    def fill_words(self, address: int, word: int, count: int, stream: Handle) -> None:
        """Queue setting ``count`` words of 32 bits."""

    # -- streams and events

    def make_stream(self) -> Handle:
        """A stream that does not wait for the default one."""

    def stream_at(self, address: int) -> Handle:
        """A stream that another library made; 1 and 2 are the default streams of the process and of the thread."""

    def stream_address(self, stream: Handle) -> int:
        """What other libraries know a stream by."""

    def synchronize_stream(self, stream: Handle) -> None:
        """Wait for all that is queued."""

    def make_event(self, *, is_timed: bool = False) -> Handle:
        """An event that has happened."""

    def free_event(self, event: Handle) -> None:
        """Give an event back; if it was recorded, when it has happened."""

    def record_event(self, event: Handle, stream: Handle) -> None:
        """Let an event happen when the stream reaches it."""

    def wait_event(self, stream: Handle, event: Handle) -> None:
        """Let a stream wait for an event of another one."""

    def event_is_done(self, event: Handle) -> bool:
        """Whether an event has happened."""

    def synchronize_event(self, event: Handle) -> None:
        """Wait for an event."""

    def elapsed_seconds(self, start: Handle, end: Handle) -> float:
        """Between two timed events that have happened."""

    # -- kernels

    def load_module(self, image: bytes) -> Handle:
        """Code on the device."""

    def function(self, module: Handle, name: str) -> Handle:
        """A kernel of a module."""

    def launch(self, function: Handle, groups: Extent, lanes: Extent, stream: Handle, parameters: int) -> None:
        """Queue a kernel, or put it into the graph that the stream captures.

        Args:
            function: the kernel.
            groups: blocks of the grid.
            lanes: threads of a block.
            stream: where.
            parameters: address of an array of addresses, of the arguments, which are read before this returns.
        """

    # -- graphs

    def begin_capture(self, stream: Handle) -> None:
        """Put what this thread queues on the stream into a graph, from now on. It may not wait or allocate meanwhile."""

    def end_capture(self, stream: Handle) -> Handle:
        """The graph of what was queued; raises if something broke it."""

    def captured_node(self, stream: Handle) -> Handle:
        """The node of what was put into the graph last."""

    def instantiate(self, graph: Handle) -> Handle:
        """An executable graph."""

    def free_graph(self, graph: Handle, executables: Sequence[Handle]) -> None:
        """Give a graph and its executables back, which may be running."""

    def launch_graph(self, executable: Handle, stream: Handle) -> None:
        """Queue an executable graph."""

    def set_kernel_node(
        self, executable: Handle, node: Handle, function: Handle, groups: Extent, lanes: Extent, parameters: int
    ) -> None:
        """Give a kernel other arguments, in launches of the graph from now on; they are read before this returns."""

    def set_copy_node(
        self, executable: Handle, node: Handle, target: int, source: int, nbytes: int, context: Handle, *, to_host: bool
    ) -> None:
        """Let a copy between the host and the device be one between other places, of as many bytes."""
