"""Small models beside onnxruntime: two hundred tiny nodes, encoders of any batch and sequence, all with a core busy elsewhere.

    python -P benchmarks/bench_small.py [--rows tiny encoder-16 ...] [--repetitions 9] [--seconds 0.2] [--threads 2] [--busy]

A run is `session.run` with arrays in and out, at both libraries' default optimizations. The libraries take turns; a figure is
the median over the repetitions, each the mean of the runs in `--seconds`; a ratio is onnxruntime's time over ours. `encoder` is
a small transformer with the chains of Shape, Gather, Unsqueeze and Concat that exporters write before each Reshape: `-16` and
`-128` run one signature again and again, `-turns` six in turn, `-growing` a longer sequence in every run; `images-sizes` is
a MobileNet on an image of another size in every run. `steps` is our time without programs. `--busy` pins a process that never
rests to one core, and adds larger models. Needs onnxruntime.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parent))
import models
import processes
import transformer_models
import vision_models

Feeds = Iterator[dict[str, Any]]

SMALL = transformer_models.EncoderShape(layers=4, heads=4, size=32, inner=512)
TURNS = ((1, 8), (1, 16), (2, 8), (2, 24), (4, 16), (1, 32))
BUSY_ROWS = ("resnet", "minilm-128")


def tokens(batch: int, sequence: int) -> dict[str, Any]:
    ids = np.arange(batch * sequence).reshape(batch, sequence) % 2000
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


def growing() -> Feeds:
    """Sequences of 1 to 256, over and over: more signatures than programs are kept for."""
    return itertools.cycle([tokens(1, length) for length in range(1, 257)])


def images() -> Feeds:
    """Images of 400 sizes in any order, over and over."""
    rng = np.random.default_rng(0)
    sizes = rng.permutation([(height, width) for height in range(64, 224, 8) for width in range(64, 224, 8)])
    return ({"x": np.full((1, 3, height, width), 0.5, np.float32)} for height, width in itertools.cycle(sizes.tolist()))


def any_size(model: Any) -> bytes:
    """The model, whose input may have any height and width."""
    for name, dimension in zip(("height", "width"), model.graph.input[0].type.tensor_type.shape.dim[2:], strict=True):
        dimension.dim_param = name
    return bytes(model.SerializeToString())


def rows() -> dict[str, Callable[[], tuple[bytes, Callable[[], Feeds]]]]:
    """Row → makes the model and its inputs."""

    def encoder(feeds: Callable[[], Feeds], shape: Any = SMALL) -> Callable[[], tuple[bytes, Callable[[], Feeds]]]:
        return lambda: (transformer_models.encoder(shape).SerializeToString(), feeds)

    image = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
    return {
        "tiny": lambda: (models.tiny_nodes(200), lambda: itertools.repeat({"x": np.full(4, 0.5, np.float32)})),
        "encoder-16": encoder(lambda: itertools.repeat(tokens(1, 16))),
        "encoder-128": encoder(lambda: itertools.repeat(tokens(1, 128))),
        "encoder-turns": encoder(lambda: itertools.cycle([tokens(*size) for size in TURNS])),
        "encoder-growing": encoder(growing),
        "images-sizes": lambda: (any_size(vision_models.mobilenet_v2(1)), images),
        "minilm-128": encoder(lambda: itertools.repeat(tokens(1, 128)), transformer_models.MINILM),
        "resnet": lambda: (vision_models.resnet50(1).SerializeToString(), lambda: itertools.repeat({"x": image})),
    }


def session_of(library: str, model: bytes, threads: int, *, programs: bool = True) -> Any:
    runtime = importlib.import_module(library)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_programs", "0" if programs else "1")
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run_us(session: Any, feeds: Feeds, seconds: float) -> float:
    count, start = 0, time.perf_counter()
    while (now := time.perf_counter()) - start < seconds or not count:
        session.run(None, next(feeds))
        count += 1
    return (now - start) / count * 1e6


def compare(model: bytes, feeds: Callable[[], Feeds], arguments: argparse.Namespace) -> dict[str, float]:
    sessions = {
        "ort_sdk µs": session_of("ort_sdk", model, arguments.threads),
        "onnxruntime µs": session_of("onnxruntime", model, arguments.threads),
        "steps µs": session_of("ort_sdk", model, arguments.threads, programs=False),
    }
    given = {name: feeds() for name in sessions}
    first = next(feeds())
    results = {name: session.run(None, first)[0] for name, session in sessions.items()}
    np.testing.assert_allclose(results["ort_sdk µs"], results["onnxruntime µs"], rtol=1e-2, atol=1e-3)
    for name, session in sessions.items():
        run_us(session, given[name], max(0.3, arguments.seconds))
    found = [
        {name: run_us(session, given[name], arguments.seconds) for name, session in sessions.items()}
        for _ in range(arguments.repetitions)
    ]
    figures = {name: statistics.median(row[name] for row in found) for name in sessions}
    return figures | {"ratio, %": 100 * figures["onnxruntime µs"] / figures["ort_sdk µs"]}


def main() -> int:
    makers = rows()
    parser = argparse.ArgumentParser(description="Small models beside onnxruntime")
    parser.add_argument("--rows", nargs="+", choices=list(makers), help="default: all, the larger ones with --busy only")
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--busy", action="store_true", help="with one core busy elsewhere")
    arguments = parser.parse_args()
    names = arguments.rows or [name for name in makers if arguments.busy or name not in BUSY_ROWS]
    table = {}
    for name in names:
        model, feeds = makers[name]()
        with processes.busy_core(wanted=arguments.busy):
            table[name] = compare(model, feeds, arguments)
    processes.print_table("model", table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
