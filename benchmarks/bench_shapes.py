"""Inputs of another shape in nearly every run, beside onnxruntime: text, lines, images of any size, a cache that grows.

    python -P benchmarks/bench_shapes.py [--rows texts batches ...] [--repetitions 3] [--threads 2]
    python -P benchmarks/bench_shapes.py --model recogniser.onnx --input x=1,3,48,80..640:8 [--count 50]

A sequence is run twice by one session, in another order the second time: ``first`` has hardly seen a shape before, ``again`` has
seen each once. The libraries take turns, ten runs each, after a pause in which the other's threads come to rest and two
runs of a shape that is known. Figures are milliseconds of a run, means over the sequence, medians over the repetitions, each with
sessions of its own; ratios are onnxruntime's time over ours. ``--model`` takes any model, with a shape whose ranges are
drawn from at random. Needs onnxruntime.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parent))
import processes
import transformer_models
import vision_models
from bench_small import SMALL, any_size, session_of, tokens

Feeds = dict[str, Any]
BLOCK = 10
PAUSE_SECONDS = 0.05
LIBRARIES = ("ort_sdk", "onnxruntime")
ELEMENT_TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}


@dataclass(frozen=True)
class Workload:
    """A model and the inputs of its runs."""

    model: bytes
    known: Feeds
    """Of the runs that are not counted."""
    sequence: Sequence[Feeds]


def drawn(count: int, make: Callable[[np.random.Generator], Feeds]) -> list[Feeds]:
    rng = np.random.default_rng(0)
    return [make(rng) for _ in range(count)]


def texts() -> Workload:
    model = transformer_models.encoder(transformer_models.MINILM).SerializeToString()
    return Workload(model, tokens(1, 64), drawn(50, lambda rng: tokens(1, int(rng.integers(5, 61)))))


def batches() -> Workload:
    model = transformer_models.encoder(SMALL).SerializeToString()
    return Workload(model, tokens(1, 64), drawn(50, lambda rng: tokens(int(rng.integers(1, 9)), int(rng.integers(5, 61)))))


def image(height: int, width: int) -> Feeds:
    return {"x": np.full((1, 3, height, width), 0.5, np.float32)}


def images() -> Workload:
    model = any_size(vision_models.mobilenet_v2(1))
    return Workload(model, image(224, 224), drawn(50, lambda rng: image(*(8 * rng.integers(8, 28, 2)).tolist())))


def growing() -> Workload:
    shape = transformer_models.EncoderShape(layers=6, heads=8, size=64, inner=2048)
    model = transformer_models.decoder(shape).SerializeToString()
    return Workload(model, step(shape, 1), [step(shape, past) for past in range(2, 130)])


def step(shape: transformer_models.EncoderShape, past: int) -> Feeds:
    """One token, and what came before it."""
    rng = np.random.default_rng(past)
    cache = {
        f"past_{name}_{layer}": rng.standard_normal((1, shape.heads, past, shape.size), np.float32)
        for layer in range(shape.layers)
        for name in ("key", "value")
    }
    return {"input_ids": np.array([[past]]), "attention_mask": np.ones((1, past + 1), np.int64)} | cache


ROWS = {"texts": texts, "batches": batches, "images": images, "growing": growing}


def of_file(path: Path, inputs: Sequence[str], count: int) -> Workload:
    """A model of the user and shapes such as ``x=1,3,48,80..640:8``."""
    model = path.read_bytes()
    types = {argument.name: ELEMENT_TYPES[argument.type] for argument in session_of("onnxruntime", model, 1).get_inputs()}
    wanted = dict(text.split("=") for text in inputs)

    def feeds(size: Callable[[str], int]) -> Feeds:
        shapes = {name: [size(part) for part in shape.split(",")] for name, shape in wanted.items()}
        return {
            name: np.full(shape, 1 if np.dtype(types[name]).kind == "i" else 0.25, types[name]) for name, shape in shapes.items()
        }

    return Workload(
        model, feeds(lambda part: int(part.partition("..")[0])), drawn(count, lambda rng: feeds(lambda part: size(part, rng)))
    )


def size(part: str, rng: np.random.Generator) -> int:
    """``64``, or one of ``80..640:8``."""
    first, _, rest = part.partition("..")
    if not rest:
        return int(first)
    last, _, step_ = rest.partition(":")
    return int(rng.choice(np.arange(int(first), int(last) + 1, int(step_ or 1))))


def mean_ms(sessions: dict[str, Any], workload: Workload, sequence: Sequence[Feeds]) -> dict[str, float]:
    """Milliseconds of a run by library, over the sequence."""
    seconds = dict.fromkeys(sessions, 0.0)
    for begin in range(0, len(sequence), BLOCK):
        for name, session in sessions.items():
            time.sleep(PAUSE_SECONDS)
            for _ in range(2):
                session.run(None, workload.known)
            for feeds in sequence[begin : begin + BLOCK]:
                start = time.perf_counter()
                session.run(None, feeds)
                seconds[name] += time.perf_counter() - start
    return {name: 1e3 * total / len(sequence) for name, total in seconds.items()}


def compare(workload: Workload, threads: int) -> dict[str, float]:
    sessions = {library: session_of(library, workload.model, threads) for library in LIBRARIES}
    ours, theirs = (session.run(None, workload.known)[0] for session in sessions.values())
    np.testing.assert_allclose(ours, theirs, rtol=1e-2, atol=1e-3)
    again = [workload.sequence[index] for index in np.random.default_rng(1).permutation(len(workload.sequence))]
    figures = {}
    for moment, sequence in (("first", workload.sequence), ("again", again)):
        found = mean_ms(sessions, workload, sequence)
        figures |= {f"{moment}, ms": found["ort_sdk"], f"{moment}, %": 100 * found["onnxruntime"] / found["ort_sdk"]}
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description="Shapes that change from run to run, beside onnxruntime")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--model", type=Path, help="a model instead of the rows")
    parser.add_argument("--input", nargs="+", default=[], help="its inputs, such as x=1,3,48,80..640:8")
    parser.add_argument("--count", type=int, default=50, help="shapes drawn for it")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    makers: dict[str, Callable[[], Workload]] = {name: ROWS[name] for name in arguments.rows}
    if arguments.model:
        makers = {arguments.model.stem: lambda: of_file(arguments.model, arguments.input, arguments.count)}
    table = {}
    for name, make in makers.items():
        workload = make()
        found = [compare(workload, arguments.threads) for _ in range(arguments.repetitions)]
        table[name] = {column: statistics.median(row[column] for row in found) for column in found[0]}
    processes.print_table("model", table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
