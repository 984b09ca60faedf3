"""Convolutional networks beside onnxruntime: time of a run, and agreement.

    python -P benchmarks/bench_vision.py [--models resnet50-b1 ...] [--repetitions 7] [--runs 5] [--threads 2] [--busy]

A run is `session.run` with one array in and one out, at both libraries' default optimizations. The libraries take turns;
figures are medians over the repetitions, each the median of `--runs` calls; the ratio is onnxruntime's time over ours. Errors
are the largest difference from the reference, relative to its largest element: the network in float64, for quantized models
onnxruntime without optimizations. Needs onnxruntime.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parent))
import processes

LIBRARIES = ("ort_sdk", "onnxruntime")
BATCHES = {"resnet50-b1": 1, "resnet50-b8": 8, "mobilenet_v2-b1": 1, "resnet50-int8-b1": 1}
PAUSE_SECONDS = 0.05


def build(name: str, size: int, folder: Path) -> tuple[Any, Any]:
    """The model, and the one whose results in float64 are the reference; None for quantized models."""
    import vision_models

    make = vision_models.mobilenet_v2 if name.startswith("mobilenet") else vision_models.resnet50
    model = make(BATCHES[name], size)
    if "int8" in name:
        return vision_models.quantized(model, folder), None
    return model, vision_models.in_float64(model)


def session_of(runtime: Any, model: str | bytes, threads: int, *, optimized: bool = True) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    level = runtime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run_ms(run: Callable[[], Any], runs: int) -> float:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def times_of(runs: dict[str, Callable[[], Any]], count: int, repetitions: int) -> dict[str, float]:
    rows = []
    for _ in range(repetitions):
        row = {}
        for library, run in runs.items():
            time.sleep(PAUSE_SECONDS)
            run()
            row[library] = run_ms(run, count)
        rows.append(row)
    return processes.medians(rows)


def relative_error(result: Any, reference: Any) -> float:
    return float(np.abs(result - reference).max() / np.abs(reference).max())


def compare(path: Path, double: Any, arguments: argparse.Namespace) -> dict[str, float]:
    runtimes = {library: importlib.import_module(library) for library in LIBRARIES}
    sessions = {library: session_of(runtime, str(path), arguments.threads) for library, runtime in runtimes.items()}
    shape = sessions["ort_sdk"].get_inputs()[0].shape
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    runs = {library: lambda session=session: session.run(None, {"x": x})[0] for library, session in sessions.items()}
    if double is None:
        reference = session_of(runtimes["onnxruntime"], str(path), arguments.threads, optimized=False).run(None, {"x": x})[0]
    else:
        wide = session_of(runtimes["ort_sdk"], double.SerializeToString(), arguments.threads)
        reference = wide.run(None, {"x": x.astype(np.float64)})[0]
    results = {library: [run() for _ in range(3)][-1] for library, run in runs.items()}
    with processes.busy_core(wanted=arguments.busy):
        times = times_of(runs, arguments.runs, arguments.repetitions)
    figures = {f"{library} ms": milliseconds for library, milliseconds in times.items()}
    figures["ratio %"] = 100 * times["onnxruntime"] / times["ort_sdk"]
    return figures | {f"{library} error ppm": relative_error(results[library], reference) * 1e6 for library in LIBRARIES}


def main() -> int:
    parser = argparse.ArgumentParser(description="Convolutional networks beside onnxruntime")
    parser.add_argument("--models", nargs="+", choices=list(BATCHES), default=list(BATCHES))
    parser.add_argument("--size", type=int, default=224, help="height and width of the input")
    parser.add_argument("--runs", type=int, default=5, help="calls in one repetition")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--busy", action="store_true", help="with one core busy elsewhere")
    arguments = parser.parse_args()
    import models

    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.models:
            model, double = build(name, arguments.size, Path(folder))
            path = models.save(model, Path(folder, f"{name}.onnx"))
            rows[name] = compare(path, double, arguments)
    processes.print_table("model", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
