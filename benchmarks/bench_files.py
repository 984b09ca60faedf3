"""How fast model files are, whichever they are, beside onnxruntime.

    python -P benchmarks/bench_files.py PATH ... [--dim NAME=N ...] [--feeds FILE.npz] [--rounds 5] [--threads 2]

A path is a model, or a folder of models. Inputs are random, batches of one (unnamed sizes and sizes without ``--dim`` in other
places are 64 in images, 16 elsewhere); a file ``MODEL.npz`` beside a model, or ``--feeds``, gives them instead. Each model has
a process of its own, in which both libraries take turns: in each round a rest, in which threads go to sleep, some runs that do
not count, and runs for a tenth of a second that do. `ms` and `theirs` are medians over all rounds; `ratio` is onnxruntime's time
over ours; `difference` the largest between both results, relative to the largest element. The last line has the geometric mean
and the least of the ratios. Needs onnxruntime.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parent))
import processes

LIBRARIES = {"ort_sdk": "ms", "onnxruntime": "theirs"}
RESTING_SECONDS = 0.06
COUNTED_SECONDS = 0.1
IMAGE_SIZE, OTHER_SIZE, IMAGE_RANK = 64, 16, 4


def models_in(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.glob("**/*.onnx")) if path.is_dir() else [path]


def feeds_of(session: Any, path: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    given = arguments.feeds or path.with_suffix(".npz")
    if given.is_file():
        with np.load(given) as file:
            return {name: file[name] for name in file.files}
    sizes = {name: int(size) for name, _, size in (text.partition("=") for text in arguments.dim)}
    generator = np.random.default_rng(0)
    return {argument.name: value_of(argument, sizes, generator) for argument in session.get_inputs()}


def value_of(argument: Any, sizes: dict[str, int], generator: np.random.Generator) -> Any:
    default = IMAGE_SIZE if len(argument.shape) == IMAGE_RANK else OTHER_SIZE
    shape = [
        size if isinstance(size, int) and size > 0 else sizes.get(str(size), 1 if axis == 0 else default)
        for axis, size in enumerate(argument.shape)
    ]
    kind = argument.type.removeprefix("tensor(").removesuffix(")")
    if kind == "string":
        return np.full(shape, "word", dtype=object)
    if kind in {"float", "float16", "double"}:
        return generator.standard_normal(shape).astype({"float": "float32", "double": "float64"}.get(kind, kind))
    return generator.integers(0, 2, shape).astype(kind)


def session_of(library: str, path: Path, threads: int) -> tuple[float, Any]:
    runtime = importlib.import_module(library)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    start = time.perf_counter()
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return (time.perf_counter() - start) * 1e3, session


def run_times(run: Callable[[], Any]) -> list[float]:
    time.sleep(RESTING_SECONDS)
    for _ in range(3):
        run()
    times: list[float] = []
    end = time.perf_counter() + COUNTED_SECONDS
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def difference(ours: list[Any], theirs: list[Any]) -> float:
    found = 0.0
    for own, other in zip(ours, theirs, strict=True):
        if isinstance(own, np.ndarray) and own.dtype.kind == "f" and own.size and own.shape == other.shape:
            scale = max(float(np.abs(other).max()), 1e-30)
            found = max(found, float(np.abs(own - other).max()) / scale)
    return found


def child(path: Path, arguments: argparse.Namespace) -> dict[str, float]:
    made = {library: session_of(library, path, arguments.threads) for library in LIBRARIES}
    sessions = {library: session for library, (_, session) in made.items()}
    feeds = feeds_of(sessions["onnxruntime"], path, arguments)
    runs = {library: lambda session=session: session.run(None, feeds) for library, session in sessions.items()}
    results = {library: [run() for _ in range(4)][-1] for library, run in runs.items()}
    times: dict[str, list[float]] = {library: [] for library in LIBRARIES}
    for _ in range(arguments.rounds):
        for library, run in runs.items():
            times[library] += run_times(run)
    row = {title: median(times[library]) for library, title in LIBRARIES.items()}
    row |= {f"made {title}": made[library][0] for library, title in LIBRARIES.items()}
    return row | {"ratio": row["theirs"] / row["ms"], "difference": difference(results["ort_sdk"], results["onnxruntime"])}


def main() -> int:
    parser = argparse.ArgumentParser(description="Model files beside onnxruntime")
    parser.add_argument("paths", nargs="+", type=Path, help="models, or folders of models")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N", help="size of a symbolic dimension")
    parser.add_argument("--feeds", type=Path, help="inputs by name, for all models")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(child(arguments.paths[0], arguments)))
        return 0
    passed = [word for text in arguments.dim for word in ("--dim", text)]
    passed += ["--rounds", str(arguments.rounds), "--threads", str(arguments.threads)]
    passed += ["--feeds", str(arguments.feeds)] if arguments.feeds else []
    titles = ("ms", "theirs", "made ms", "made theirs", "ratio", "difference")
    print(f"{'model':<52}" + "".join(f"{title:>13}" for title in titles))
    ratios: list[float] = []
    for path in models_in(arguments.paths):
        row = processes.measure_in_child(__file__, str(path), *passed)
        ratios.append(row["ratio"])
        print(
            f"{path.name:<52}" + "".join(f"{row[title]:>13.{7 if title == 'difference' else 3}f}" for title in titles), flush=True
        )
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"{len(ratios)} models  geometric mean of the ratio {mean:.2f}, least {min(ratios):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
