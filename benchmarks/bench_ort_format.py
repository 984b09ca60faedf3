"""What the ORT format is for, beside onnxruntime: large models that load at once, and a process with little in it.

    python -P benchmarks/bench_ort_format.py [--megabytes 500] [--rounds 7] [--check]

`load`: making a session of an `.ort` file of 500 MB and running it three times; memory is private memory (no file's pages) beyond
what the process had after its imports, at its peak while the session is made and after. Rows with `unpacked` have prepacking
turned off: kernels that rearrange their weights need memory of their own for them.

`process`: a process that imports the library, makes a session of an `.ort` file of a few nodes and runs it, and ends. Of ours,
onnx, protobuf, flatbuffers, Pillow and rich cannot be imported, as if they were not installed; numba and oneDNN must not be.
`process ms` is all of it with Python's own start, `here ms` import, load and run; `MB` all private memory of the process.

Every figure is from a fresh process, the libraries in turns; medians over the rounds; files are in the system's cache. `--check`
fails when a target is missed. Needs onnxruntime.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
import processes

LIBRARIES = ("ort_sdk", "onnxruntime")
RUNS, COUNT, NODES = 3, 50, 6
NOT_INSTALLED = ("PIL", "flatbuffers", "google.protobuf", "onnx", "rich")
NOT_FOR_SMALL_MODELS = ("cffi", "numba", "scipy")
LOAD_MS, LOAD_SHARE, PROCESS_MS, PROCESS_MB = 100.0, 0.02, 300.0, 40.0
"""Most that loading may take, and need as a share of the file; most that the minimal process may take, and need."""


def child_load(library: str, path: str, *, prepacking: bool) -> dict[str, float]:
    import numpy as np

    runtime = importlib.import_module(library)
    options = runtime.SessionOptions()
    runtime.InferenceSession  # noqa: B018 - ort_sdk imports names when they are first used
    if not prepacking:
        options.add_session_config_entry("session.disable_prepacking", "1")
    before, begin = processes.private_mb(), time.monotonic()
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    end = time.monotonic()
    figures = {"load ms": (end - begin) * 1e3, "MB loaded": processes.private_mb() - before}
    argument = session.get_inputs()[0]
    for _ in range(RUNS):
        session.run(None, {argument.name: np.ones((1, argument.shape[1]), np.float32)})
    bounds = {processes.BASE: before, processes.BEGIN: begin, processes.END: end}
    return figures | {"MB run": processes.private_mb() - before} | bounds


def child_process(library: str, path: str) -> dict[str, float]:
    if library == "ort_sdk":
        sys.modules.update(dict.fromkeys(NOT_INSTALLED))
    begin = time.perf_counter()
    import numpy as np

    runtime = importlib.import_module(library)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    session.run(None, {"x": np.ones(4, np.float32)})
    elapsed = (time.perf_counter() - begin) * 1e3
    loaded = [name for name in NOT_FOR_SMALL_MODELS if name in sys.modules]
    assert not loaded, f"{library} imported {loaded} for a model of {NODES} small nodes"
    return {"here ms": elapsed, "MB": processes.private_mb()}


def process(library: str, path: Path) -> dict[str, float]:
    begin = time.perf_counter()
    figures = processes.measure_in_child(__file__, "process", library, str(path))
    return {"process ms": (time.perf_counter() - begin) * 1e3} | figures


def convert(model: Path) -> Path:
    """The model in ORT format, nothing optimized."""
    target = model.with_suffix(".ort")
    command = [sys.executable, "-P", "-m", "ort_sdk", "convert", str(model), str(target)]
    subprocess.run(command, check=True, capture_output=True)
    return target


def measure_load(path: Path, rounds: int) -> dict[str, dict[str, float]]:
    kinds = {"load": "", "load unpacked": ", unpacked"}
    rows = {
        f"{library}{text}": lambda library=library, kind=kind: processes.peak_in_child(__file__, kind, library, str(path))
        for kind, text in kinds.items()
        for library in LIBRARIES
    }
    return processes.in_turns(rounds, rows)


def measure_process(path: Path, rounds: int) -> dict[str, dict[str, float]]:
    rows = {library: lambda library=library: process(library, path) for library in LIBRARIES}
    return processes.in_turns(rounds, rows)


def missed(load: dict[str, float], minimal: dict[str, float], megabytes: float) -> list[str]:
    targets = [
        (load["load ms"], LOAD_MS, "ms to load"),
        (load["MB peak"], LOAD_SHARE * megabytes, "MB to load"),
        (minimal["process ms"], PROCESS_MS, "ms of the minimal process"),
        (minimal["MB"], PROCESS_MB, "MB of the minimal process"),
    ]
    return [f"{found:.1f} {what}, allowed are {bound:g}" for found, bound, what in targets if found > bound]


def child(kind: str, library: str, path: str) -> dict[str, float]:
    if kind == "process":
        return child_process(library, path)
    return child_load(library, path, prepacking=kind == "load")


def made_models(folder: Path, nbytes: int) -> tuple[Path, Path]:
    """A large and a small model, both in ORT format."""
    import models
    import weight_files

    small = folder / "small.onnx"
    small.write_bytes(models.tiny_nodes(NODES))
    return convert(weight_files.write_external(folder / "large.onnx", nbytes, COUNT)), convert(small)


def main() -> int:
    parser = argparse.ArgumentParser(description="Loading models in ORT format, and the minimal process")
    parser.add_argument("--megabytes", type=float, default=500, help="weights of the large model")
    parser.add_argument("--rounds", type=int, default=7, help="fresh processes per row")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--child", nargs=3, metavar=("KIND", "LIBRARY", "MODEL"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(child(*arguments.child)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        large, small = made_models(Path(folder), int(arguments.megabytes * processes.MEGABYTE))
        load, minimal = measure_load(large, arguments.rounds), measure_process(small, arguments.rounds)
    processes.print_table("load", load)
    print()
    processes.print_table("process", minimal)
    failures = missed(load["ort_sdk, unpacked"], minimal["ort_sdk"], arguments.megabytes)
    print("\n".join(failures))
    return int(arguments.check and bool(failures))


if __name__ == "__main__":
    sys.exit(main())
