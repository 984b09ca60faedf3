"""What a session of each of the other benchmarks' models costs to make, beside onnxruntime.

    python -P benchmarks/bench_creation.py [--models tiny BERT ...] [--rounds 5] [--warm 7] [--threads 2] [--layers 32] [--check]

In each round every library makes sessions in a fresh process, in turns. `first` is the first session of a process, with all that
the library imports only then, its generated code cached on disk; `warm` the median of those made after it, each when the one
before has run and is gone; `run` the first run of the first session, which may have taken over work from its making. Figures are
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
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parent))
import processes

LIBRARIES = {"ort_sdk": "ms", "onnxruntime": "theirs"}
LAYERS = 32
LEAST_RATIO = 0.7
DTYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64}


def cases(layers: int) -> dict[str, Callable[[Path], Path]]:
    """Name → writes the model into a folder."""
    import llm_models
    import models
    import transformer_models as transformers
    import vision_models as vision

    small = transformers.EncoderShape(layers=4, heads=4, size=32, inner=512)

    def saved(make: Callable[[Path], Any]) -> Callable[[Path], Path]:
        return lambda folder: models.save(make(folder), folder / "model.onnx")

    def llm(form: str) -> Callable[[Path], Path]:
        return lambda folder: llm_models.write_llm(folder / "model.onnx", layers, form)

    return {
        "ResNet-50": saved(lambda _: vision.resnet50(1)),
        "MobileNetV2": saved(lambda _: vision.mobilenet_v2(1)),
        "ResNet-50, 8 bits": saved(lambda folder: vision.quantized(vision.resnet50(1), folder)),
        "BERT-base": saved(lambda _: transformers.encoder(transformers.BERT_BASE)),
        "MiniLM": saved(lambda _: transformers.encoder(transformers.MINILM)),
        "language model, MatMulNBits": llm("MatMulNBits"),
        "language model, DQ+MatMul": llm("DQ+MatMul"),
        "LSTM 2x512": saved(lambda _: transformers.recurrent("LSTM")),
        "GRU 2x512": saved(lambda _: transformers.recurrent("GRU")),
        "voice activity": saved(lambda _: transformers.voice_activity()),
        "200 tiny nodes": lambda folder: written(models.tiny_nodes(200), folder),
        "dynamic encoder": saved(lambda _: transformers.encoder(small)),
    }


def written(content: bytes, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(content)
    return path


def feeds_of(session: Any) -> dict[str, Any]:
    """Ones, of the least size where a model leaves it open."""
    return {
        argument.name: np.ones([size if isinstance(size, int) else 1 for size in argument.shape], DTYPES[argument.type])
        for argument in session.get_inputs()
    }


def made(runtime: Any, path: str, threads: int) -> tuple[float, Any]:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    start = time.perf_counter()
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return (time.perf_counter() - start) * 1e3, session


def child(library: str, path: str, threads: int, warm: int) -> dict[str, float]:
    runtime = importlib.import_module(library)
    runtime.InferenceSession  # noqa: B018 - ort_sdk imports names when they are first used
    first, session = made(runtime, path, threads)
    feeds = feeds_of(session)
    start = time.perf_counter()
    session.run(None, feeds)
    run = (time.perf_counter() - start) * 1e3
    times = []
    for _ in range(warm):
        del session
        gc.collect()
        time.sleep(0.05)
        milliseconds, session = made(runtime, path, threads)
        session.run(None, feeds)
        times.append(milliseconds)
    return {"first": first, "warm": median(times), "run": run}


def measured(path: Path, arguments: argparse.Namespace) -> dict[str, float]:
    options = ("--threads", str(arguments.threads), "--warm", str(arguments.warm))
    found: dict[str, list[dict[str, float]]] = {library: [] for library in LIBRARIES}
    for round_number in range(arguments.rounds + 1):
        for library, rows in found.items():
            figures = processes.measure_in_child(__file__, library, str(path), *options)
            if round_number:  # the one before fills caches on disk
                rows.append(figures)
    medians = {library: processes.medians(rows) for library, rows in found.items()}
    row: dict[str, float] = {}
    for name in ("first", "warm", "run"):
        row |= {f"{name} {title}": medians[library][name] for library, title in LIBRARIES.items()}
    return row | {f"{name} ratio": row[f"{name} theirs"] / row[f"{name} ms"] for name in ("first", "warm")}


def main() -> int:
    parser = argparse.ArgumentParser(description="Time of session creation")
    parser.add_argument("--models", nargs="+", default=[""], help="parts of names; all by default")
    parser.add_argument("--rounds", type=int, default=5, help="fresh processes per library, after one that does not count")
    parser.add_argument("--warm", type=int, default=7, help="sessions made after the first in each process")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--layers", type=int, default=LAYERS, help="of the language model")
    parser.add_argument("--check", action="store_true", help=f"exit with 1 if a warm ratio is below {LEAST_RATIO}")
    parser.add_argument("--child", nargs=2, metavar=("LIBRARY", "MODEL"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(child(*arguments.child, arguments.threads, arguments.warm)))
        return 0
    titles = [f"{name} {title}" for name in ("first", "warm", "run") for title in LIBRARIES.values()]
    print(f"{'model':<28}" + "".join(f"{title:>14}" for title in (*titles, "first ratio", "warm ratio")))
    slow = False
    for name, write in cases(arguments.layers).items():
        if any(part in name for part in arguments.models):
            with tempfile.TemporaryDirectory() as folder:
                row = measured(write(Path(folder)), arguments)
            print(f"{name:<28}" + "".join(f"{figure:>14.2f}" for figure in row.values()), flush=True)
            slow |= row["warm ratio"] < LEAST_RATIO
    return int(arguments.check and slow)


if __name__ == "__main__":
    sys.exit(main())
