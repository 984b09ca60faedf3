"""What a session costs to make, beside onnxruntime: time and memory for a convolutional network.

    python -P benchmarks/bench_session.py [--megabytes 50] [--nodes 500] [--rounds 7] [--warm 5]

Each round makes a session in a fresh process of each library, in turns. `first ms` is the first session of a process, with
all that the library imports only then; `warm ms` the median of the next ones, the earlier ones gone. Memory is anonymous
memory (pages of mapped files are not in it) beyond what the process had before: after the session was made, and after one
run. Figures are medians over the rounds. Needs onnxruntime.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parent))
import processes

LIBRARIES = ("ort_sdk", "onnxruntime")


def creation_ms(runtime: Any, path: str) -> tuple[float, Any]:
    start = time.perf_counter()
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return (time.perf_counter() - start) * 1e3, session


def child(library: str, path: str, warm: int) -> dict[str, float]:
    runtime = importlib.import_module(library)
    runtime.InferenceSession  # noqa: B018 - ort_sdk imports names when they are first used
    gc.collect()
    before = processes.private_mb()
    first, session = creation_ms(runtime, path)
    made = processes.private_mb() - before
    argument = session.get_inputs()[0]
    session.run(None, {argument.name: np.ones(argument.shape, np.float32)})
    after_run = processes.private_mb() - before
    del session
    times = []
    for _ in range(warm):
        gc.collect()
        times.append(creation_ms(runtime, path)[0])
    return {"first ms": first, "warm ms": statistics.median(times), "MB made": made, "MB after a run": after_run}


def main() -> int:
    parser = argparse.ArgumentParser(description="Time and memory of session creation")
    parser.add_argument("--megabytes", type=float, default=50, help="weights of the model")
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=7, help="fresh processes per library")
    parser.add_argument("--warm", type=int, default=5, help="sessions made after the first in each process")
    parser.add_argument("--child", nargs=2, metavar=("LIBRARY", "MODEL"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(child(*arguments.child, arguments.warm)))
        return 0
    import models

    with tempfile.TemporaryDirectory() as folder:
        model, _ = models.conv_net(int(arguments.megabytes * processes.MEGABYTE), arguments.nodes)
        path = models.save(model, Path(folder, "model.onnx"))
        warm = ("--warm", str(arguments.warm))
        rounds = [
            {library: processes.measure_in_child(__file__, library, str(path), *warm) for library in LIBRARIES}
            for _ in range(arguments.rounds)
        ]
        print(f"{path.stat().st_size / processes.MEGABYTE:.1f} MB, {len(model.graph.node)} nodes")
    processes.print_table("library", {library: processes.medians([row[library] for row in rounds]) for library in LIBRARIES})
    return 0


if __name__ == "__main__":
    sys.exit(main())
