"""What a session costs to make, beside onnxruntime: time and memory for a convolutional network, and for an ensemble of trees.

    python -P benchmarks/bench_session.py [--megabytes 50] [--nodes 500] [--tree-nodes 400000] [--rounds 7] [--warm 5] [--check]

Each round makes a session in a fresh process of each library, in turns. `first ms` is the first session of a process, with
all that the library imports only then, and `CPU ms` the processor time of it; `warm ms` the median of the next ones, the earlier
ones gone. Memory is anonymous memory (pages of mapped files are not in it) beyond what the process had before: at most while the
first session is made, after that, and after one run. Figures are medians over the rounds. `--check` fails when the trees' first
session takes more than 1.5 times onnxruntime's time or processor time, or 1.2 times its memory at most. Needs onnxruntime.
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
LIMITS = {"first ms": 1.5, "CPU ms": 1.5, "MB peak": 1.2}
"""Figures of the trees, and how many times onnxruntime's they may be."""


def creation_ms(runtime: Any, path: str) -> tuple[float, Any]:
    start = time.perf_counter()
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return (time.perf_counter() - start) * 1e3, session


def child(library: str, path: str, warm: int) -> dict[str, float]:
    runtime = importlib.import_module(library)
    runtime.InferenceSession  # noqa: B018 - ort_sdk imports names when they are first used
    gc.collect()
    before, begin, cpu = processes.private_mb(), time.monotonic(), time.process_time()
    first, session = creation_ms(runtime, path)
    cpu, end = (time.process_time() - cpu) * 1e3, time.monotonic()
    made = processes.private_mb() - before
    argument = session.get_inputs()[0]
    session.run(None, {argument.name: np.ones(argument.shape, np.float32)})
    after_run = processes.private_mb() - before
    del session
    times = []
    for _ in range(warm):
        gc.collect()
        times.append(creation_ms(runtime, path)[0])
    own = {processes.BASE: before, processes.BEGIN: begin, processes.END: end}
    shown = {"first ms": first, "CPU ms": cpu, "warm ms": statistics.median(times)}
    return own | shown | {"MB made": made, "MB after a run": after_run}


def measured(path: Path, arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    warm = ("--warm", str(arguments.warm))
    rounds = [
        {library: processes.peak_in_child(__file__, library, str(path), *warm) for library in LIBRARIES}
        for _ in range(arguments.rounds)
    ]
    return {library: processes.medians([row[library] for row in rounds]) for library in LIBRARIES}


def write_models(folder: Path, arguments: argparse.Namespace) -> dict[str, Path]:
    import models
    import tree_models

    network, _ = models.conv_net(int(arguments.megabytes * processes.MEGABYTE), arguments.nodes)
    trees = tree_models.classifier(arguments.tree_nodes)
    made = {f"{len(network.graph.node)} nodes": network, f"trees of {arguments.tree_nodes} nodes": trees}
    return {name: models.save(model, folder / f"{index}.onnx") for index, (name, model) in enumerate(made.items())}


def main() -> int:
    parser = argparse.ArgumentParser(description="Time and memory of session creation")
    parser.add_argument("--megabytes", type=float, default=50, help="weights of the network")
    parser.add_argument("--nodes", type=int, default=500, help="of the network")
    parser.add_argument("--tree-nodes", type=int, default=400_000, help="of all trees")
    parser.add_argument("--rounds", type=int, default=7, help="fresh processes per library")
    parser.add_argument("--warm", type=int, default=5, help="sessions made after the first in each process")
    parser.add_argument("--check", action="store_true", help="exit with 1 if the trees take too long, or too much memory")
    parser.add_argument("--child", nargs=2, metavar=("LIBRARY", "MODEL"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(child(*arguments.child, arguments.warm)))
        return 0
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, path in write_models(Path(folder), arguments).items():
            print(f"{path.stat().st_size / processes.MEGABYTE:.1f} MB, {name}")
            rows = measured(path, arguments)
            ours, theirs = (rows[library] for library in LIBRARIES)
            ratios = {figure: value / theirs[figure] for figure, value in ours.items() if theirs[figure] > 0}
            processes.print_table("library", rows | {"times onnxruntime's": ratios})
    return int(arguments.check and any(ratios.get(name, 0) > limit for name, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
