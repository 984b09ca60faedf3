"""What a quantized language model costs to start and to decode with, in two forms, beside onnxruntime.

    python -P benchmarks/bench_qdq.py [--layers 32] [--rounds 3] [--runs 10] [--only forms packed] [--quick] [--check]

The model has the matrix products of Phi-3-mini: 32 layers, 4-bit weights in blocks of 32, 2.26 GB with their scales.
`forms`: the products as MatMulNBits, and as DequantizeLinear + MatMul (`DQ+MatMul`), in the default configuration.
`packed`: the second form with a folder for packed weights (`session.prepack_cache_dir`), and saved with its packed weights: the
first start, which writes them, and later ones, which verify their checksums. `write` is what a plain write and fsync of the
same bytes takes in the same round.

Every figure is from a fresh process, the libraries in turns. `MB peak` is the most private memory (no file's pages) beyond what
the process had after its imports, while the session is made; `MB run` what it has after decoding; `decode ms` the median of
the runs of one position. Medians over the rounds; files are in the system's cache, but for the folders of `packed`, which are
made anew in each round. `--check` fails when a target is missed, `--quick` takes 2 layers. Needs onnxruntime, and up to
10 GB in the folder for temporary files.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import shutil
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
NBITS, QDQ = "MatMulNBits", "DQ+MatMul"
LAYERS, QUICK_LAYERS = 32, 2
WARM_UP, RUNS = 2, 10
WIDTH = 3072
SAVED = "saved.onnx"
CACHE_KEY = "session.prepack_cache_dir"
SAVE_PACKED = {
    "session.optimized_model_external_initializers_file_name": "saved.data",
    "session.save_external_prepacked_constant_initializers": "1",
}
WRITE_BYTES = 1 << 24
Rows = dict[str, dict[str, float]]


def child(library: str, path: str, config: dict[str, str], saved_to: str, runs: int) -> dict[str, float]:
    """Figures of one session."""
    runtime = importlib.import_module(library)
    runtime.InferenceSession  # noqa: B018 - ort_sdk imports names when they are first used
    options = runtime.SessionOptions()
    for key, value in config.items():
        options.add_session_config_entry(key, value)
    if saved_to:
        options.optimized_model_filepath = saved_to
    gc.collect()
    before = processes.private_mb()
    begin = time.monotonic()
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    end = time.monotonic()
    made = processes.private_mb() - before
    decode = decode_ms(session, runs)
    bounds = {processes.BASE: before, processes.BEGIN: begin, processes.END: end}
    figures = {"start ms": (end - begin) * 1e3, "MB made": made, "MB run": processes.private_mb() - before, "decode ms": decode}
    return figures | bounds


def decode_ms(session: Any, runs: int) -> float:
    feeds = {"x": np.full((1, 1, WIDTH), 0.1, np.float32)}
    times = []
    for _ in range(WARM_UP + runs):
        start = time.perf_counter()
        session.run(None, feeds)
        times.append(time.perf_counter() - start)
    return statistics.median(times[WARM_UP:]) * 1e3


class Measure:
    """Starts fresh processes that decode a number of times."""

    def __init__(self, runs: int) -> None:
        self._runs = str(runs)

    def __call__(self, library: str, path: Path, config: dict[str, str] | None = None, saved_to: str = "") -> dict[str, float]:
        return processes.peak_in_child(__file__, library, str(path), json.dumps(config or {}), saved_to, self._runs)


def write_models(folder: Path, layers: int) -> dict[str, Path]:
    """Imported in the parent only: children shall not import onnx."""
    models = importlib.import_module("llm_models")
    return {form: models.write_llm(folder / f"{form}.onnx", layers, form) for form in (NBITS, QDQ)}


def forms(paths: dict[str, Path], arguments: argparse.Namespace) -> Rows:
    one = Measure(arguments.runs)

    def measured(library: str, path: Path) -> Callable[[], dict[str, float]]:
        return lambda: one(library, path)

    rows = {f"{library}, {form}": measured(library, path) for form, path in paths.items() for library in LIBRARIES}
    return processes.in_turns(arguments.rounds, rows)


def packed(paths: dict[str, Path], arguments: argparse.Namespace) -> Rows:
    found = [one_round(paths, Measure(arguments.runs)) for _ in range(arguments.rounds)]
    return {row: processes.medians([rows[row] for rows in found]) for row in found[0]}


def one_round(paths: dict[str, Path], one: Measure) -> Rows:
    rows = {f"onnxruntime, {NBITS}": one("onnxruntime", paths[NBITS])}
    with tempfile.TemporaryDirectory(dir=paths[QDQ].parent) as text:
        cache = {CACHE_KEY: str(Path(text, "cache"))}
        rows["ort_sdk, folder, first"] = one("ort_sdk", paths[QDQ], cache)
        rows["write, folder"] = written(Path(text))
        rows["ort_sdk, folder, later"] = one("ort_sdk", paths[QDQ], cache)
    with tempfile.TemporaryDirectory(dir=paths[QDQ].parent) as text:
        saved = Path(text, SAVED)
        rows["ort_sdk, saved, first"] = one("ort_sdk", paths[QDQ], SAVE_PACKED, str(saved))
        rows["write, saved"] = written(Path(text))
        rows["ort_sdk, saved, later"] = one("ort_sdk", saved)
    return rows


def written(folder: Path) -> dict[str, float]:
    """Time to write and fsync as many bytes as a folder holds, beside them."""
    nbytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    content = np.random.default_rng(0).integers(0, 256, WRITE_BYTES, np.uint8)
    path = folder / "plain"
    start = time.perf_counter()
    with path.open("wb") as file:
        for begin in range(0, nbytes, WRITE_BYTES):
            file.write(content[: nbytes - begin].data)
        file.flush()
        os.fsync(file.fileno())
    elapsed = time.perf_counter() - start
    path.unlink()
    return {"start ms": elapsed * 1e3, "MB written": nbytes / processes.MEGABYTE}


SECTIONS = {"forms": forms, "packed": packed}
RATIOS = [
    ("forms", f"ort_sdk, {QDQ}", "start ms", 1.05, f"ort_sdk, {NBITS}", 0.0),
    ("forms", f"ort_sdk, {QDQ}", "MB peak", 1.05, f"ort_sdk, {NBITS}", 0.0),
    ("forms", f"ort_sdk, {QDQ}", "start ms", 1.0, f"onnxruntime, {NBITS}", 0.0),
    ("forms", f"ort_sdk, {QDQ}", "MB peak", 1.0, f"onnxruntime, {NBITS}", 0.0),
    ("forms", f"ort_sdk, {NBITS}", "start ms", 1.0, f"onnxruntime, {NBITS}", 0.0),
    ("forms", f"ort_sdk, {NBITS}", "MB peak", 1.0, f"onnxruntime, {NBITS}", 0.0),
    *(
        bound
        for kind in ("folder", "saved")
        for bound in (
            ("packed", f"ort_sdk, {kind}, first", "start ms", 1.5, f"write, {kind}", 1500.0),
            ("packed", f"ort_sdk, {kind}, first", "MB peak", 0.0, "", 300.0),
            ("packed", f"ort_sdk, {kind}, later", "start ms", 0.15, f"onnxruntime, {NBITS}", 0.0),
            ("packed", f"ort_sdk, {kind}, later", "MB peak", 0.0, "", 150.0),
            ("packed", f"ort_sdk, {kind}, later", "decode ms", 1.0, f"onnxruntime, {NBITS}", 0.0),
        )
    ),
]
"""Section, row, column, and what it may be at most: a factor of the same column of another row, plus a number."""


def missed(found: dict[str, Rows]) -> list[str]:
    failures = []
    for section, row, column, factor, other, plus in RATIOS:
        if section not in found:
            continue
        rows = found[section]
        bound = plus + (factor * rows[other][column] if other else 0.0)
        if rows[row][column] > bound:
            failures.append(f"{section}, {row}: {column} is {rows[row][column]:.1f}, allowed are {bound:.1f}")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description="A quantized language model's start and memory")
    parser.add_argument("--layers", type=int, help=f"layers of the model; {LAYERS} by default")
    parser.add_argument("--rounds", type=int, default=3, help="fresh processes per row")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"decodings per process, after {WARM_UP}")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="sections")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_LAYERS} layers")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--child", nargs=5, metavar=("LIBRARY", "MODEL", "CONFIG", "SAVED", "RUNS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        library, path, config, saved_to, runs = arguments.child
        print(json.dumps(child(library, path, json.loads(config), saved_to, int(runs))))
        return 0
    layers = arguments.layers or (QUICK_LAYERS if arguments.quick else LAYERS)
    found = {}
    folder = Path(tempfile.mkdtemp())
    try:
        paths = write_models(folder, layers)
        for section in arguments.only:
            found[section] = SECTIONS[section](paths, arguments)
            processes.print_table(section, found[section])
            print()
    finally:
        shutil.rmtree(folder)
    failures = missed(found)
    print("\n".join(failures))
    return int(arguments.check and bool(failures))


if __name__ == "__main__":
    sys.exit(main())
