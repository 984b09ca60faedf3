"""Calls of a program that follow each other, as one: a captured graph of them, as far as they can be captured."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any

from ort_sdk.api.stopping import check_stopped
from ort_sdk.device import CapturedCall
from ort_sdk_cuda.driver import CudaDriver, CudaError
from ort_sdk_cuda.errors import is_loss
from ort_sdk_cuda.queueing import DeviceQueue, QueueEvent

from .bound_calls import BoundPart, CudaCall, CudaCopy
from .captured_graph import CapturedGraph

__all__ = ["CudaSequence", "joined"]

_logger = logging.getLogger("ort_sdk.device")


class _Segment:
    """Neighbours in a sequence: those that one graph can have, or one that no graph can.

    Args:
        queue: of the device.
        first: position of the first part.
        parts: in order, prepared.
        uses_graph: whether they are captured, from the second run on.
    """

    def __init__(self, queue: DeviceQueue, first: int, parts: Sequence[BoundPart], *, uses_graph: bool) -> None:
        self._queue, self._first, self._parts, self._uses_graph = queue, first, parts, uses_graph
        self.graph: CapturedGraph | None = None

    def enqueue(self, driver: CudaDriver, sequence: CudaSequence) -> None:
        """Queue the parts."""
        if self._uses_graph and sequence.has_run and self._replayed(driver):
            return
        for position, part in enumerate(self._parts, self._first):
            sequence.failed = position
            part.enqueue(driver, self._queue.stream)
        sequence.failed = 0

    def _replayed(self, driver: CudaDriver) -> bool:
        """Queue the parts as a graph, which is captured if there is none; whether the driver does that."""
        try:
            if self.graph is None:
                self.graph = CapturedGraph(self._queue, driver, self._parts)
            self.graph.launch(driver)
        except CudaError as error:
            if is_loss(error):
                raise
            # One by one, they may work, or the step that is at fault is named.
            self._uses_graph, self.graph = False, None
            _logger.warning("a program on %s is not replayed as a CUDA graph: %s", self._queue.name, error)
            return False
        return True


class CudaSequence:
    """Calls one after the other, with one wait at the end for what the host reads.

    The first run queues each by itself, so that the driver loads what it loads when it is first used. The second one captures.

    Args:
        queue: of the device.
        parts: in order.
        uses_graphs: whether they are captured.
    """

    def __init__(self, queue: DeviceQueue, parts: Sequence[BoundPart], *, uses_graphs: bool) -> None:
        self.queue, self.parts, self.uses_graphs = queue, parts, uses_graphs
        self.failed = 0
        """Position of the part that raised, as far as that is known."""
        self._reporting = next((position for position, part in enumerate(parts) if part.reports), None)
        """Position of the first part whose kernels report."""
        self.has_run = False
        self._segments: list[_Segment] | None = None
        self._staged: QueueEvent | None = None
        """The end of the last run, until which its copies' pinned memory is in use."""

    @property
    def graphs(self) -> list[CapturedGraph]:
        """What was captured."""
        return [segment.graph for segment in self._segments or () if segment.graph is not None]

    def __call__(self) -> None:
        queue = self.queue
        if self._staged is not None:
            with queue.waiting("waiting for the copies of the run before") as driver:
                driver.synchronize_event(self._staged.handle)
        with queue.commands(f"queueing {len(self.parts)} calls") as driver:
            check_stopped()
            if not self._prepared():
                # part by part, with a wait for each copy
                for position, part in enumerate(self.parts):
                    self.failed = position
                    part()
                return
            if self._segments is None:
                self._segments = self._cut()
            for segment in self._segments:
                segment.enqueue(driver, self)
            if self._reporting is not None:
                queue.collect_reports()
            copies = [part for part in self.parts if isinstance(part, CudaCopy)]
            self._staged = queue.record() if copies else None
            self.has_run = True
        if self._staged is not None and any(copy.to_host for copy in copies):
            self.failed = self._reporting or 0
            self._staged.wait()
            for copy in copies:
                copy.land()

    def _prepared(self) -> bool:
        """Prepare the parts; whether none of them needs the host between two of them."""
        read: list[CudaCopy] = []
        for position, part in enumerate(self.parts):
            self.failed = position
            part.prepare()
            if not isinstance(part, CudaCopy):
                continue
            if part.to_host:
                read.append(part)
            elif part.follow(read):
                part.stage()
            else:
                return False
        self.failed = 0
        return True

    def _cut(self) -> list[_Segment]:
        found, first = [], 0
        for is_capturable, group in itertools.groupby(self.parts, lambda part: part.is_capturable):
            parts = list(group)
            uses_graph = self.uses_graphs and is_capturable and sum(part.launch_count for part in parts) > 1
            found.append(_Segment(self.queue, first, parts, uses_graph=uses_graph))
            first += len(parts)
        return found


def joined(calls: Sequence[Callable[[], Any]], *, uses_graphs: bool) -> list[tuple[int, Callable[[], Any]]]:
    """Calls of this provider that follow each other as one; others, which compute on the host, stay as they are.

    Args:
        calls: of bound kernels and copies.
        uses_graphs: whether they are captured.
    """
    found: list[tuple[int, Callable[[], Any]]] = []
    for is_own, group in itertools.groupby(calls, lambda call: isinstance(_part(call), CudaCall | CudaCopy)):
        members = list(group)
        if not is_own:
            found.extend((1, call) for call in members)
            continue
        parts = [_part(call) for call in members]
        is_worth_it = len(parts) > 1 or parts[0].launch_count > 1
        call = CudaSequence(parts[0].queue, parts, uses_graphs=uses_graphs) if is_worth_it else members[0]
        found.append((len(members), call))
    return found


def _part(call: Callable[[], Any]) -> Any:
    return call.launches if isinstance(call, CapturedCall) else call
