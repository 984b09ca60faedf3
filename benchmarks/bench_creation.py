"""What a session of each of the other benchmarks' models costs to make, beside onnxruntime.

    python -P benchmarks/bench_creation.py [--models tiny BERT ...] [--rounds 5] [--warm 7] [--threads 2] [--layers 32] [--check]

In each round every library makes a session in a fresh process: `first`, with all that the library imports only then, its
generated code cached on disk; `run` is its first run, which may have taken over work from its making. `warm` is the median of
sessions that both libraries make in turns in one process, each when its session before has run and is gone. Figures are
milliseconds, medians over the rounds; ratios are onnxruntime's time over ours. `--check` fails when a warm ratio is below 0.7.
Needs onnxruntime, and 2.3 GB in the folder for temporary files for the language model (fewer `--layers` take less).
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

sys.path.append(str(Path(__file__).parent))
import processes
import workloads

LIBRARIES = {"ort_sdk": "ms", "onnxruntime": "theirs"}
LEAST_RATIO = 0.7


def made(runtime: Any, path: str, threads: int) -> tuple[float, Any]:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    start = time.perf_counter()
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return (time.perf_counter() - start) * 1e3, session


def first_of(library: str, path: str, threads: int) -> dict[str, float]:
    runtime = importlib.import_module(library)
    runtime.InferenceSession  # noqa: B018 - ort_sdk imports names when they are first used
    first, session = made(runtime, path, threads)
    feeds = workloads.feeds_of(session, 1)
    start = time.perf_counter()
    session.run(None, feeds)
    title = LIBRARIES[library]
    return {f"first {title}": first, f"run {title}": (time.perf_counter() - start) * 1e3}


def warm_of(path: str, threads: int, warm: int) -> dict[str, float]:
    times: dict[str, list[float]] = {library: [] for library in LIBRARIES}
    for _ in range(warm + 1):
        for library, own in times.items():
            gc.collect()
            time.sleep(0.05)
            milliseconds, session = made(importlib.import_module(library), path, threads)
            session.run(None, workloads.feeds_of(session, 1))
            own.append(milliseconds)
            del session
    return {f"warm {title}": median(times[library][1:]) for library, title in LIBRARIES.items()}


def measured(path: Path, arguments: argparse.Namespace) -> dict[str, float]:
    options = ("--threads", str(arguments.threads), "--warm", str(arguments.warm))
    rows: list[dict[str, float]] = []
    for _ in range(arguments.rounds + 1):
        rows.append({})
        for measure in (*LIBRARIES, "both"):
            rows[-1] |= processes.measure_in_child(__file__, measure, str(path), *options)
    medians = processes.medians(rows[1:])  # the one before fills caches on disk
    row = {f"{name} {title}": medians[f"{name} {title}"] for name in ("first", "warm", "run") for title in LIBRARIES.values()}
    return row | {f"{name} ratio": row[f"{name} theirs"] / row[f"{name} ms"] for name in ("first", "warm")}


def main() -> int:
    parser = argparse.ArgumentParser(description="Time of session creation")
    parser.add_argument("--models", nargs="+", default=[""], help="parts of names; all by default")
    parser.add_argument("--rounds", type=int, default=5, help="fresh processes per library, after one that does not count")
    parser.add_argument("--warm", type=int, default=7, help="sessions of each library made in turns, in each round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--layers", type=int, default=workloads.LAYERS, help="of the language model")
    parser.add_argument("--check", action="store_true", help=f"exit with 1 if a warm ratio is below {LEAST_RATIO}")
    parser.add_argument("--child", nargs=2, metavar=("MEASURE", "MODEL"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        measure, path = arguments.child
        both = measure == "both"
        found = warm_of(path, arguments.threads, arguments.warm) if both else first_of(measure, path, arguments.threads)
        print(json.dumps(found))
        return 0
    titles = [f"{name} {title}" for name in ("first", "warm", "run") for title in LIBRARIES.values()]
    print(f"{'model':<28}" + "".join(f"{title:>14}" for title in (*titles, "first ratio", "warm ratio")))
    slow = False
    for name, write in workloads.models(arguments.layers).items():
        if any(part in name for part in arguments.models):
            with tempfile.TemporaryDirectory() as folder:
                row = measured(write(Path(folder)), arguments)
            print(f"{name:<28}" + "".join(f"{figure:>14.2f}" for figure in row.values()), flush=True)
            slow |= row["warm ratio"] < LEAST_RATIO
    return int(arguments.check and slow)


if __name__ == "__main__":
    sys.exit(main())
