"""Attention with a key-value cache, and layers of decoders around it, beside onnxruntime, as loops that produce tokens.

    python -P benchmarks/bench_decoders.py [--kinds group attention ...] [--shapes Phi ...] [--past 128 1024] [--modes run ...]

Each run feeds back what the last one made, so the cache grows by a token from run to run: `run` as arrays, `bound` as values
through IOBinding, `shared` in one buffer as long as the longest sequence, to which each run appends. `prefill` is 128 tokens
without a past. The libraries take turns of some runs in one process; `ms` is the median over all counted runs, `ratio`
onnxruntime's over ours, `error` the largest difference between the results of both, over the largest of them.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parent))
import decoder_models as models
import exported_decoder_models as exported

os.environ.setdefault("ORT_SDK_COMPILATION", "wait")  # what is measured is what computes in the end

REST_SECONDS = 0.05
"""Before each turn, for the other library's threads to stop waiting for more."""
WARM_RUNS = 3
PREFILL = 128
FRAMES = 1500
"""Of an encoder."""
Shape = models.DecoderShape | exported.ExportedShape
KINDS: dict[str, Callable[[Any], bytes]] = {
    "group": models.group,
    "attention": models.attention,
    "multi_head": models.multi_head,
    "cross": models.cross,
    "chain": models.chain,
    "layers": lambda shape: models.layers(shape, LAYERS),
    "gpt": exported.gpt,
    "whisper": exported.whisper,
}
WHOLE: dict[str, list[Shape]] = {
    "gpt": [exported.GPT_2, exported.TINY_DECODER],
    "whisper": [exported.WHISPER_TINY, exported.WHISPER_BASE, exported.TINY_DECODER],
}
"""Kinds that are whole models, with their sizes."""
SHARING = {"group", "attention", "layers"}
"""Kinds in which heads may share keys."""
LAYERS = 2


class Decoding:
    """A loop of runs in which the cache grows.

    Args:
        library: ``ort_sdk`` or ``onnxruntime``.
        model: the model.
        shape: its sizes.
        mode: ``run``, ``bound`` or ``shared``.
        threads: of the session.
    """

    def __init__(self, library: str, model: bytes, shape: Shape, mode: str, threads: int) -> None:
        self._library, self._shape, self._mode = importlib.import_module(library), shape, mode
        options = self._library.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = self._library.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._names = [argument.name for argument in self._session.get_inputs()]
        self._caches = [name for name in self._names if name.startswith("past.")]
        self._encoded = [name for name in self._names if name.startswith("encoder.")]
        self._presents = [output.name for output in self._session.get_outputs() if output.name.startswith("present.")]

    def start(self, past: int, capacity: int, length: int) -> None:
        """Begin with a past of so many tokens; runs take ``length`` tokens each."""
        rng = np.random.default_rng(1)
        self._past, self._length = past, length
        rows = capacity if self._mode == "shared" else past
        tokens = self._shape.cache(rows)
        self._state: dict[str, Any] = {name: rng.standard_normal(tokens, np.float32) for name in self._caches}
        self._tokens = {
            name: rng.standard_normal((1, length, width), np.float32) for name, width in self._widths() if name in self._names
        }
        if isinstance(self._shape, exported.ExportedShape):
            self._tokens["input_ids"] = rng.integers(0, self._shape.words, (1, length))
        self._state |= {name: rng.standard_normal(self._shape.cache(FRAMES), np.float32) for name in self._encoded}
        if self._mode != "run":
            make = self._library.OrtValue.ortvalue_from_numpy
            self._state = {name: make(array) for name, array in self._state.items()}

    def _widths(self) -> list[tuple[str, int]]:
        """Inputs of numbers that may be, and their widths."""
        shape = self._shape
        key_width = shape.width if isinstance(shape, exported.ExportedShape) else shape.key_width
        return [("query", shape.width), ("x", shape.width), ("key", key_width), ("value", key_width)]

    def step(self) -> Any:
        """One run; the result."""
        total = self._past + self._length
        lengths = {
            "seqlens_k": np.array([total - 1], np.int32),
            "total_sequence_length": np.array([total], np.int32),
            "attention_mask": np.ones((1, total), np.int64),
        }
        feeds = self._tokens | {name: array for name, array in lengths.items() if name in self._names}
        y = self._run(feeds) if self._mode == "run" else self._run_bound(feeds)
        self._past += self._length if self._presents else 0
        return y

    def _run(self, feeds: dict[str, Any]) -> Any:
        y, *caches = self._session.run(["y", *self._presents], feeds | self._state)
        if caches:
            self._state |= dict(zip(self._caches, caches, strict=True))
        return y

    def _run_bound(self, feeds: dict[str, Any]) -> Any:
        binding = self._session.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        for name, value in self._state.items():
            binding.bind_ortvalue_input(name, value)
        binding.bind_output("y")
        for name, cache in zip(self._presents, self._caches if self._presents else (), strict=True):
            if self._mode == "shared":
                binding.bind_ortvalue_output(name, self._state[cache])
            else:
                binding.bind_output(name)
        self._session.run_with_iobinding(binding)
        y, *caches = binding.get_outputs()
        if caches and self._mode == "bound":
            self._state |= dict(zip(self._caches, caches, strict=True))
        return y.numpy()


def turn(decoding: Decoding, length: int, runs: int, *, is_prefill: bool) -> list[float]:
    """Milliseconds of each counted run of one turn, which goes on where the last one ended, or begins anew in each run."""
    time.sleep(REST_SECONDS)
    times = []
    for index in range(WARM_RUNS + runs):
        if is_prefill:
            decoding.start(0, length, length)
        start = time.perf_counter()
        decoding.step()
        if index >= WARM_RUNS:
            times.append((time.perf_counter() - start) * 1e3)
    return times


def error_of(pair: list[Decoding], past: int, length: int) -> float:
    """Largest difference of the results over three runs, relative to the largest result."""
    for decoding in pair:
        decoding.start(past // 2 + 1 if past else 0, past + 3 * length, length)
    found = [[np.array(decoding.step()) for _ in range(3 if past else 1)] for decoding in pair]
    return max(float(np.abs(ours - theirs).max() / np.abs(theirs).max()) for ours, theirs in zip(*found, strict=True))


def measured(kind: str, shape: Shape, mode: str, cases: list[tuple[int, int]], arguments: argparse.Namespace) -> None:
    model = KINDS[kind](shape)
    pair = [Decoding(library, model, shape, mode, arguments.threads) for library in ("ort_sdk", "onnxruntime")]
    for past, length in cases:
        error = error_of(pair, past, length)
        times: list[list[float]] = [[], []]
        for decoding in pair:
            decoding.start(past, past + (arguments.rounds * (WARM_RUNS + arguments.runs) + 1) * length, length)
        for _ in range(arguments.rounds):
            for own, decoding in zip(times, pair, strict=True):
                own.extend(turn(decoding, length, arguments.runs if past else 3, is_prefill=not past))
        ours, theirs = map(statistics.median, times)
        what = f"{past} + {length}" if past else f"prefill {length}"
        row = f"{ours:10.3f}{theirs:10.3f}{theirs / ours:8.2f}{error:10.1e}"
        print(f"{kind:<11}{shape.name:<14}{mode:<8}{what:<13}{row}", flush=True)


def shapes_of(kind: str) -> list[Shape]:
    every: list[Any] = list(models.SHAPES.values())
    return WHOLE.get(kind) or [shape for shape in every if kind in SHARING or shape.heads == shape.key_heads]


def main() -> int:
    parser = argparse.ArgumentParser(description="Decoding beside onnxruntime")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--shapes", nargs="+", default=["Phi", "Llama", "Qwen", "Whisper", "GPT"], help="parts of names")
    parser.add_argument("--modes", nargs="+", default=["run", "bound", "shared"], choices=["run", "bound", "shared"])
    parser.add_argument("--past", type=int, nargs="+", default=[128, 1024])
    parser.add_argument("--prefill", type=int, default=PREFILL)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each library")
    parser.add_argument("--runs", type=int, default=10, help="counted runs of a turn")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    print(f"{'':<46}{'ms':>10}{'theirs':>10}{'ratio':>8}{'error':>10}")
    for kind in arguments.kinds:
        for shape in shapes_of(kind):
            is_asked = any(part in shape.name for part in arguments.shapes)
            for mode in arguments.modes:
                if is_asked and (mode == "run" or kind in {"group", "layers"}):
                    cases = [(past, 1) for past in arguments.past] + ([(0, arguments.prefill)] if kind != "cross" else [])
                    measured(kind, shape, mode, cases if mode == "run" else cases[:-1], arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
