"""Where expressions are computed: a device's launcher, and what is recorded instead of launched while launches are captured."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator, Sequence

import numpy as np

from ort_sdk.api import HostArray, TensorElementType

from .expressions.elementwise import elementwise_launch
from .expressions.functions import DEAR
from .expressions.nodes import Apply, Constant, Deferred, Node, Strided, element_count, item_bytes, resolved
from .form_choice import FormChoice
from .launcher import Launcher
from .launches import Launch, Memory, MemoryPart
from .recently_used import RecentlyUsed

__all__ = ["DeviceContext", "HostReadDuringCapture", "Recording", "constant_of"]

MOST_EXTRA_OUTPUTS = 3
MOST_TABLES = 256
"""Tables that are kept: their numbers may be those of a run's shapes. What is bound to one keeps it itself."""


class HostReadDuringCapture(Exception):
    """A kernel reads contents on the host, so that its launches cannot be captured."""


class Recording:
    """Launches that were captured, in order, and memory that has no place yet."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self.memories: dict[int, Memory] = {}
        self.computed: list[Apply | Deferred] = []
        """Values whose place is the recording's: outside of it they are not computed yet."""

    def allocate(self, nbytes: int) -> Memory:
        """Memory without a place."""
        memory = Memory(max(nbytes, 1))
        self.memories[id(memory)] = memory
        return memory


class DeviceContext:
    """Computes expressions on one device. Thread-safe: each thread captures on its own.

    Args:
        launcher: of the device.
        tuning: forms of kernels that are preferred on the device; None for those that plans prefer for its class.
    """

    def __init__(self, launcher: Launcher, tuning: FormChoice | None = None) -> None:
        self.launcher, self.tuning = launcher, tuning
        self.device = launcher.device_class
        self._thread = threading.local()
        self._workspace: weakref.ref[Memory] = weakref.ref(Memory(0))
        self._lock = threading.Lock()
        self._tables: RecentlyUsed[tuple[int, ...], Memory] = RecentlyUsed(MOST_TABLES)

    @property
    def computes_panels(self) -> bool:
        """Whether products had better be computed by lanes that have panels of registers, which are vectors."""
        return self.device.is_cpu and self.device.vector_width > 1 and self.launcher.dialect.has_vector_math

    @property
    def recording(self) -> Recording | None:
        """What this thread captures to; None while it launches."""
        return getattr(self._thread, "recording", None)

    @property
    def host_reads(self) -> int:
        """How often kernels that ran on this thread have read contents on the host."""
        return getattr(self._thread, "host_reads", 0)

    @contextlib.contextmanager
    def capture(self) -> Iterator[Recording]:
        """Record this thread's launches instead of queueing them."""
        earlier, self._thread.recording = self.recording, Recording()
        try:
            yield self._thread.recording
        finally:
            for node in self._thread.recording.computed:
                node.computed = None
            self._thread.recording = earlier

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Queue this thread's launches also while they are captured: what they make of constants is made once."""
        earlier, self._thread.recording = self.recording, None
        try:
            yield
        finally:
            self._thread.recording = earlier

    def new(self, shape: tuple[int, ...], element_type: TensorElementType) -> Strided:
        """A dense array with undefined contents."""
        nbytes = element_count(shape) * item_bytes(element_type)
        recording = self.recording
        memory = self.launcher.allocate(max(nbytes, 1)) if recording is None else recording.allocate(nbytes)
        return Strided(memory, shape, element_type)

    def part(self, memory: Memory, offset_bytes: int, nbytes: int) -> Memory:
        """A part of memory, which may itself be one; launchers make parts of whole pieces only.

        Args:
            memory: has a handle.
            offset_bytes: a multiple of the launcher's ``alignment_bytes``.
            nbytes: size.
        """
        whole, start = memory.place
        made = self.launcher.part(whole, start + offset_bytes, nbytes)
        return made if isinstance(made, MemoryPart) else MemoryPart(nbytes, made.handle, whole, start + offset_bytes)

    def workspace(self, nbytes: int) -> Memory:
        """Memory that bound calls share, and that ends with the last of them; a larger block than before is another one."""
        with self._lock:
            block = self._workspace()
            if block is None or block.nbytes < nbytes:
                block = self.launcher.allocate(nbytes)
                self._workspace = weakref.ref(block)
            return block

    def table(self, numbers: tuple[int, ...]) -> Memory:
        """Memory with a few numbers as int32, which kernels read and none writes; kept for others that want the same."""
        found = self._tables.get(numbers)
        if found is None:
            found = self.upload(np.asarray(numbers, np.int32), TensorElementType.INT32).held
            self._tables[numbers] = found
        return found

    def submit(self, launch: Launch) -> None:
        """Queue a kernel, or record it."""
        recording = self.recording
        if recording is None:
            self.launcher.launch(launch)
        else:
            recording.launches.append(launch)

    def upload(self, array: HostArray, element_type: TensorElementType) -> Strided:
        """A dense array with the contents of a host array, at once: also while launches are captured."""
        memory = self.launcher.allocate(max(array.nbytes, 1))
        if array.size:
            self.launcher.upload(np.ascontiguousarray(array), memory)
        return Strided(memory, array.shape, element_type)

    def download(self, node: Node) -> HostArray:
        """Contents as a host array; waits.

        Raises:
            HostReadDuringCapture: launches are being captured.
        """
        if self.recording is not None:
            raise HostReadDuringCapture("a kernel reads contents on the host while its launches are captured")
        self._thread.host_reads = self.host_reads + 1
        source = self.dense(node)
        array: HostArray = np.empty(source.shape, source.element_type.numpy_dtype)
        if array.size:
            self.launcher.download(source.held, array)
        return array

    def ready(self, node: Node) -> Node:
        """An expression that a kernel can compute as it loads: what other kernels make of it is there."""
        node = resolved(node)
        for each in _deferred_leaves(node):
            self.materialise(each)
        return resolved(node)

    def materialise(self, node: Node) -> Strided:
        """The value in memory, with any strides; computed now unless it was before."""
        node = resolved(node)
        if isinstance(node, Strided) and node.memory is not None:
            return node
        output = self.new(node.shape, node.element_type)
        self.write(node, output)
        if isinstance(node, (Apply, Deferred)):
            self._remember(node, output)
        return output

    def _remember(self, node: Apply | Deferred, output: Strided) -> None:
        node.computed = output
        if self.recording is not None:
            self.recording.computed.append(node)

    def dense(self, node: Node) -> Strided:
        """The value in memory row by row, from the start of it."""
        array = self.materialise(node)
        if array.is_dense:
            return array
        output = self.new(array.shape, array.element_type)
        self.write(array, output)
        return output

    def copied(self, node: Node) -> Strided:
        """The value in memory of its own."""
        output = self.new(node.shape, node.element_type)
        self.write(node, output)
        return output

    def write_together(self, targets: Sequence[tuple[Node, Strided]]) -> None:
        """Compute several values of one shape, which need no other kernel but for what they read, in one kernel.

        Args:
            targets: values, each with memory of its shape and type that no value reads.
        """
        if len(targets) == 1:
            self.write(*targets[0])
            return
        ready = [(self.ready(node), target) for node, target in targets]
        launch = elementwise_launch(ready, self.device, self.launcher.dialect)
        if launch is not None:
            self.submit(launch)

    def write(self, node: Node, target: Strided) -> None:
        """Compute a value into memory of its shape and type."""
        node = resolved(node)
        deferred = _deferred_leaves(node)
        if deferred and target.is_dense and self._produced(node, deferred, target):
            return
        node = self.ready(node)
        extra = [each for each in _kept(node) if each.shape == target.shape]
        kept = [(each, self.new(each.shape, each.element_type)) for each in extra[:MOST_EXTRA_OUTPUTS]]
        launch = elementwise_launch([(node, target), *kept], self.device, self.launcher.dialect)
        if launch is not None:
            self.submit(launch)
        for each, array in kept:
            self._remember(each, array)

    def _produced(self, node: Node, deferred: list[Deferred], target: Strided) -> bool:
        """Whether one kernel makes its value, and computes the expression as it writes it."""
        if node is deferred[0]:
            deferred[0].produce(target, None)
            return True
        if _kept(node):
            return False
        inside = {id(each) for each in _nodes(node)}
        taking = [each for each in deferred if each.shape == node.shape and not each.is_awaited(inside)]
        if not taking:
            return False
        for each in deferred:
            if each is not taking[-1]:
                self.materialise(each)
        taking[-1].produce(target, node)
        return True


def is_alive(node: Apply) -> bool:
    return node.owner is not None and node.owner() is not None


def _deferred_leaves(root: Node) -> list[Deferred]:
    return [node for node in _nodes(root) if isinstance(node, Deferred)]


def _kept(root: Node) -> list[Apply]:
    """Parts of an expression that are dear to compute and may be read again: they are written, too."""
    return [
        node for node in _nodes(root) if node is not root and isinstance(node, Apply) and node.cost >= DEAR and is_alive(node)
    ]


def _nodes(root: Node) -> list[Node]:
    found: dict[int, Node] = {}
    pending = [root]
    while pending:
        node = resolved(pending.pop())
        if id(node) not in found:
            found[id(node)] = node
            if isinstance(node, Apply):
                pending.extend(node.operands)
    return list(found.values())


def constant_of(array: HostArray, element_type: TensorElementType) -> Constant | None:
    """A host array of one element, or of the same number everywhere, as a constant."""
    if array.size != 1:
        return None
    return Constant(array.reshape(-1)[0].item(), array.shape, element_type)
