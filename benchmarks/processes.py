"""Measuring in fresh processes: a script calls itself with what to measure, and reads figures from its output."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# What is measured is what computes in the end; bench_start.py measures how it begins.
os.environ.setdefault("ORT_SDK_COMPILATION", "wait")

ROLLUP = Path("/proc/self/smaps_rollup")
MEGABYTE = 1e6
PRIVATE_FIELDS = ("Pss_Anon", "Pss_Shmem")
UNSHARED_FIELDS = ("Private_Clean", "Private_Dirty")
BASE, BEGIN, END = "MB at first", "begins at", "ends at"
"""Figures of a child that ``peak_in_child`` wants: memory that does not count, and seconds of ``time.monotonic``."""
STARTING_SECONDS = 0.3
_CACHED_BYTECODE = tempfile.TemporaryDirectory()


@contextlib.contextmanager
def busy_core(*, wanted: bool) -> Iterator[None]:
    """A process that never rests keeps the last processor busy, if that is wanted."""
    if not wanted:
        yield
        return
    core = max(os.sched_getaffinity(0))
    child = subprocess.Popen([sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"])
    try:
        time.sleep(STARTING_SECONDS)
        yield
    finally:
        child.kill()
        child.wait()


def private_mb() -> float:
    """Megabytes that belong to this process and are no file's, pages shared with others in parts; 0 where the system hides it."""
    return _mb_of(PRIVATE_FIELDS)


def unshared_mb() -> float:
    """Megabytes that no other process has, also of files, such as code that only this one maps; 0 where the system hides it."""
    return _mb_of(UNSHARED_FIELDS)


def _mb_of(fields: tuple[str, ...]) -> float:
    if not ROLLUP.exists():
        return 0.0
    rows = (line.split() for line in ROLLUP.read_text(encoding="ascii").splitlines()[1:])
    return sum(int(row[1]) for row in rows if row[0].removesuffix(":") in fields) * 1024 / MEGABYTE


def environment() -> dict[str, str]:
    """Environment of measured processes: modules come from byte code, as after an installation by pip.

    Where Python writes none, it is kept for as long as this process lives.
    """
    if not sys.dont_write_bytecode:
        return dict(os.environ)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": _CACHED_BYTECODE.name}


def start_child(script: str, *arguments: str) -> subprocess.Popen[str]:
    """A fresh process of the script, which reads from and writes to pipes."""
    command = [sys.executable, "-P", script, "--child", *arguments]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )


def figures_of(child: subprocess.Popen[str]) -> dict[str, float]:
    """Figures that a process prints as its last line, in JSON. Its standard input is closed first."""
    output, errors = child.communicate()
    if child.returncode:
        raise SystemExit(f"{child.args} failed with {child.returncode}:\n{errors}")
    figures: dict[str, float] = json.loads(output.splitlines()[-1])
    return figures


def measure_in_child(script: str, *arguments: str) -> dict[str, float]:
    """Figures of a fresh process."""
    return figures_of(start_child(script, *arguments))


def peak_in_child(script: str, *arguments: str) -> dict[str, float]:
    """Figures of a fresh process, and ``MB peak``: the most that it had beyond ``BASE`` from ``BEGIN`` to ``END``.

    Watched from outside about every millisecond, since a library may keep the interpreter from running threads.
    """
    child = start_child(script, *arguments)
    samples = []
    while child.poll() is None:
        samples.append((time.monotonic(), _resident_mb(child.pid)))
        time.sleep(0.0005)
    figures = figures_of(child)
    base, begin, end = (figures.pop(name) for name in (BASE, BEGIN, END))
    during = [megabytes for moment, megabytes in samples if begin <= moment <= end]
    return {"MB peak": max([base, *during]) - base} | figures


def _resident_mb(process: int) -> float:
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem"))) * 1024 / MEGABYTE


def medians(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def in_turns(rounds: int, measured: dict[str, Callable[[], dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Row → medians of its figures, each row measured once per round, after one round of the first row that does not count."""
    next(iter(measured.values()))()  # fills the file cache and writes byte code
    found = [{name: measure() for name, measure in measured.items()} for _ in range(rounds)]
    return {name: medians([row[name] for row in found]) for name in measured}


def print_table(first: str, rows: dict[str, dict[str, float]]) -> None:
    columns = {column: max(len(column), 6) + 3 for row in rows.values() for column in row}
    width = max(len(name) for name in (first, *rows)) + 2
    print(f"{first:<{width}}" + "".join(f"{column:>{size}}" for column, size in columns.items()))
    for name, row in rows.items():
        cells = (f"{row[column]:>{size}.1f}" if column in row else " " * size for column, size in columns.items())
        print(f"{name:<{width}}" + "".join(cells).rstrip())
