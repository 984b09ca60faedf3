"""Memory that running a model takes, beside onnxruntime.

    python -P benchmarks/bench_memory.py [--workloads tiny BERT ...] [--rounds 3] [--runs 3] [--threads 2] [--layers 2] [--check]

Figures are what a fresh process grows by from after `import` to after runs, with all that the session imports: `MB` of pages that
no other process has, also of files, such as the model or a library's code, after the first run and after the last; `anon MB` of
those that are no file's, after the last. What starts the process has imported neither library, so it has none of their pages;
other processes that use them while this runs make the figures less. Medians over the rounds, the libraries in turns, after one
process of each that fills caches on disk. `--check` fails where ours is more, counted in pages that no other process has. Needs
onnxruntime.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
import processes
import workloads

LIBRARIES = {"ort_sdk": "", "onnxruntime": "theirs"}
LENGTHS = {"BERT-base": (128,), "MiniLM": (16, 256), "language model, MatMulNBits": (1, 128), "dynamic encoder": (1, 16, 128)}
"""Lengths of the sequences that a model is run with, where it leaves them open."""
FIGURES = ("MB, first run", "MB", "anon MB")
CHECKED = FIGURES[:2]


def grown(library: str, path: str, arguments: argparse.Namespace) -> dict[str, float]:
    runtime = importlib.import_module(library)
    runtime.InferenceSession  # noqa: B018 - ort_sdk imports names when they are first used
    unshared, anonymous = processes.unshared_mb(), processes.private_mb()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = arguments.threads
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feeds = workloads.feeds_of(session, arguments.length)
    session.run(None, feeds)
    first = processes.unshared_mb()
    for _ in range(arguments.runs - 1):
        session.run(None, feeds)
    found = (first - unshared, processes.unshared_mb() - unshared, processes.private_mb() - anonymous)
    return dict(zip(FIGURES, found, strict=True))


def child(subject: str, path: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Measure a library with a model's file, or write a model into a folder."""
    if subject in LIBRARIES:
        return grown(subject, path, arguments)
    workloads.models(arguments.layers)[subject](Path(path))
    return {}


def written(model: str, folder: str, layers: int) -> Path:
    """A model's file, made by another process: what makes it imports libraries, whose pages this one would share."""
    processes.measure_in_child(__file__, model, folder, f"--layers={layers}")
    return Path(folder, "model.onnx")


def measured(path: Path, length: int, arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Library → its figures."""
    options = [f"--length={length}", f"--runs={arguments.runs}", f"--threads={arguments.threads}"]
    found: dict[str, list[dict[str, float]]] = {library: [] for library in LIBRARIES}
    for round_number in range(arguments.rounds + 1):
        for library, rows in found.items():
            figures = processes.measure_in_child(__file__, library, str(path), *options)
            if round_number:
                rows.append(figures)
    return {library: processes.medians(rows) for library, rows in found.items()}


def named(arguments: argparse.Namespace) -> dict[str, list[tuple[str, int]]]:
    """Model → names of its workloads that are asked for, and lengths of sequences."""
    found: dict[str, list[tuple[str, int]]] = {}
    for model in workloads.models(arguments.layers):
        lengths = LENGTHS.get(model, (1,))
        rows = [(f"{model}, {length}" if model in LENGTHS else model, length) for length in lengths]
        asked = [row for row in rows if any(part in row[0] for part in arguments.workloads)]
        found |= {model: asked} if asked else {}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Memory of runs")
    parser.add_argument("--workloads", nargs="+", default=[""], help="parts of names; all by default")
    parser.add_argument("--rounds", type=int, default=3, help="fresh processes per library, after one that does not count")
    parser.add_argument("--runs", type=int, default=3, help="runs in each process")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--layers", type=int, default=2, help="of the language model")
    parser.add_argument("--length", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help="exit with 1 if ours is more than onnxruntime's")
    parser.add_argument("--child", nargs=2, metavar=("LIBRARY_OR_MODEL", "PATH"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(child(*arguments.child, arguments)))
        return 0
    titles = [title or name for name in FIGURES for title in LIBRARIES.values()]
    print(f"{'workload':<32}" + "".join(f"{title:>15}" for title in titles))
    more = False
    for model, rows in named(arguments).items():
        with tempfile.TemporaryDirectory() as folder:
            path = written(model, folder, arguments.layers)
            for name, length in rows:
                found = measured(path, length, arguments)
                cells = (found[library][figure] for figure in FIGURES for library in LIBRARIES)
                print(f"{name:<32}" + "".join(f"{cell:>15.1f}" for cell in cells), flush=True)
                more |= any(found["ort_sdk"][figure] > found["onnxruntime"][figure] for figure in CHECKED)
    return int(arguments.check and more)


if __name__ == "__main__":
    sys.exit(main())
