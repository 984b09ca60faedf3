"""What loading a model costs by itself: time and memory, weights inline and in an external file, beside onnx.load.

    python -P benchmarks/bench_load.py [--megabytes 250] [--count 50] [--rounds 7]

`onnx.load` reads the weights; this project's loader maps them, so its figures hardly grow with their size. Each round loads in
a fresh process, in turns, the libraries imported before. Memory is anonymous memory beyond what the process had before; pages
of mapped files are not in it. Figures are medians over the rounds; the files are in the system's cache.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))
import processes

LOADERS = ("ort_sdk", "onnx.load")
FORMS = ("inline", "external")


def loader(name: str) -> Callable[[str], Any]:
    import onnx

    if name == "onnx.load":
        return onnx.load
    from ort_sdk.loader import load_model

    return load_model


def child(name: str, path: str) -> dict[str, float]:
    load = loader(name)
    gc.collect()
    before = processes.private_mb()
    start = time.perf_counter()
    model = load(path)
    elapsed = (time.perf_counter() - start) * 1e3
    figures = {"ms": elapsed, "MB": processes.private_mb() - before}
    del model
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description="Time and memory of loading a model")
    parser.add_argument("--megabytes", type=float, default=250, help="weights of the model")
    parser.add_argument("--count", type=int, default=50, help="number of weights")
    parser.add_argument("--rounds", type=int, default=7, help="fresh processes per row")
    parser.add_argument("--child", nargs=2, metavar=("LOADER", "MODEL"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(child(*arguments.child)))
        return 0
    import models

    with tempfile.TemporaryDirectory() as folder:
        model = models.matrices(int(arguments.megabytes * processes.MEGABYTE), arguments.count)
        paths = {form: models.save(model, Path(folder, f"{form}.onnx"), external=form == "external") for form in FORMS}
        rows: dict[str, list[dict[str, float]]] = {f"{name}, {form}": [] for form in FORMS for name in LOADERS}
        for _ in range(arguments.rounds):
            for row, found in rows.items():
                name, form = row.split(", ")
                found.append(processes.measure_in_child(__file__, name, str(paths[form])))
    print(f"{arguments.megabytes:g} MB in {arguments.count} weights")
    processes.print_table("loader", {row: processes.medians(found) for row, found in rows.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
