"""Transformers and recurrent models beside onnxruntime: time and agreement with float64.

    python -P benchmarks/bench_transformers.py [--models BERT ...] [--rounds 9] [--seconds 0.1] [--threads 2] [--busy]

Both libraries run one model in one process, in turns. A turn begins with runs that are not counted, until threads of the other
library have stopped looking for work; `ms` is the median over all counted runs, `ratio` onnxruntime's over ours.

`error` is the largest difference from the model computed in float64, over the largest result, `rms` the root mean square of the
differences over that of the results. onnxruntime has its defaults but for the number of threads.
"""

from __future__ import annotations

import argparse
import importlib
import json
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

Feeds = dict[str, np.ndarray]
LIBRARIES = ("ort_sdk", "onnxruntime")
ERRORS = ("error", "rms")
SETTLING_SECONDS = 0.05
COLUMNS = [
    *((f"{library} ms", ".3f") for library in LIBRARIES),
    ("ratio", ".2f"),
    *((f"{library} {name}", ".1e") for name in ERRORS for library in LIBRARIES),
]
"""Figures of a row, and how they are written."""
TITLES = ("ms", "theirs", "ratio", "error", "theirs", "rms", "theirs")


def encoder_feeds(length: int) -> Feeds:
    rng = np.random.default_rng(1)
    mask = np.ones((1, length), np.int64)
    mask[:, length - length // 5 :] = 0
    return {
        "input_ids": rng.integers(0, 200, (1, length)),
        "attention_mask": mask,
        "token_type_ids": np.zeros((1, length), np.int64),
    }


def sequence_feeds(steps: int, hidden: int) -> Feeds:
    return {"x": np.random.default_rng(1).standard_normal((steps, 1, hidden)).astype(np.float32)}


def voice_feeds() -> Feeds:
    states = {name: np.zeros((1, 1, 128), np.float32) for name in ("h", "c")}
    return {"x": np.random.default_rng(1).standard_normal((1, 1, 512)).astype(np.float32) * 0.1, **states}


def cases() -> dict[str, tuple[Callable[[], Any], Feeds]]:
    """Name → (makes the model, feeds)."""
    import transformer_models as models

    tiny = models.EncoderShape(layers=1, heads=2, size=16, inner=64, words=200)
    return {
        "BERT-base, 128 tokens": (lambda: models.encoder(models.BERT_BASE), encoder_feeds(128)),
        "MiniLM, 16 tokens": (lambda: models.encoder(models.MINILM), encoder_feeds(16)),
        "MiniLM, 256 tokens": (lambda: models.encoder(models.MINILM), encoder_feeds(256)),
        "LSTM 2x512, 100 steps": (lambda: models.recurrent("LSTM"), sequence_feeds(100, 512)),
        "GRU 2x512, 100 steps": (lambda: models.recurrent("GRU"), sequence_feeds(100, 512)),
        "voice activity, LSTM 128": (models.voice_activity, voice_feeds()),
        "tiny encoder": (lambda: models.encoder(tiny), encoder_feeds(8)),
        "tiny LSTM": (lambda: models.recurrent("LSTM", steps=3, hidden=16), sequence_feeds(3, 16)),
    }


def session_of(library: str, path: str, threads: int) -> Any:
    runtime = importlib.import_module(library)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    return runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def timed(session: Any, feeds: Feeds, seconds: float) -> list[float]:
    """Milliseconds of each run of one turn."""
    settled, times = time.perf_counter() + SETTLING_SECONDS, []
    while time.perf_counter() < settled or len(times) < 3:
        session.run(None, feeds)
        times.append(0.0)
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        session.run(None, feeds)
        times.append((time.perf_counter() - start) * 1e3)
    return times


def float64_results(model: Any, feeds: Feeds) -> list[np.ndarray]:
    """The model with all float32 made float64, computed by onnx's reference implementation."""
    from onnx import TensorProto, numpy_helper
    from onnx.reference import ReferenceEvaluator

    double = type(model)()
    double.CopyFrom(model)
    for tensor in double.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    for value in (*double.graph.input, *double.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for attribute in (attribute for node in double.graph.node if node.op_type == "Cast" for attribute in node.attribute):
        attribute.i = TensorProto.DOUBLE if attribute.i == TensorProto.FLOAT else attribute.i
    wide = {name: array.astype(np.float64) if array.dtype == np.float32 else array for name, array in feeds.items()}
    return ReferenceEvaluator(double).run(None, wide)


def errors_of(session: Any, feeds: Feeds, expected: list[np.ndarray]) -> tuple[float, float]:
    """(largest, root mean square) of the differences, relative to those of the results; of the worst output."""
    for _ in range(2):
        session.run(None, feeds)
    largest, mean = [], []
    for found, wanted in zip(session.run(None, feeds), expected, strict=True):
        difference = found - wanted
        largest.append(float(np.abs(difference).max() / max(np.abs(wanted).max(), 1e-30)))
        mean.append(float(np.linalg.norm(difference) / max(np.linalg.norm(wanted), 1e-30)))
    return max(largest), max(mean)


def compared(path: str, feeds_path: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Times and agreement of both libraries' sessions."""
    import onnx

    feeds = dict(np.load(feeds_path))
    expected = float64_results(onnx.load(path), feeds)
    sessions = {library: session_of(library, path, arguments.threads) for library in LIBRARIES}
    times: dict[str, list[float]] = {library: [] for library in sessions}
    with processes.busy_core(wanted=arguments.busy):
        for _ in range(arguments.rounds):
            for library, session in sessions.items():
                times[library] += timed(session, feeds, arguments.seconds)
    found = {}
    for library, session in sessions.items():
        error, rms = errors_of(session, feeds, expected)
        found |= {f"{library} ms": statistics.median(times[library]), f"{library} error": error, f"{library} rms": rms}
    return found


def measured(make: Callable[[], Any], feeds: Feeds, settings: list[str], folder: Path) -> list[str]:
    """A row of the table, all of it from processes of their own."""
    import models

    path, feeds_path = str(models.save(make(), folder / "model.onnx")), str(folder / "feeds.npz")
    np.savez(feeds_path, **feeds)
    figures = processes.measure_in_child(__file__, path, feeds_path, *settings)
    figures["ratio"] = figures["onnxruntime ms"] / figures["ort_sdk ms"]
    return [f"{figures[name]:{form}}" for name, form in COLUMNS]


def main() -> int:
    names = list(cases()) if "--child" not in sys.argv else []
    parser = argparse.ArgumentParser(description="Transformers and recurrent models beside onnxruntime")
    parser.add_argument("--models", nargs="+", default=names[:-2], help="parts of names; " + "; ".join(names))
    parser.add_argument("--rounds", type=int, default=9, help="turns of each library")
    parser.add_argument("--seconds", type=float, default=0.1, help="counted part of a turn")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--busy", action="store_true", help="with one core busy elsewhere")
    parser.add_argument("--child", nargs=2, metavar=("MODEL", "FEEDS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(compared(*arguments.child, arguments)))
        return 0
    settings = ["--rounds", str(arguments.rounds), "--seconds", str(arguments.seconds), "--threads", str(arguments.threads)]
    settings += ["--busy"] if arguments.busy else []
    print(f"{'model':<28}" + "".join(f"{title:>10}" for title in TITLES))
    for name, (make, feeds) in cases().items():
        if any(part in name for part in arguments.models):
            with tempfile.TemporaryDirectory() as folder:
                row = measured(make, feeds, settings, Path(folder))
            print(f"{name:<28}" + "".join(f"{figure:>10}" for figure in row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
