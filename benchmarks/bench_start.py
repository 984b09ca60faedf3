"""From the start of a process to its first answer, beside onnxruntime: import, session and first call, and the memory they take.

    python -P benchmarks/bench_start.py [--models ResNet-50 ...] [--files MODEL ...] [--rounds 5] [--layers 2] [--check]
        [--python INTERPRETER] [--fresh]

In each round every library starts in a process of its own, in turns: `ms` is the time until the process has its first answer, the
start of the interpreter and NumPy's import included, `MB` the most memory that it had resident. Figures are medians over the
rounds; ratios are ours over onnxruntime's. `--python` measures what is installed for another interpreter. `--fresh` gives each
process an empty folder for what is compiled and kept, as right after an installation. `--check` fails above 1.5 times the time or
1.2 times the memory. Inputs of files are made up: a first dimension without a size is 1, others are `--size`. Needs onnxruntime.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
import processes
import workloads

LIBRARIES = ("ort_sdk", "onnxruntime")
MODELS = ("ResNet-50", "ResNet-50, 8 bits", "BERT-base", "language model, MatMulNBits", "voice activity", "dynamic encoder")
MOST = {"ms ratio": 1.5, "MB ratio": 1.2}

CHILD = """
import importlib, json, sys
library, path, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
runtime = importlib.import_module(library)
options = runtime.SessionOptions()
options.intra_op_num_threads = 2
session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
import numpy as np
types = {"tensor(float)": "f4", "tensor(float16)": "f2", "tensor(int64)": "i8", "tensor(int32)": "i4", "tensor(bool)": "?"}
feeds = {}
for value in session.get_inputs():
    shape = [each if isinstance(each, int) else size if index else 1 for index, each in enumerate(value.shape)]
    # not the same number everywhere: activations of such inputs may be subnormal, which no real ones are
    feeds[value.name] = np.random.default_rng(0).uniform(1, 2, shape).astype(types[value.type])
session.run(None, feeds)
status = open("/proc/self/status", encoding="ascii").read().splitlines()
# of this program alone: getrusage knows of the process before exec, too
print(json.dumps({"MB": next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024 / 1e6}), flush=True)
"""


def measured(python: str, library: str, path: Path, size: int, *, is_fresh: bool) -> dict[str, float]:
    command = [python, "-P", "-c", CHILD, library, str(path), str(size)]
    environment = {name: value for name, value in processes.environment().items() if name != "ORT_SDK_COMPILATION"}
    with tempfile.TemporaryDirectory() as folder:
        if is_fresh:
            environment |= {"ORT_SDK_CACHE_DIR": folder}
        begin = time.perf_counter()
        child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        answer = child.stdout.readline()
        seconds = time.perf_counter() - begin
        if child.wait():
            raise SystemExit(f"{library} failed with {path}")
    figures: dict[str, float] = json.loads(answer)
    return {"ms": seconds * 1e3} | figures


def row_of(path: Path, size: int, arguments: argparse.Namespace) -> dict[str, float]:
    rows: list[dict[str, float]] = []
    for _ in range(arguments.rounds + 1):
        found = {library: measured(arguments.python, library, path, size, is_fresh=arguments.fresh) for library in LIBRARIES}
        rows.append({f"{name} {library}": value for library, figures in found.items() for name, value in figures.items()})
    medians = processes.medians(rows[1:])  # the one before fills caches on disk
    ours, theirs = ({name: medians[f"{name} {library}"] for name in ("ms", "MB")} for library in LIBRARIES)
    return {
        "ms": ours["ms"],
        "theirs": theirs["ms"],
        "ms ratio": ours["ms"] / theirs["ms"],
        "MB": ours["MB"],
        "MB theirs": theirs["MB"],
        "MB ratio": ours["MB"] / theirs["MB"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Time and memory to the first answer")
    parser.add_argument("--models", nargs="*", default=[""], help="parts of names; all by default")
    parser.add_argument("--files", nargs="*", default=[], type=Path, help="models of your own")
    parser.add_argument("--rounds", type=int, default=5, help="after one that does not count")
    parser.add_argument("--layers", type=int, default=2, help="of the language model")
    parser.add_argument("--size", type=int, default=1, help="of dimensions without one, of files")
    parser.add_argument("--python", default=sys.executable, help="interpreter to measure with")
    parser.add_argument("--fresh", action="store_true", help="with an empty folder for what is compiled")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    makers = workloads.models(arguments.layers)
    chosen = [name for name in MODELS if any(part in name for part in arguments.models)]
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen:
            place = Path(folder) / name
            place.mkdir()
            rows[name] = row_of(makers[name](place), 16, arguments)
    for path in arguments.files:
        rows[path.name] = row_of(path, arguments.size, arguments)
    processes.print_table("model", rows)
    found = [(name, column, row[column]) for name, row in rows.items() for column in MOST]
    missed = [f"{name}: {column} {ratio:.2f}" for name, column, ratio in found if ratio > MOST[column]]
    if arguments.check and missed:
        print(*missed, sep="\n", file=sys.stderr)
    return int(arguments.check and bool(missed))


if __name__ == "__main__":
    sys.exit(main())
