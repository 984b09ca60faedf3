"""``ort-sdk bench``: session creation, latency and host memory."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .arguments import LEVELS, provider_entries
from .exit_codes import ExitCode
from .measured_model import add_measuring_arguments, measured_feeds
from .output import print_json, print_table, progress

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_measuring_arguments(parser, runs=50)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from .building import BuiltModel, build_state, read_model

    entries = provider_entries(arguments)
    feeds = measured_feeds(arguments, read_model(arguments.model))
    before = _resident_bytes()
    with progress(f"loading {arguments.model}"):
        creation, model = _timed(lambda: BuiltModel(build_state(arguments.model, entries, LEVELS[arguments.level])))
    with progress(f"running {arguments.model} {arguments.warmup + arguments.runs} times"):
        first, _ = _timed(lambda: model.run(feeds))
        for _ in range(arguments.warmup - 1):
            model.run(feeds)
        latencies = sorted(_timed(lambda: model.run(feeds))[0] for _ in range(arguments.runs))
    after = _resident_bytes()
    report: dict[str, Any] = {
        "session_creation_ms": creation,
        "first_run_ms": first,
        "runs": arguments.runs,
        "median_ms": _percentile(latencies, 0.5),
        "p90_ms": _percentile(latencies, 0.9),
        "min_ms": latencies[0],
        "max_ms": latencies[-1],
        "session_memory_bytes": None if before is None or after is None else after - before,
        "peak_memory_bytes": _peak_bytes(),
    }
    if arguments.json:
        print_json(report)
    else:
        print_table(["measure", "value"], [(name, _text(name, value)) for name, value in report.items()], right=(1,))
    return ExitCode.OK


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds a call takes, and its result."""
    start = time.perf_counter_ns()
    result = work()
    return (time.perf_counter_ns() - start) / 1e6, result


def _percentile(ordered: list[float], fraction: float) -> float:
    """Linear between the two nearest of some ascending numbers."""
    position = fraction * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def _resident_bytes() -> int | None:
    """Host memory of this process now; None where the system does not tell."""
    statistics = Path("/proc/self/statm")
    if not statistics.exists():
        return None
    import resource

    return int(statistics.read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def _peak_bytes() -> int | None:
    """Most host memory this process ever had; None where the system does not tell."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _text(name: str, value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:.3f}" if name.endswith("_ms") else f"{value:,}"
