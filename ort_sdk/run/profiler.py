"""Times of stages, runs and nodes, as a Chrome trace that Perfetto and ONNX Runtime's tools read."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ort_sdk.api import ExecutionProvider
from ort_sdk.plan import Step

from .device_times import DeviceTimes, clocks_of
from .executor import StepObserver

__all__ = ["Profiler"]


class Profiler:
    """Collects events of one session. Thread-safe.

    Args:
        prefix: start of the file's name; date and time follow.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._origin = time.perf_counter_ns()
        self.start_time_ns = time.time_ns()
        """Nanoseconds since the epoch at the origin of all times."""
        self._events: list[tuple[str, str, int, int, int, dict[str, Any]]] = []
        self._positions: dict[int, int] = {}
        self._clocks: dict[str, ExecutionProvider] = {}
        self._rows: dict[str, int] = {}

    def take_clocks(self, providers: Sequence[ExecutionProvider]) -> None:
        """Time the steps of providers that have a clock by that, in rows of their own: the thread that queues them goes on."""
        self._clocks = clocks_of(providers)
        self._rows = {name: row for row, name in enumerate(self._clocks, start=1)}

    @contextmanager
    def timing(self, observer: StepObserver) -> Iterator[DeviceTimes | None]:
        """What observes the run inside instead, if some provider has a clock: ``observer`` gets times of devices at the end."""
        if not self._clocks:
            yield None
            return
        times = DeviceTimes(observer, self._clocks)
        yield times
        times.finish()

    def number_steps(self, steps: Sequence[Step]) -> None:
        """Number the steps of a plan, for events of nodes without a name."""
        self._positions = {id(step): position for position, step in enumerate(steps)}

    def observe_step(self, step: Step, start_ns: int, duration_ns: int) -> None:
        """Record one step (the executor's ``StepObserver``)."""
        position = self._positions.get(id(step), -1)
        name = step.node or (f"{step.op_type}_{position}" if position >= 0 else step.op_type)
        arguments = {"op_name": step.op_type, "provider": step.provider, "node_index": str(position)}
        if (algorithm := step.algorithm) is not None:
            arguments["algorithm"] = algorithm
        row = self._rows.get(step.provider) or threading.get_ident()
        self._events.append(("Node", f"{name}_kernel_time", start_ns, duration_ns, row, arguments))

    def add(self, name: str, start_ns: int) -> None:
        """Record an event of the session that began at ``start_ns`` (``time.perf_counter_ns``) and ends now."""
        self._events.append(("Session", name, start_ns, time.perf_counter_ns() - start_ns, threading.get_ident(), {}))

    @contextmanager
    def event(self, name: str) -> Iterator[None]:
        """Record what happens inside as an event of the session."""
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            self.add(name, start)

    def write(self) -> str:
        """Write the trace; returns the file's name, ``<prefix>_<date>_<time>.json``."""
        stamp = datetime.fromtimestamp(self.start_time_ns / 1e9, tz=UTC).astimezone().strftime("%Y-%m-%d_%H-%M-%S_%f")[:-3]
        path = Path(f"{self._prefix}_{stamp}.json")
        rows = [json.dumps(self._row(event)) for event in sorted(self._events, key=lambda event: event[2])]
        path.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")
        return str(path)

    def _row(self, event: tuple[str, str, int, int, int, dict[str, Any]]) -> dict[str, Any]:
        category, name, start, duration, thread, arguments = event
        return {
            "cat": category,
            "pid": os.getpid(),
            "tid": thread,
            "dur": duration / 1000,
            "ts": (start - self._origin) / 1000,
            "ph": "X",
            "name": name,
            "args": arguments,
        }
