"""``ort-sdk bench``: session creation, latency, and memory of the host and of devices."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ort_sdk.cli.arguments import count, provider_entries
from ort_sdk.cli.exit_codes import ExitCode
from ort_sdk.cli.inputs.measured_model import add_measuring_arguments, measured_feeds
from ort_sdk.cli.output import print_json, print_table, progress
from ort_sdk.cli.own_process import run_again

if TYPE_CHECKING:
    from ort_sdk.api import MemoryUsage
    from ort_sdk.session.inference_session import InferenceSession

__all__ = ["add_arguments", "run"]

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMBA_NUM_THREADS")
MOST_SECONDS_SETTLING = 3.0
THREADS_SET = "ORT_SDK_BENCH_THREADS"
"""Environment variable of the measuring process: the number the others were set to."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_measuring_arguments(parser, runs=50)
    parser.add_argument("--threads", type=count, metavar="N", help="threads of a kernel (default: the libraries' choice)")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.threads and os.environ.get(THREADS_SET) != str(arguments.threads):
        return _run_with_threads(arguments)
    from ort_sdk.cli.models.building import read_model
    from ort_sdk.cli.models.sessions import open_session

    entries = provider_entries(arguments)
    feeds = measured_feeds(arguments, read_model(arguments.model, lambda: entries))
    before = _resident_bytes()
    with progress(f"loading {arguments.model}"):
        creation, session = _timed(lambda: open_session(arguments, entries))
    with progress(f"running {arguments.model} {arguments.warmup + arguments.runs} times"):
        first, _ = _timed(lambda: session.run(None, feeds))
        waited, _ = _timed(session.wait_for_compilation)
        for _ in range(arguments.warmup - 1):
            session.run(None, feeds)
        _settle(session, feeds)
        latencies = sorted(_timed(lambda: session.run(None, feeds))[0] for _ in range(arguments.runs))
    after = _resident_bytes()
    report: dict[str, Any] = {
        "session_creation_ms": creation,
        "first_run_ms": first,
        "compilation_wait_ms": waited,
        "has_settled": session.has_settled(),
        "runs": arguments.runs,
        "median_ms": _percentile(latencies, 0.5),
        "p90_ms": _percentile(latencies, 0.9),
        "min_ms": latencies[0],
        "max_ms": latencies[-1],
        "session_memory_bytes": None if before is None or after is None else after - before,
        "peak_memory_bytes": _peak_bytes(),
    }
    devices = {str(usage.device): _device_bytes(usage) for usage in session.memory_report()}
    if arguments.json:
        print_json(report | {"devices": devices})
    else:
        for device, measured in devices.items():
            report |= {f"{device} {name}": value for name, value in measured.items()}
        print_table(["measure", "value"], [(name, _text(name, value)) for name, value in report.items()], right=(1,))
    return ExitCode.OK


def _run_with_threads(arguments: argparse.Namespace) -> int:
    """The same command in a process whose environment has the number of threads: libraries read it only when they are loaded."""
    return run_again(arguments, os.environ | dict.fromkeys((*THREAD_VARIABLES, THREADS_SET), str(arguments.threads)))


def _settle(session: InferenceSession, feeds: Mapping[str, Any]) -> None:
    """Run until nothing more is compiled for these feeds, or for some time: there are models without programs."""
    end = time.perf_counter() + MOST_SECONDS_SETTLING
    while not session.has_settled() and time.perf_counter() < end:
        session.run(None, feeds)


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


def _device_bytes(usage: MemoryUsage) -> dict[str, int]:
    """What the session holds on a device by what it is for, the most it held, and may hold."""
    limits = {} if usage.limit_bytes is None else {"limit_bytes": usage.limit_bytes}
    return {f"{use.value}_bytes": nbytes for use, nbytes in usage.held_bytes.items()} | {"peak_bytes": usage.peak_bytes} | limits


def _resident_bytes() -> int | None:
    """Host memory of this process now; None where the system does not say."""
    statistics = Path("/proc/self/statm")
    if not statistics.exists():
        return None
    import resource

    return int(statistics.read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def _peak_bytes() -> int | None:
    """Most host memory this process ever had; None where the system does not say."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _text(name: str, value: float | None) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3f}" if name.endswith("_ms") else f"{value:,}"
