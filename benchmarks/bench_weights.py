"""What large weights cost, beside onnxruntime: external, shared, in memory, inline.

    python -P benchmarks/bench_weights.py [--only external sharing memory inline] [--quick] [--check]

`external`: one session of 2 GB of external float32 weights.
`sharing`: eight sessions in one process, then eight processes at the same time, on one model of 500 MB; `MB each` is what each
session beyond the first adds, or what each process has. With a folder for packed weights, and with onnxruntime's way to share:
`add_initializer`. Each process runs a small model before anything counts, so that modules and libraries imported late do not.
`memory`: a model from bytes whose external file of 500 MB is a buffer; `copies` counts weights whose address is not the buffer's.
`inline`: 500 MB of weights in the `.onnx` file, at multiples of 64 bytes and two bytes behind.

Rows with `unpacked` have prepacking turned off. Every figure is from a fresh process, the libraries in turns; memory is private
memory (no file's pages) beyond what the process had after its imports: peak while the session is made, then when it is made,
then after three runs. Medians over the rounds; files are in the system's cache. `--check` fails when a target is missed,
`--quick` makes everything small. Needs onnxruntime.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import mmap
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parent))
import processes

LIBRARIES = ("ort_sdk", "onnxruntime")
RUNS, SESSIONS, COUNT = 3, 8, 50
QUICK_PROCESSES = 2
EXTERNAL_MB, MODEL_MB = 2000.0, 500.0
QUICK_MB = 4.0
UNALIGNED = 2
SMALL, SMALL_BYTES = "small.onnx", 1 << 18
PACKED, UNPACKED = "packed", "unpacked"
"""What a child does with weights that kernels rearrange; anything else is the folder to keep them in."""
Rows = dict[str, dict[str, float]]


class Library:
    """One of the two, and how its sessions are made."""

    def __init__(self, name: str, packing: str) -> None:
        self.module = importlib.import_module(name)
        self.module.InferenceSession  # noqa: B018 - ort_sdk imports names when they are first used
        self.packing = packing
        self.start()

    def start(self) -> None:
        """What the process has now does not count."""
        gc.collect()
        self.before = processes.private_mb()

    def options(self) -> Any:
        options = self.module.SessionOptions()
        if self.packing == UNPACKED:
            options.add_session_config_entry("session.disable_prepacking", "1")
        elif self.packing != PACKED:
            options.add_session_config_entry("session.prepack_cache_dir", self.packing)
        return options

    def session(self, model: str | bytes, options: Any) -> Any:
        return self.module.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def private_mb(self) -> float:
        return processes.private_mb() - self.before


def run(session: Any) -> None:
    argument = session.get_inputs()[0]
    session.run(None, {argument.name: np.ones((1, argument.shape[1]), np.float32)})


def measure_one(library: Library, model: str | bytes, options: Any) -> tuple[dict[str, float], Any]:
    """Figures of one session, and the session."""
    begin = time.monotonic()
    session = library.session(model, options)
    end = time.monotonic()
    figures = {"create ms": (end - begin) * 1e3, "MB made": library.private_mb()}
    for _ in range(RUNS):
        run(session)
    bounds = {processes.BASE: library.before, processes.BEGIN: begin, processes.END: end}
    return figures | {"MB run": library.private_mb()} | bounds, session


def child_session(library: Library, path: str) -> dict[str, float]:
    figures, _ = measure_one(library, path, library.options())
    return figures


def child_memory(library: Library, path: str) -> dict[str, float]:
    """From bytes, the external file mapped and given as a buffer."""
    data = Path(path).with_suffix(".data")
    with data.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        options = library.options()
        options.add_external_initializers_from_files_in_memory([data.name], [mapped], [len(mapped)])
        figures, session = measure_one(library, Path(path).read_bytes(), options)
        copies = weights_elsewhere(session, mapped) if library.module.__name__ == "ort_sdk" else {}
        del session, options
        gc.collect()
    return figures | copies


def weights_elsewhere(session: Any, mapped: mmap.mmap) -> dict[str, float]:
    """Constants of the session's plan, as its kernels read them, that are not in the buffer, one behind the other."""
    start = np.frombuffer(mapped, np.uint8).ctypes.data
    addresses = sorted(array.ctypes.data - start for array in session._state.plan.constants.arrays().values())
    expected = [index * len(mapped) // COUNT for index in range(COUNT)]
    return {"copies": sum(address not in expected for address in addresses) + abs(COUNT - len(addresses))}


def given_values(library: Library, path: str) -> dict[str, Any]:
    """The weights as OrtValues, which onnxruntime lets its sessions share; they must outlive the sessions."""
    whole = np.memmap(Path(path).with_suffix(".data"), np.float32, "r")
    size = round((whole.size / COUNT) ** 0.5)
    weights = (weight.reshape(size, size) for weight in np.split(whole, COUNT))
    return {f"w{index}": library.module.OrtValue.ortvalue_from_numpy(weight) for index, weight in enumerate(weights)}


def eight_sessions(library: Library, path: str, options: Any) -> dict[str, float]:
    sessions, marks = [], []
    for _ in range(SESSIONS):
        sessions.append(library.session(path, options))
        run(sessions[-1])
        marks.append(library.private_mb())
    return {"MB first": marks[0], "MB each": (marks[-1] - marks[0]) / (SESSIONS - 1)}


def warm_up(library: Library, path: str) -> None:
    """Import what sessions import when they need it."""
    run(library.session(str(Path(path).with_name(SMALL)), library.options()))
    library.start()


def child_sharing(library: Library, path: str) -> dict[str, float]:
    warm_up(library, path)
    return eight_sessions(library, path, library.options())


def child_given(library: Library, path: str) -> dict[str, float]:
    warm_up(library, path)
    values, options = given_values(library, path), library.options()
    for name, given in values.items():
        options.add_initializer(name, given)
    return eight_sessions(library, path, options)


def child_process(library: Library, path: str) -> dict[str, float]:
    """One of several processes: measures when all have run, and waits until all have measured."""
    warm_up(library, path)
    session = library.session(path, library.options())
    run(session)
    print("ran", flush=True)
    sys.stdin.readline()
    figures = {"MB each": library.private_mb()}
    print("measured", flush=True)
    sys.stdin.readline()
    return figures


CHILDREN: dict[str, Callable[[Library, str], dict[str, float]]] = {
    "session": child_session,
    "memory": child_memory,
    "sharing": child_sharing,
    "given": child_given,
    "process": child_process,
}


def measure_processes(count: int, *arguments: str) -> dict[str, float]:
    """Several processes at the same time."""
    children = [processes.start_child(__file__, *arguments) for _ in range(count)]
    for _ in ("ran", "measured"):
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        for child in children:
            assert child.stdin is not None
            print(file=child.stdin, flush=True)
    return processes.medians([processes.figures_of(child) for child in children])


def one(kind: str, library: str, packing: str, path: Path) -> Callable[[], dict[str, float]]:
    return lambda: processes.peak_in_child(__file__, kind, library, packing, str(path))


def external(folder: Path, arguments: argparse.Namespace) -> Rows:
    path = weight_files().write_external(folder / "external.onnx", megabytes(arguments, EXTERNAL_MB), COUNT)
    measured = {
        f"{library}, {packing}": one("session", library, packing, path) for packing in (UNPACKED, PACKED) for library in LIBRARIES
    }
    return processes.in_turns(arguments.rounds, measured)


def sharing(folder: Path, arguments: argparse.Namespace) -> Rows:
    path = str(weight_files().write_external(folder / "shared.onnx", megabytes(arguments, MODEL_MB), COUNT))
    weight_files().write_external(folder / SMALL, SMALL_BYTES, 1)
    count = QUICK_PROCESSES if arguments.quick else SESSIONS

    def sessions(library: str, packing: str, kind: str = "sharing") -> Callable[[], dict[str, float]]:
        return lambda: processes.measure_in_child(__file__, kind, library, packing, path)

    def at_once(library: str, packing: str) -> Callable[[], dict[str, float]]:
        return lambda: measure_processes(count, "process", library, packing, path)

    cache = str(folder / "cache")
    sessions("ort_sdk", cache)()
    measured = {
        f"{library}, {packing} {what}": measure(library, packing)
        for library in LIBRARIES
        for what, measure in (("sessions", sessions), ("processes", at_once))
        for packing in (UNPACKED, PACKED)
    }
    measured["ort_sdk, processes, packed in a folder"] = at_once("ort_sdk", cache)
    measured["onnxruntime, sessions, add_initializer"] = sessions("onnxruntime", UNPACKED, "given")
    return processes.in_turns(arguments.rounds, measured)


def memory(folder: Path, arguments: argparse.Namespace) -> Rows:
    path = weight_files().write_external(folder / "memory.onnx", megabytes(arguments, MODEL_MB), COUNT)
    return processes.in_turns(arguments.rounds, {library: one("memory", library, UNPACKED, path) for library in LIBRARIES})


def inline(folder: Path, arguments: argparse.Namespace) -> Rows:
    nbytes = megabytes(arguments, MODEL_MB)
    measured = {}
    for form, misalignment in (("aligned", 0), ("unaligned", UNALIGNED)):
        path = weight_files().write_inline(folder / f"{form}.onnx", nbytes, COUNT, misalignment=misalignment)
        for packing in (UNPACKED, PACKED):
            measured |= {f"{library}, {form}, {packing}": one("session", library, packing, path) for library in LIBRARIES}
    return processes.in_turns(arguments.rounds, measured)


SECTIONS = {"external": external, "sharing": sharing, "memory": memory, "inline": inline}
TARGETS = [
    ("external", "ort_sdk, unpacked", "create ms", 200.0),
    ("external", "ort_sdk, unpacked", "MB made", 100.0),
    ("external", "ort_sdk, unpacked", "MB run", 100.0),
    ("sharing", "ort_sdk, unpacked sessions", "MB each", 0.01 * MODEL_MB),
    ("sharing", "ort_sdk, packed sessions", "MB each", 0.01 * MODEL_MB),
    ("sharing", "ort_sdk, unpacked processes", "MB each", 0.01 * MODEL_MB),
    ("sharing", "ort_sdk, packed processes", "MB each", 0.01 * MODEL_MB),
    ("sharing", "ort_sdk, processes, packed in a folder", "MB each", 0.01 * MODEL_MB),
    ("memory", "ort_sdk", "copies", 0.0),
    *(
        ("inline", f"ort_sdk, {form}, {packing}", column, bound * MODEL_MB)
        for packing in (UNPACKED, PACKED)
        for form, column, bound in (
            ("aligned", "MB peak", 0.05),
            ("aligned", "MB run", 0.05),
            ("unaligned", "MB peak", 0.05),
            ("unaligned", "MB run", 1.05),
        )
    ),
]
"""Section, row, column and what it may be at most, at full size."""


def weight_files() -> Any:
    """Imported in the parent only: children shall not import onnx."""
    return importlib.import_module("weight_files")


def megabytes(arguments: argparse.Namespace, full: float) -> int:
    return int((QUICK_MB if arguments.quick else full) * processes.MEGABYTE)


def missed(found: dict[str, Rows]) -> list[str]:
    return [
        f"{section}, {row}: {column} is {found[section][row][column]:.1f}, allowed are {bound:g}"
        for section, row, column, bound in TARGETS
        if section in found and found[section][row][column] > bound
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Time and memory of large weights")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="sections")
    parser.add_argument("--rounds", type=int, default=3, help="fresh processes per row")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_MB:g} MB of weights")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--child", nargs=4, metavar=("KIND", "LIBRARY", "PACKING", "MODEL"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        kind, library, packing, path = arguments.child
        print(json.dumps(CHILDREN[kind](Library(library, packing), path)))
        return 0
    found = {}
    for section in arguments.only:
        with tempfile.TemporaryDirectory() as folder:
            found[section] = SECTIONS[section](Path(folder), arguments)
        processes.print_table(section, found[section])
        print()
    failures = missed(found)
    print("\n".join(failures))
    return int(arguments.check and bool(failures))


if __name__ == "__main__":
    sys.exit(main())
